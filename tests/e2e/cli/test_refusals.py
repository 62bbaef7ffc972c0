"""Errors are for the person at the terminal: one sentence, exit code 2, and nothing lost."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from desks import Desk
from indexes import one_relu

from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, State
from fxminify.store.signature import signature

READING = [["list", "repro.db"], ["show", "repro.db", "1"], ["repro", "repro.db", "1"]]
WRITING = [["run", "repro.db"], ["verify", "repro.db"]]
VERBS = [*READING, *WRITING]


def store(db: Path, failure: Failure | None = None, **backend: Any) -> int:
    """A capture made by hand: no torch."""
    case, blobs = one_relu(**backend)
    failure = failure or Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "boom")
    with Index.open(str(db), create=True) as index:
        return index.captures.add(
            case=case, blobs=blobs, failure=failure, signature=signature(failure), provenance={"program": "x.py"}
        )


def refused(desk: Desk, *args: object) -> str:
    """The sentence with which ``minify args`` is refused."""
    done = desk.invoke(*args)
    assert (done.exit_code, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return str(done.stderr)


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[0])
def test_a_missing_file(desk: Desk, verb: list[str]) -> None:
    assert refused(desk, *verb) == (
        "Error: repro.db does not exist: "
        "`minify capture --db repro.db SCRIPT` runs a program and makes it on a failure\n"
    )
    assert not desk.db.exists()


def damage(path: Path, how: str) -> None:
    if how == "a directory":
        path.mkdir()
        return
    if how == "a foreign file":
        path.write_bytes(b"# Notes\n" * 100)
        return
    store(path)
    if how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    if how == "newer":
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.close()


@pytest.mark.parametrize("how", ["a directory", "a foreign file", "truncated", "newer"])
def test_a_file_that_is_none_of_ours(desk: Desk, how: str) -> None:
    damage(desk.db, how)
    words = {
        "a directory": "is a directory",
        "a foreign file": "not a file of",
        "truncated": "cut short",
        "newer": "newer",
    }
    for verb in VERBS:
        said = refused(desk, *verb)
        assert said.startswith("Error: repro.db ")
        assert words[how] in said
        assert len(said.splitlines()) == 1


@pytest.mark.parametrize("verb", ["show", "repro", "run", "verify"])
def test_an_unknown_id(desk: Desk, verb: str) -> None:
    store(desk.db)
    said = refused(desk, verb, "repro.db", 7)
    assert said == "Error: repro.db has no capture 7: `minify list repro.db` shows what it has; the nearest is 1\n"


def test_no_script_yet(desk: Desk) -> None:
    store(desk.db)
    for verb in ("repro", "verify"):
        assert "minify run repro.db 1" in refused(desk, verb, "repro.db", 1)


def test_nothing_to_do(desk: Desk) -> None:
    store(desk.db)
    with Index.open(str(desk.db)) as index:
        index.captures.set_state(1, State.VERIFIED)
    done = desk.minify("run")
    assert (done.returncode, done.stdout) == (
        0, "Nothing to do: no capture of repro.db is pending. See them: minify list repro.db\n",
    )  # fmt: skip
    assert desk.json("run") == []


def test_what_cannot_be_run_is_no_success(desk: Desk) -> None:
    with Index.open(str(desk.db), create=True) as index:
        index.captures.add(
            case=None, blobs={}, failure=None, signature=None, provenance={"backend": "mine"},
            graph_text="def forward(x): ...", reason="node 'y': no name in the table",
        )  # fmt: skip
    done = desk.minify("run", "repro.db", 1)
    assert done.returncode == 1
    assert "unsupported" in done.stdout
    assert "def forward(x): ..." in desk.minify("show", "repro.db", 1).stdout


def test_an_empty_database_is_said_to_be_empty(desk: Desk) -> None:
    Index.open(str(desk.db), create=True).close()
    assert desk.minify("list").stdout == "No failures in repro.db. Capture some: minify capture --db repro.db SCRIPT\n"
    assert desk.json("list") == []


def test_a_read_only_file_is_read_and_not_run(desk: Desk) -> None:
    store(desk.db)
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere; tests/process/store/test_index_files.py has it as another user")
    desk.db.chmod(0o400)
    desk.path.chmod(0o500)
    try:
        assert desk.minify("list").returncode == 0
        assert "read-only" in refused(desk, "run")
    finally:
        desk.path.chmod(0o700)


HOSTILE = "boom \x1b[31mred\x1b[0m \x07 \x9b2J \u202e txet [bold]markup[/bold] [/] \r\b"


def test_a_hostile_message_neither_colours_the_terminal_nor_moves_its_cursor(desk: Desk) -> None:
    failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", HOSTILE, diagnostics=HOSTILE)
    store(desk.db, failure, name="[red]ba\x1b[1mckend[/red]")
    for verb in (["list"], ["show", "repro.db", 1]):
        done = desk.minify(*verb, COLUMNS="200")
        assert done.returncode == 0, done.stderr
        assert all(c.isprintable() or c == "\n" for c in done.stdout)
        assert "[red]ba?[1m" in done.stdout
        assert "[bold]markup[/bold] [/]" in done.stdout
    assert desk.json("list")[0]["headline"].startswith("RuntimeError: boom")


def test_a_terminal_that_knows_only_ascii(desk: Desk) -> None:
    store(desk.db, Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "caf\u00e9 \u4f60 \U0001f600"))
    for verb in (["list"], ["show", "repro.db", 1]):
        done = desk.minify(*verb, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert "RuntimeError: caf" in done.stdout


def test_list_show_and_repro_never_load_torch(desk: Desk) -> None:
    store(desk.db)
    (desk.path / "torch.py").write_text("raise SystemExit('torch was imported')")
    for verb in READING[:2]:
        assert desk.minify(*verb, PYTHONPATH=str(desk.path)).returncode == 0


def test_a_blocked_capture_says_which_module_to_install(desk: Desk) -> None:
    store(desk.db, name="gone", module="no_such_module")
    done = desk.minify("run", "repro.db", "--trust")
    assert done.returncode == 1
    row = desk.row()
    assert row["state"] == "blocked"
    assert "no_such_module" in row["reason"]
    assert "PYTHONPATH" in row["reason"]


def test_a_capture_from_elsewhere_says_what_it_would_execute_and_is_not_run(desk: Desk) -> None:
    store(desk.db, name="theirs", module="their_module")
    done = desk.minify("run", "repro.db")
    assert done.returncode == 1
    assert "Capture 1 was not made here." in done.stderr
    assert "their_module" in done.stderr
    assert "--trust" in done.stderr
    row = desk.row()
    assert row["state"] == "blocked"
    assert "--trust" in row["reason"]


def test_a_backend_that_cannot_be_read_is_refused_and_keeps_no_other_waiting(desk: Desk) -> None:
    store(desk.db, name="odd", module="not a module")
    store(desk.db, name="theirs", module="their_module")
    done = desk.minify("run")
    assert done.returncode == 1
    assert [row["state"] for row in desk.json("list")] == ["blocked", "blocked"]
    assert "capture 1 is not a valid case (backend: not a module" in desk.row(1)["reason"]
    assert "--trust" in desk.row(2)["reason"]
    assert "Traceback" not in done.stderr
