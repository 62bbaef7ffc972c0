"""The table grows with the installed torch: names that the shipped one lacks are generated once, privately."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fxminify.store.document import names, names_cache
from fxminify.store.document.names import UnknownName, check_target, grow, growable, table
from fxminify.store.live.encode import Unsupported, encode
from fxminify.store.live.resolve import forget

WITHOUT = {
    "functions": ["torch.relu", "torch.nn.functional.hardswish"], "methods": ["relu"], "ops": ["aten::relu.default"],
    "namespaces": ["aten"], "dtypes": ["bfloat16"], "hops": ["cond"],
}  # fmt: skip
COMPLETE = json.loads(names.SHIPPED.read_text())


def clear() -> None:
    for cached in (names._shipped, table, grow, names_cache.path_for):
        cached.cache_clear()
    forget()


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The shipped table is one of an older torch, without some names; gives where the table of this torch is kept."""
    kept = {
        kind: {k: v for k, v in known.items() if k not in WITHOUT[kind]}
        if isinstance(known, dict)
        else [name for name in known if name not in WITHOUT[kind]]
        for kind, known in COMPLETE.items()
        if kind in WITHOUT
    }
    (tmp_path / "names.json").write_text(json.dumps({**COMPLETE, **kept, "torch": "2.0.0"}))
    monkeypatch.setattr(names, "SHIPPED", tmp_path / "names.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    clear()
    path = names_cache.path_for("2.0.0")
    assert path is not None
    yield path
    monkeypatch.undo()
    clear()


def is_complete() -> bool:
    kinds = {kind: getattr(table(), kind) for kind in WITHOUT}
    return all(name in kinds[kind] for kind, removed in WITHOUT.items() for name in removed)


@pytest.mark.slow
@pytest.mark.skipif(names_cache.path_for(COMPLETE["torch"]) is not None, reason="the shipped table is of another torch")
def test_a_graph_with_a_removed_name_is_stored_once_the_table_has_grown(older: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    assert not is_complete()
    with pytest.raises(UnknownName, match=r"torch\.relu.*python -m fxminify\.store\.live\.names_generate"):
        check_target({"fn": "torch.relu"})
    encode(gm, [torch.ones(2)])
    assert is_complete()
    assert (older.stat().st_mode & 0o777, older.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(older.read_text()) == COMPLETE
    clear()  # another process of this user reads the file, without torch and without a run of the generator
    assert is_complete()
    assert (growable(), grow()) == (None, False)
    again = "import sys; from fxminify.store.document.names import table; table(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, check=True).stdout == "False\n"


HOSTILE = {
    "no JSON": b"\0\1",
    "another document": b'{"torch": "9.9"}',
    "a name of another kind": json.dumps({**COMPLETE, "functions": ["os.system"]}).encode(),
    "a name with code": json.dumps({**COMPLETE, "functions": ["torch.relu(__import__('os'))"]}).encode(),
    "a line break": json.dumps({**COMPLETE, "methods": ["relu\n"]}).encode(),
}


def generated(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In place of the generator, which takes seconds: write the complete table, and note where."""
    asked: list[Path] = []

    def generate(path: Path) -> bool:
        asked.append(path)
        names_cache.write(path, json.dumps(COMPLETE).encode())
        return True

    monkeypatch.setattr(names_cache, "generate", generate)
    return asked


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_corrupt_file_is_ignored_and_generated_anew(
    older: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = generated(monkeypatch)
    names_cache.write(older, content)
    assert not is_complete()
    assert "os.system" not in table().functions
    assert grow()
    assert asked == [older]
    assert is_complete()


@pytest.mark.parametrize("how", ["others may write", "a link", "of another user", "a pipe"])
def test_a_file_that_others_may_have_written_is_ignored_and_generated_anew(
    older: Path, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = generated(monkeypatch)
    content = json.dumps({**COMPLETE, "functions": ["torch.load"]}).encode()
    names_cache.write(older, content)
    if how == "others may write":
        older.chmod(0o622)
    elif how == "a link":
        older.rename(tmp_path / "elsewhere")
        older.symlink_to(tmp_path / "elsewhere")
    elif how == "a pipe":
        older.unlink()
        os.mkfifo(older)
    else:
        real, mine = os.fstat, os.geteuid()
        stranger = os.stat_result((0o100600, 0, 0, 1, mine + 1, 0, len(content), 0, 0, 0))
        monkeypatch.setattr(os, "fstat", lambda _: stranger)
    assert "torch.load" not in table().functions
    if how == "of another user":
        monkeypatch.setattr(os, "fstat", real)
        older.unlink()
    assert grow()
    assert asked == [older]
    assert is_complete()
    assert "torch.load" not in table().functions
    assert not older.is_symlink()


def test_a_folder_that_others_can_write_to_is_not_used(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names_cache.write(older, json.dumps(COMPLETE).encode())
    older.parent.chmod(0o777)
    assert not is_complete()
    with pytest.raises(PermissionError):
        names_cache.write(older, b"")


def test_a_generator_that_fails_is_said_and_the_graph_is_refused_as_before(
    older: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Unsupported, match=r"relu has no name in the table"):
        encode(torch.fx.symbolic_trace(lambda x: torch.relu(x)), [torch.ones(2)])
    assert "could not generate the names of this torch" in caplog.text


def test_the_table_of_this_very_torch_does_not_grow() -> None:
    assert names_cache.path_for(torch.__version__.partition("+")[0]) is None
