"""Verbs that need no database, and the help of all."""

from __future__ import annotations

import click
import pytest
from desks import Desk

from fxminify.cli import main

VERBS = [
    *("catch", "capture", "bisect", "hunt", "import", "run", "list", "show", "history"),
    *("repro", "report", "export"),
    *("verify", "retest", "ablate", "explain"),
    *("work", "tasks", "serve", "tokens", "notify", "send", "mcp"),
    *("gc", "copy", "upgrade", "doctor", "backends", "passes", "formats"),
]


def test_the_verbs_are_listed_in_their_groups() -> None:
    assert main.list_commands(click.Context(main)) == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_says_what_it_does(verb: str) -> None:
    command = main.commands[verb]
    assert command.help
    silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def test_passes_are_listed_with_what_they_do(desk: Desk) -> None:
    listed = desk.json("passes")
    assert [row["pass"] for row in listed if len(row["what"].split()) < 4] == []
    assert max(map(len, desk.minify("passes", COLUMNS="80").stdout.splitlines())) <= 80


def test_backends_are_listed(desk: Desk) -> None:
    lines = desk.minify("backends", COLUMNS="80").stdout.splitlines()
    assert {"inductor", "eager", "aot_eager"} <= {line.split()[0] for line in lines}
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_backends_are_tried_in_processes_of_their_own(desk: Desk) -> None:
    listed = {row["name"]: row for row in desk.json("backends", "--test", "fxminify_chain", "fxminify_faulty", "tvm")}
    assert listed["fxminify_chain"]["test"] == "ok"
    assert listed["fxminify_faulty"]["test"] == "fails on purpose: PlantedFault: planted: cannot compile relu"
    assert listed["tvm"]["test"].startswith(
        "not installed: the backend tvm needs the module tvm, which is not installed"
    )
    assert listed["tvm"]["needs"] == "pip install apache-tvm"
    refused = desk.minify("backends", "inductr")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2, "Error: no backend is registered as 'inductr'; `minify backends` lists those that are."
    )  # fmt: skip


@pytest.mark.slow
def test_doctor_takes_a_planted_failure_the_whole_way_and_says_it_is_planted(desk: Desk) -> None:
    rows = desk.json("doctor", "--synthetic")
    assert [row["check"] for row in rows if row["ok"] is False] == []
    assert rows[-1]["check"] == "planted failure"
    assert rows[-1]["found"].startswith("planted (not a real bug): ")
    assert rows[-1]["found"].endswith("script verified")
