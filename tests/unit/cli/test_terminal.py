"""What the terminal shows: tables of at most its width, colours only where there is one, and no control characters."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import indexes
import pytest
from click.testing import CliRunner
from desks import Desk
from rich.console import Console

from fxminify.cli import main
from fxminify.minifier.commands.terminal import detail, listings, parts
from fxminify.minifier.commands.terminal.progress import RunProgress
from fxminify.minifier.reporting.gathering import gather
from fxminify.minifier.reporting.overview import overview
from fxminify.minifier.reporting.report import ReportedFrame
from fxminify.minifier.session import events
from fxminify.store.document.case import Graph, Node
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, RetestResult


def terminal(width: int = 80, **more: Any) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, **more)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_failures_of_one_backend_with_one_signature_are_one_row(desk: Desk) -> None:
    indexes.small(desk.db)
    assert desk.invoke("list", "repro.db").stdout.splitlines() == [
        " id  state         failure        backend  nodes  seen",
        "1-2  1/2 verified  compile error  planted  2-4→1     2",
        "     RuntimeError: no kernel for sin",
        "  3  pending       compile error  other        2     1",
        "     RuntimeError: no kernel for sin",
        "  4  unsupported   compile error                     1",
        "     RuntimeError: cannot store",
    ]
    each = desk.invoke("list", "repro.db", "--each").stdout.splitlines()
    assert [line.split()[0] for line in each[1::2]] == ["1", "2", "3", "4"]
    assert [row["id"] for row in json.loads(desk.invoke("list", "repro.db", "--json").stdout)] == [1, 2, 3, 4]


def test_divergences_are_one_bug_where_their_smallest_graphs_call_the_same(desk: Desk) -> None:
    wrong = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 1", detail={"class": "value"})
    with Index.open(str(desk.db), create=True) as index:
        ids = [indexes.add(index, indexes.chain([name, "relu"]), wrong) for name in ("sin", "exp", "cos", "tan", "log")]
        for id, name in zip(ids, ("sin", "exp", "sin"), strict=False):
            indexes.minify(index, id, indexes.chain([name]))
        assert [c.operators for c in index.captures.find()] == ["sin", "exp", "sin", "", ""]
    rows = desk.invoke("list", "repro.db").stdout.splitlines()
    assert [line.split()[0] for line in rows[1::2]] == ["1,3", "2", "4-5"]


def test_a_listing_says_fixed_where_the_last_retest_passed(desk: Desk) -> None:
    indexes.small(desk.db)
    found: dict[str, Any] = {"shown": 0, "runs": 3, "seconds": 1.0, "versions": {"torch": "2.14.0"}}
    with Index.open(str(desk.db)) as index:
        index.retests.add(1, "planted", RetestResult.FIXED, **found)
        index.retests.add(3, "planted", RetestResult.FIXED, **found)  # not its own backend
    states = [line.split()[1] for line in desk.invoke("list", "repro.db").stdout.splitlines()[1::2]]
    assert states == ["fixed", "pending", "unsupported"]
    standing = [row["standing"] for row in json.loads(desk.invoke("list", "repro.db", "--json").stdout)]
    assert standing[0].startswith("fixed in torch 2.14.0 (failed with 2.13.0), first seen ")
    assert standing[1:] == ["", "", ""]
    with Index.open(str(desk.db)) as index:
        index.retests.add(1, "planted", RetestResult.FAILING, **found)
    assert "1/2 verified" in desk.invoke("list", "repro.db").stdout


def test_signatures_of_wrong_values_name_the_operators_that_tell_them_apart(desk: Desk) -> None:
    wrong = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 1", detail={"class": "value"})
    with Index.open(str(desk.db), create=True) as index:
        for name in ("sin", "exp"):
            indexes.minify(index, indexes.add(index, indexes.chain([name]), wrong), indexes.chain([name]))
        digest = index.captures.get(1).signature
        bugs = [row.bug for row in index.captures.find()]
    for id, (name, bug) in enumerate(zip(("sin", "exp"), bugs, strict=True), 1):
        lines = desk.invoke("show", "repro.db", id, "--details").stdout.splitlines()
        rows = [line.split(maxsplit=1) for line in lines if line.strip().startswith(("bug ", "signature "))]
        assert rows == [["bug", str(bug)], ["signature", f"{digest} of {name}"]]
    assert len(set(bugs)) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_listing_fits_the_terminal(tmp_path: Path, width: int) -> None:
    db = tmp_path / "repro.db"
    with Index.open(str(db), create=True) as index:
        for number in range(40):
            case = indexes.chain(["sin"] * (1000 + number), backend="a backend of a very long name, which is number 1")
            indexes.add(index, case, indexes.failing(f"a message that {'goes on and ' * 20} {'ab'[number % 2] * 8}"))
        rows = index.bugs.page()
    shown = Console(file=io.StringIO(), width=width)
    listings.table(rows, "repro.db", console=shown)
    lines = text_of(shown).splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= width


def test_a_failure_in_detail_fits_eighty_columns(desk: Desk) -> None:
    indexes.small(desk.db)
    with Index.open(str(desk.db), readonly=True) as index:
        found = gather(index, 1)
    assert found.failure is not None
    frame = ReportedFrame(file="torch/" + "y" * 100, line=3, function="f")
    failure = replace(found.failure, message="word " * 100 + "x" * 200, frames=(frame,))
    found = replace(found, failure=failure)
    shown = Console(file=io.StringIO(), width=80)
    detail.show(found, "repro.db", details=True, console=shown)
    lines = text_of(shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert "     state  verified: 3 of 3 fresh runs of the script show it" in lines
    assert [line for line in lines if line != line.rstrip()] == []
    assert not [line for line in lines if line.endswith(" -")]


def test_the_minimal_graph_and_the_next_command_are_shown_and_the_rest_on_demand(desk: Desk) -> None:
    indexes.small(desk.db)
    short = desk.invoke("show", "repro.db", 1).stdout
    assert "torch.sin(x)" in short
    assert "torch.tanh" not in short
    assert "signature  " not in short
    assert short.endswith(
        "    script  minify repro repro.db 1 -o repro.py\n      more  minify show repro.db 1 --details\n"
    )
    assert "torch.tanh" in desk.invoke("show", "repro.db", 1, "--captured").stdout
    assert " signature  v3:" in desk.invoke("show", "repro.db", 1, "--details").stdout
    pending = desk.invoke("show", "repro.db", 2).stdout
    assert " signature  v3:" in pending
    assert pending.endswith("      next  minify run repro.db 2\n")


def test_a_long_error_is_one_line_and_whole_on_demand(desk: Desk) -> None:
    with Index.open(str(desk.db), create=True) as index:
        indexes.add(index, indexes.chain(["sin"]), indexes.failing("no kernel\n" + "called from here\n" * 30))
    short = desk.invoke("show", "repro.db", 1).stdout
    assert "     error  RuntimeError: no kernel\n" in short
    assert "            the whole text, 31 lines: minify show repro.db 1 --details\n" in short
    assert "called from here" not in short
    assert desk.invoke("show", "repro.db", 1, "--details").stdout.count("called from here") == 30


def test_of_a_long_graph_the_first_lines_are_shown(desk: Desk) -> None:
    with Index.open(str(desk.db), create=True) as index:
        indexes.add(index, indexes.chain(["sin"] * 200), indexes.failing("no kernel"))
    shown = desk.invoke("show", "repro.db", 1).stdout
    assert "and 161 more lines: minify show repro.db 1 --captured" in shown
    assert shown.count("torch.sin") == 39
    assert desk.invoke("show", "repro.db", 1, "--captured").stdout.count("torch.sin") == 200


def test_a_script_is_coloured_on_a_terminal_and_plain_elsewhere(desk: Desk) -> None:
    indexes.small(desk.db)
    script = '"""It fails."""\nimport torch\n\ntorch.compile(torch.sin)(x)\n'
    assert desk.invoke("repro", "repro.db", 1).stdout == script
    shown = terminal()
    parts.code(script, console=shown)
    assert "\x1b[" in text_of(shown)
    bare = terminal(no_color=True)
    parts.code(script, console=bare)
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:[349]\d|10\d)", text_of(bare))
    assert colours == []


def test_colours_are_left_out_where_the_environment_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes.small(desk.db)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in desk.invoke("repro", "repro.db", 1).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in desk.invoke("repro", "repro.db", 1).stdout


def test_nothing_of_a_database_moves_the_cursor(tmp_path: Path) -> None:
    hostile = "[red]\x1b[2Jgone\x07\u202e\r\b"
    db = tmp_path / "repro.db"
    with Index.open(str(db), create=True) as index:
        case = indexes.chain(["sin"])
        failure = indexes.failing(hostile, hostile, diagnostics=hostile)
        id = indexes.add(index, replace(case, backend={**case.backend, "name": hostile}), failure)
        indexes.minify(index, id, indexes.chain(["sin"]), script=f"# {hostile}\n")
    for coloured in (False, True):
        shown = Console(file=io.StringIO(), width=80, force_terminal=coloured, no_color=True)
        with Index.open(str(db), readonly=True) as index:
            listings.table(index.bugs.page(), str(db), console=shown)
            detail.show(gather(index, id), str(db), details=True, console=shown)
            detail.drawing(index, id, console=shown)
        assert [c for c in "\x07\u202e\r\b" if c in text_of(shown)] == []
        assert "\x1b[2J" not in text_of(shown)
        assert "[red]?[2Jgone" in text_of(shown)
    terminal_ = terminal()
    parts.code(f"# {hostile}", console=terminal_)
    assert "\x1b[2J" not in text_of(terminal_)


def test_the_minimal_graph_is_drawn(desk: Desk) -> None:
    indexes.small(desk.db)
    assert desk.invoke("show", "repro.db", 1, "--graph").stdout.splitlines() == [
        "Failure 1: 1 compute node",
        "○  x  f32[2, 8]",
        "●  sin_0 = sin(x)  f32[2, 8]",
        "■  return (sin_0,)",
    ]
    assert desk.invoke("show", "repro.db", 2, "--graph").stdout.splitlines()[0] == (
        "Failure 2: 2 compute nodes, not minified yet: pending"
    )
    wide = terminal(16)
    with Index.open(str(desk.db), readonly=True) as index:
        detail.drawing(index, 1, console=wide)
    assert "●  sin_0 = sin(…" in text_of(wide).splitlines()
    refused = desk.invoke("show", "repro.db", 4, "--graph")
    assert (refused.exit_code, refused.stderr) == (
        2, "Error: capture 4 of repro.db has no graph that can be run: node 'f' calls a function without a name\n"
    )  # fmt: skip


def test_a_graph_that_has_no_source_form_is_still_shown_and_drawn(tmp_path: Path) -> None:
    node = Node("f", "call_module", "f", ({"ref": "x"},))
    x, output = Node("x", "placeholder", "x"), Node("output", "output", "output", ({"tuple": [{"ref": "f"}]},))
    module = {"class": "torch.nn.modules.activation.ReLU", "attrs": {"inplace": False}}
    case = indexes.chain(["sin"])
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        id = indexes.add(
            index, replace(case, graph=Graph((x, node, output), {"f": {"module": module}})), indexes.failing("m")
        )
        printed = gather(index, id).captured.source or ""
        assert printed.startswith("# cannot be printed: node 'f': a call_module node has")
        shown = Console(file=io.StringIO(), width=80)
        detail.drawing(index, id, console=shown)
        told = overview(index).details[0]
    assert "●  f = self.f(x)" in text_of(shown).splitlines()
    assert told.source.startswith("# cannot be printed")
    assert told.before is not None


def test_a_slow_run_tells_its_first_script_and_when_only_explanations_are_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunProgress("minify run a.db", "minify repro a.db") as progress:
        for event in (events.ScriptVerified(2, 3, 3), events.FirstScript(3, 2), events.ScriptVerified(3, 3, 3)):
            progress(event)
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["minify repro a.db 3"] * 2


def test_a_verbose_log_has_each_query_and_step_and_a_quiet_one_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[events.Event] = [
        events.QueryAnswered(1, 9, 9, 1, "slices"),
        events.StepAccepted(1, 1, "slices", 1, 2, 1),
        events.QueryAnswered(1, 1, 9, 2, "arguments"),
        events.FirstScript(1, 1),
    ]
    for verbose in (True, False):
        with RunProgress(verbose=verbose, quiet=not verbose) as progress:
            for event in told:
                progress(event)
    said, _, none = capsys.readouterr().err.partition("minify repro 1\n")
    lines = [line.removeprefix(": ") for line in said.splitlines()]
    assert lines[:3] == [
        "9/9 nodes  1 query  0 s  removing what is not needed (slices)",
        "step 1, slices: 1 node and 2 inputs are left",
        "1/9 nodes  2 queries  0 s  trying simpler operators (arguments)",
    ]
    assert none == ""


def test_a_shell_completes_verbs_and_options(desk: Desk) -> None:
    assert "_MINIFY_COMPLETE=bash_source minify" in desk.invoke("--help").stdout
    for words, number, found in (
        ("minify re", 1, {"repro", "report", "retest"}),
        ("minify run --verb", 2, {"--verbose"}),
    ):
        asked = {"_MINIFY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        made = CliRunner(env=asked).invoke(main, prog_name="minify").stdout
        assert {line.rpartition(",")[2] for line in made.splitlines()} == found
    source = CliRunner(env={"_MINIFY_COMPLETE": "zsh_source"}).invoke(main, prog_name="minify").stdout
    assert source.startswith("#compdef minify")


@pytest.mark.parametrize("verb", ["", *main.commands])
def test_help_fits_into_80_columns(verb: str) -> None:
    made = CliRunner(env={"COLUMNS": "80"}).invoke(main, [*verb.split(), "--help"], prog_name="minify")
    assert made.stdout.startswith(f"Usage: {'minify ' + verb}".rstrip())
    assert [line for line in made.stdout.splitlines() if len(line) > 80] == []


def test_a_log_says_now_and_then_that_the_work_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fxminify.minifier.commands.terminal.progress.SILENCE", 0.02)
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        id = indexes.add(index, indexes.chain(["sin"]), indexes.failing("no sin"))
        capture = index.captures.get(id)
    said = ""
    with RunProgress() as progress:
        progress(events.CaptureStarted(capture))
        while not re.search(r"^1 \w+ compile error: \d+ s, still starting workers$", said, re.MULTILINE):
            said += capsys.readouterr().err
        progress(events.ReplayStarted(id, 3))
        progress(events.ReplayRan(id, 2))
        while said.count("still at work: the captured graph ran 2 times") < 2:
            said += capsys.readouterr().err
        progress(events.QueryAnswered(id, 3, 87, 12, "slices"))
        while "still at work: 3/87 nodes  12 queries  removing what is not needed" not in said:
            said += capsys.readouterr().err
        progress(events.CaptureFinished(capture))


def test_a_listing_goes_on_where_the_one_before_ended(desk: Desk) -> None:
    with Index.open(str(desk.db), create=True) as index:
        for name in ("sin", "cos", "exp"):
            indexes.add(index, indexes.chain([name]), indexes.failing(f"no {name}"))
            indexes.add(index, indexes.chain([name, "relu"]), indexes.failing(f"no {name}"))
    rows = desk.invoke("list", "repro.db", "--limit", 2).stdout.splitlines()
    assert [line.split()[0] for line in rows[1:5:2]] == ["1-2", "3-4"]
    assert rows[-1] == "These are not all. The next: minify list repro.db --limit 2 --after 2"
    rows = desk.invoke(*rows[-1].partition("minify ")[2].split()).stdout.splitlines()
    assert (len(rows), rows[1].split()[0]) == (3, "5-6")
    each = desk.invoke("list", "repro.db", "--each", "--limit", 5).stdout.splitlines()
    assert each[-1] == "These are not all. The next: minify list repro.db --each --limit 5 --after 5"
    rows = desk.invoke(*each[-1].partition("minify ")[2].split()).stdout.splitlines()
    assert (len(rows), rows[1].split()[0]) == (3, "6")
    found = json.loads(desk.invoke("list", "repro.db", "--json", "--after", 4).stdout)
    assert [(row["id"], row["bug"]) for row in found] == [(5, 3), (6, 3)]
