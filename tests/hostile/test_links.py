"""Verbs that write a file, where a link lies in the place of it: nothing is written through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from desks import invoke
from indexes import add, chain, failing, minify

from fxminify.store.index import Index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with Index.open("repro.db", create=True) as index:
        add(index, chain(["relu", "sin"]), failing("no sin"))
        minify(index, 1, chain(["sin"]), script="import torch\n")
    return tmp_path


WRITING = [
    ("repro.html", ("report", "repro.db")), ("page.html", ("report", "repro.db", "-o", "page.html")),
    ("one.zip", ("report", "repro.db", "1", "--bundle", "one.zip")),
    ("out.py", ("repro", "repro.db", "1", "-o", "out.py")),
    ("out.md", ("repro", "repro.db", "1", "--format", "issue", "-o", "out.md")),
    ("share.db", ("export", "repro.db", "-o", "share.db")), ("copy.db", ("copy", "repro.db", "copy.db")),
    ("share.db.blobs", ("export", "repro.db", "-o", "share.db")), ("copy.db.blobs", ("copy", "repro.db", "copy.db")),
    ("junit.xml", ("retest", "repro.db", "--junit", "junit.xml")),
]  # fmt: skip


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("name", "verb"), WRITING, ids=lambda value: value if isinstance(value, str) else "")
def test_a_verb_writes_through_no_link(folder: Path, name: str, verb: tuple[str, ...], there: bool) -> None:
    victim = folder / "victim"
    if there:
        victim.mkdir() if name.endswith(".blobs") else victim.write_bytes(b"theirs")
    (folder / name).symlink_to(victim)
    done = invoke(folder, *verb)
    if name == "junit.xml":
        assert done.exit_code in (0, 1, 3), done.output
        assert not (folder / name).is_symlink()
    else:
        assert done.exit_code == 2, done.output
        assert any(words in done.output for words in (f"{name} exists", f"{name} is a link"))
    assert victim.exists() is there
    if there:
        assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_bytes() == b"theirs"


@pytest.mark.parametrize("verb", [WRITING[1][1], WRITING[2][1], WRITING[3][1], WRITING[5][1]], ids=lambda verb: verb[0])
def test_force_replaces_the_link(folder: Path, verb: tuple[str, ...]) -> None:
    victim, name = folder / "victim", folder / verb[-1]
    victim.write_bytes(b"theirs")
    name.symlink_to(victim)
    done = invoke(folder, *verb, "--force")
    assert done.exit_code == 0, done.output
    assert not name.is_symlink()
    assert name.stat().st_size > 10
    assert victim.read_bytes() == b"theirs"
