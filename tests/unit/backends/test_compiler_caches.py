"""Caches of compilers for our own processes: linked from the user's, which stay as they are, whatever happens."""

from __future__ import annotations

import getpass
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxminify.backends.running.compiler_caches import CompilerCaches, is_whole
from fxminify.store import temporary

#: An ELF header that says: one section header of 64 bytes, at byte 64.
LIBRARY = b"\x7fELF" + bytes(36) + struct.pack("<Q", 64) + bytes(10) + struct.pack("<HH", 64, 1) + bytes(66)
OLD = time.time() - 1000


def written(path: Path, data: bytes, changed: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (changed, changed))
    return path


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache of Inductor. Nothing of this machine is used."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "users"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("TRITON_HOME", str(tmp_path / "triton"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    return tmp_path / "users"


@pytest.fixture
def caches(users: Path) -> Iterator[CompilerCaches]:
    with CompilerCaches() as made:
        yield made


def inductor(caches: CompilerCaches) -> Path:
    return Path(caches.environment()["TORCHINDUCTOR_CACHE_DIR"])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_whole_files_of_the_user_are_there_and_others_are_not(users: Path, caches: CompilerCaches) -> None:
    written(users / "ab" / "cabc.main.so", LIBRARY)
    written(users / "ab" / "cempty.main.so", b"")
    written(users / "ab" / "ccut.main.so", LIBRARY[:127])
    written(users / "ab" / "cabc.main.cpp", b"// cheap to write again")
    written(users / "fxgraph" / "xy" / "answer", b"would answer for the compiler")
    assert content(inductor(caches)) == {"ab/cabc.main.so": LIBRARY}


def test_nothing_reaches_the_caches_of_the_user(users: Path, caches: CompilerCaches) -> None:
    written(users / "ab" / "cabc.main.so", LIBRARY)
    before = content(users)
    written(inductor(caches) / "cd" / "cnew.main.so", LIBRARY, time.time())
    (inductor(caches) / "ab" / "cabc.main.so").unlink()
    caches.close()
    assert content(users) == before


def test_what_was_compiled_is_kept_for_the_next_command_if_it_is_whole(users: Path, caches: CompilerCaches) -> None:
    now = time.time()
    written(inductor(caches) / "cd" / "cnew.main.so", LIBRARY, now)
    written(inductor(caches) / "cd" / "ccut.main.so", LIBRARY[:100], now)
    place = inductor(caches)
    caches.close()
    assert not place.exists()
    with CompilerCaches() as following:
        assert content(inductor(following)) == {"cd/cnew.main.so": LIBRARY}


def test_only_so_much_is_kept(users: Path, caches: CompilerCaches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxminify.backends.running.compiler_caches.MOST_KEPT", 2 * len(LIBRARY))
    now = time.time()
    for number in range(3):
        written(inductor(caches) / "cd" / f"c{number}.main.so", LIBRARY, now + number)
    caches.close()
    with CompilerCaches() as following:
        assert sorted(content(inductor(following))) == ["cd/c1.main.so", "cd/c2.main.so"]


def test_what_a_killed_process_left_is_removed(users: Path, caches: CompilerCaches) -> None:
    environment, place, now = caches.environment(), inductor(caches), time.time()
    written(place / "ab" / "cold.main.so", LIBRARY[:100])
    written(place / "ab" / "cwhole.main.so", LIBRARY, now)
    written(place / "ab" / "cempty.main.so", b"", now)
    written(Path(environment["TORCH_EXTENSIONS_DIR"]) / "mine" / "lock", b"", now)
    caches.mend(now)
    assert sorted(content(place)) == ["ab/cold.main.so", "ab/cwhole.main.so"]
    assert content(Path(environment["TORCH_EXTENSIONS_DIR"])) == {}


def test_a_header_that_may_be_half_written_is_made_again(users: Path, caches: CompilerCaches) -> None:
    temporary = Path(caches.environment()["TMPDIR"])
    folder = temporary / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    written(folder / "cold.h.gch", b"gpch")
    written(folder / "cnew.h.gch", b"gpch", time.time())
    caches.mend(time.time())
    assert sorted(content(folder)) == ["cold.h.gch"]


def test_the_caches_of_a_killed_driver_are_removed_by_the_next(users: Path, tmp_path: Path) -> None:
    code = "import os\nfrom fxminify.backends.running.compiler_caches import CompilerCaches\n"
    code += "CompilerCaches().environment()\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list((tmp_path / "tmp").glob("fxminify-caches-*"))) == 1
    temporary.sweep("fxminify-caches-", str(tmp_path / "tmp"))
    assert list((tmp_path / "tmp").glob("fxminify-caches-*")) == []


@pytest.mark.parametrize(
    ("name", "data", "whole"),
    [("a.so", LIBRARY, True), ("a.so", LIBRARY[:127], False), ("a.so", b"", False), ("a.so", b"text" * 40, False),
     ("a.h", b"x", True), ("a.h", b"", False)],
)  # fmt: skip
def test_whole_files(tmp_path: Path, name: str, data: bytes, whole: bool) -> None:
    assert is_whole(written(tmp_path / name, data)) is whole
    assert not is_whole(tmp_path / "missing.so")
