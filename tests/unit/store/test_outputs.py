"""Files that a person asked for: no link is followed, no half of one is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fxminify.store import outputs


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_content_and_the_rights_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    outputs.write(tmp_path / "new", b"text")
    assert names(tmp_path) == ["new", "usual"]
    assert (tmp_path / "new").read_bytes() == b"text"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_a_name_that_is_taken_and_is_replaced_with_force(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"theirs")
    link.symlink_to(target)
    with pytest.raises(FileExistsError):
        outputs.write(link, b"ours")
    assert link.is_symlink()
    outputs.write(link, b"ours", force=True)
    assert not link.is_symlink()
    assert link.read_bytes() == b"ours"
    assert target.exists() is there
    assert not there or target.read_bytes() == b"theirs"
    assert names(tmp_path) == (["link", "target"] if there else ["link"])


def test_a_file_is_replaced_with_force_alone_and_keeps_its_rights(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o640)
    with pytest.raises(FileExistsError):
        outputs.write(file, b"new")
    with file.open("rb") as reader:
        outputs.write(file, b"new", force=True)
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    outputs.check(pipe)
    outputs.write(pipe, b"text", force=True)
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_check_leaves_nothing(tmp_path: Path) -> None:
    outputs.check(tmp_path / "file")
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        outputs.check(tmp_path / "no" / "file")


def test_nothing_stays_of_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        outputs.write(tmp_path / "file", b"text")
    assert names(tmp_path) == []
