"""``--json``: one document on standard output, an answer with the fields of the table or an error."""

from __future__ import annotations

import json
from typing import Any

import indexes
import pytest
from desks import Desk

from fxminify.cli import VERBS, main
from fxminify.minifier import next_step
from fxminify.minifier.commands.answers import ANSWERS, COMMON, ERROR_FIELDS, Form

NAMES = [str(verb.name) for verb in VERBS]


def test_the_table_has_every_verb_in_the_order_of_the_help() -> None:
    assert [*ANSWERS] == NAMES


@pytest.mark.parametrize("verb", [name for name in NAMES if ANSWERS[name].form is not Form.NONE])
def test_an_error_of_every_verb_is_json(desk: Desk, verb: str) -> None:
    done = desk.invoke(verb, "--json", "--no-such-option")
    error = json.loads(done.stdout)
    assert (done.exit_code, done.stdout.count("\n")) == (2, 1)
    assert [*error] == [*ERROR_FIELDS]
    assert error["error"].startswith("No such option '--no-such-option'")
    assert error["command"] == f"minify {verb} --help"
    assert "Error: No such option '--no-such-option'" in done.stderr


@pytest.mark.parametrize(
    ("given", "error", "hint", "command"),
    [
        (["show", "repro.db", 9], "repro.db has no capture 9", "`minify list repro.db` shows what it has; the nearest "
         "is 4", "minify list repro.db"),
        (["show", "no.db", 1], "no.db does not exist", "`minify capture --db no.db SCRIPT` runs a program and makes it "
         "on a failure", "minify capture --db no.db SCRIPT"),
        (["repro", "repro.db", 2], "capture 2 has no script yet (pending)", "make one: minify run repro.db 2",
         "minify run repro.db 2"),
        (["report"], "repro.html exists", "add --force to overwrite it", "minify report --force --json"),
        (["xyz"], "No such command 'xyz'", "minify --help lists what it takes", "minify --help"),
        (["capture"], "Missing argument 'PROGRAM'", "minify capture --help lists what it takes",
         "minify capture --help"),
    ],
)  # fmt: skip
def test_what_happened_and_the_next_command(desk: Desk, given: list[Any], error: str, hint: str, command: str) -> None:
    indexes.small(desk.db)
    (desk.path / "repro.html").touch()
    done = desk.invoke(given[0], "--json", *given[1:])
    assert json.loads(done.stdout) == {"error": error, "hint": hint, "command": command}
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("capture 1 was not run: it was not trusted (--trust)",
         ("capture 1 was not run: it was not trusted", "add --trust if you agree to it", "minify run --trust x.db 1")),
        ("no script. What it showed: minify show x.db 1; replay it again: minify run x.db 1 --again",
         ("no script", "What it showed: minify show x.db 1; replay it again: minify run x.db 1 --again",
          "minify show x.db 1")),
        ("minify again and again", ("minify again and again", "minify run --help lists what it takes",
                                    "minify run --help")),
        ("the disk is full.", ("the disk is full", "minify run --help lists what it takes", "minify run --help")),
    ],
)  # fmt: skip
def test_messages_are_split(message: str, expected: tuple[str, str, str]) -> None:
    found = next_step.document(message, ["run", "x.db", "1"], main.commands)
    assert tuple(found.values()) == expected


def test_an_error_of_a_program_that_is_run_is_no_json(desk: Desk) -> None:
    """``--json`` after the program belongs to the program."""
    done = desk.invoke("capture", "--no-such-option", "program.py", "--json")
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_defect_has_its_traceback_aside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxminify.store.index.Index.open", lambda *a, **k: 1 / 0)
    done = desk.invoke("list", "--json")
    assert "Traceback" in done.stderr
    assert json.loads(done.stdout)["error"] == "ZeroDivisionError: division by zero"
    assert done.exit_code == 2


@pytest.mark.parametrize(
    "given",
    [
        ["list"], ["show", 1], ["history", 1], ["repro", 1], ["report", 1], ["report", "--what-is-inside"],
        ["export"], ["verify", 1], ["retest", 1], ["tasks"], ["tokens", "--new", "a", "--scope", "submit"], ["tokens"],
        ["notify"], ["send"], ["gc"], ["copy", "repro.db", "copy.db"], ["upgrade"], ["passes"], ["formats"],
        ["ablate", 1], ["explain", 1], ["run", 1],
    ],
    ids=lambda given: given[0],
)  # fmt: skip
def test_the_fields_are_those_of_the_table(desk: Desk, given: list[Any]) -> None:
    indexes.small(desk.db)
    done = desk.invoke(given[0], "--json", *given[1:])
    answer, found = ANSWERS[given[0]], json.loads(done.stdout)
    assert done.exit_code in {*COMMON, *answer.codes}, done.stderr
    if done.exit_code == 2:
        assert [*found] == [*ERROR_FIELDS]
        assert given[0] in ("ablate", "explain", "run")
        return
    assert isinstance(found, list) == (answer.form is Form.LIST) or "--new" in given
    for row in found if isinstance(found, list) else [found]:
        assert set(answer.fields) <= set(row) <= {*answer.fields, *answer.sometimes}
