"""Thousands of changed documents and files: each is read or refused in a sentence, and nothing in them runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutations
import pytest
from bombs import BOMBS
from desks import Desk

Trials = Callable[..., dict[str, Any]]

#: Trials of one run of the suite, and of `make test-slow`. docs/security.md names both.
DOCUMENTS, MORE_DOCUMENTS = 3_000, 30_000
COMMANDS, MORE_COMMANDS = 200, 3_000
SUITES, MORE_SUITES = 12, 150
LARGE, MORE_LARGE = 2, 42


def check(trials: Trials, kind: str, seed: int, count: int, *db: Path) -> dict[str, int]:
    """Every trial was made, none found a problem, and torch was not loaded. Returns how they ended."""
    found = trials(kind, seed, count, *db)
    assert found["problems"] == [], "\n\n".join(found["problems"][:5])
    assert found["trials"] >= count
    assert not found["torch"]
    ended: dict[str, int] = found["ended"]
    return ended


def test_changed_documents(trials: Trials) -> None:
    ended = check(trials, "documents", 0, DOCUMENTS)
    assert ended["refused"] > DOCUMENTS // 2
    assert ended["accepted"] > DOCUMENTS // 20


def test_commands_on_changed_files(trials: Trials) -> None:
    ended = check(trials, "files", 0, COMMANDS)
    assert ended["exit code 0"] > COMMANDS // 10
    assert ended["exit code 2"] > COMMANDS // 10


def test_pytest_on_changed_files(trials: Trials) -> None:
    ended = check(trials, "suites", 0, SUITES)
    assert ended["exit code 0"] > 1
    assert ended["exit code 2"] > 1


@pytest.mark.slow
def test_commands_on_a_large_graph(trials: Trials, bomb: Callable[[str], Path]) -> None:
    check(trials, "bombs", 0, LARGE, bomb("bodies"))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "shape"), list(enumerate(BOMBS)))
def test_more_commands_on_large_graphs(trials: Trials, bomb: Callable[[str], Path], seed: int, shape: str) -> None:
    check(trials, "bombs", seed, MORE_LARGE // len(BOMBS), bomb(shape))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_changed_documents(trials: Trials, seed: int) -> None:
    check(trials, "documents", seed, MORE_DOCUMENTS // 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_commands_on_changed_files(trials: Trials, seed: int) -> None:
    check(trials, "files", seed, MORE_COMMANDS // 2)


@pytest.mark.slow
def test_many_suites_of_changed_files(trials: Trials) -> None:
    check(trials, "suites", 1, MORE_SUITES)


def test_in_a_process_of_its_own(full: Desk, tmp_path: Path) -> None:
    """As a user meets it: a byte that is no UTF-8 in the definition of a table, which SQLite repeats in its message."""
    desk = Desk(tmp_path)
    desk.db.write_bytes(full.db.read_bytes().replace(b"CREATE TABLE captures", b"CREATE TABLE capt\xffres"))
    done = desk.minify("list", "repro.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: repro.db is damaged")
    assert len(done.stderr.splitlines()) == 1


def test_the_hook_of_the_trials_sees_what_it_is_for(full: Desk, tmp_path: Path) -> None:
    """Else the trials could not fail: a file that makes a reader start a process is noticed."""
    program = (
        "import os, sys; from pathlib import Path; sys.path[:0] = sys.argv[1:2]; import hostile_trials as trials;"
        "watch = trials.Watch(Path('.')); watch.on = True\n"
        "for act in (lambda: os.system('true'), lambda: open('/tmp/outside', 'w'), lambda: exec('1', {}),"
        " lambda: exec(compile('1', 'elsewhere.py', 'exec')), lambda: __import__('a_module_of_a_stranger')):\n"
        "    try: act()\n"
        "    except trials.NotAllowed: continue\n"
        "    except ImportError: pass\n"
        "watch.on = False; print(len(watch.seen))\n"
    )
    done = Desk(tmp_path).run([*full.command()[:1], "-c", program, str(Path(mutations.__file__).parent)])
    assert done.stdout == "5\n", done.stderr
