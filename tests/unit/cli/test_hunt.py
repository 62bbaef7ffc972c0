"""`minify hunt` on the terminal and as a page; what it refuses before anything runs."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from desks import Desk
from rich.console import Console

from fxminify.minifier.commands.terminal import hunts
from fxminify.minifier.hunting import page
from fxminify.minifier.hunting.cells import HuntComparison, HuntResult, bugs, cells
from fxminify.minifier.hunting.programs import CallOutcome, CallResult, Finding, Program, ProgramResult

ADD, SIN, EVIL = (
    [Program("ops", name, dtype, gradient) for dtype in ("float32", "float16") for gradient in (False, True)]
    for name in ("add", "sin", "<script>")
)
RAISES = Finding("compile_error", "compile", "RuntimeError: no kernel for <b>", "v3:aaaaaaaaaaaa", 7)


def found() -> HuntResult:
    """The result of a hunt of three operators: one is ok, one fails in float16, one was tried in part."""
    results = {one: ProgramResult(one, (CallResult(0, CallOutcome.OK, left=("add: why",)),)) for one in ADD}
    for one in SIN:
        failing = CallResult(0, CallOutcome.FAILS, RAISES.headline, (RAISES,))
        call = failing if one.dtype == "float16" else CallResult(0, CallOutcome.OK)
        results[one] = ProgramResult(one, (call,))
    results[EVIL[0]] = ProgramResult(EVIL[0], (CallResult(0, CallOutcome.UNCHECKED, "no reason"),))
    programs = [*ADD, *SIN, *EVIL]
    new = tuple(one.text() for one in SIN if one.dtype == "float16")
    return HuntResult(
        "acme", cells(programs, results), bugs(results.values()), {"torch": "2.13"}, new, ("ops cos *",), "the budget"
    )


def test_the_result_on_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    hunts.result(found(), "repro.db", console=console)
    assert isinstance(console.file, io.StringIO)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "fails  forward            gradient",
        "sin    ok, fails float16  ok, fails float16",
        "",
        "cannot be judged  reason",
        "<script>          no reason",
        "",
        "capture  bug                                             operators  dtypes",
        "      7  compile error: RuntimeError: no kernel for <b>  sin        float16",
        "",
        "          ok  fails  eager refuses  cannot be judged  not tried",
        "forward    3      1              0                 1          1",
        "gradient   3      1              0                 0          2",
        "all        6      2              0                 1          3",
        "the budget: 3 programs not tried; the same command goes on.",
        "expected, and did not fail: ops cos *",
        "2 programs with a failure that is not expected.",
        "Minify the failures: minify run repro.db",
    ]


def test_the_comparison_with_an_earlier_hunt_on_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    earlier = {"backend": "acme", "torch": "2.12"}
    compared = HuntComparison(earlier, 4, ("ops sin float16 forward static",), (), ("ops add float32 forward static",))
    console = Console(file=io.StringIO(), width=100)
    hunts.result(replace(found(), comparison=compared), "repro.db", console=console)
    assert isinstance(console.file, io.StringIO)
    assert (
        "compared with backend acme, torch 2.12: 4 programs of both\n"
        "  broken since: ops sin float16 forward static\n"
        "  fail otherwise: ops add float32 forward static\n"
    ) in console.file.getvalue()
    text = page.render(replace(found(), comparison=compared), str(tmp_path / "repro.db"))
    assert "4 programs of both. broken: ops sin float16 forward static." in text


def test_the_page_has_a_cell_for_each_program_and_escapes_names(tmp_path: Path) -> None:
    text = page.render(found(), str(tmp_path / "repro.db"))
    assert re.findall(r'class="cell (\w+)" href="#bug-1"', text) == ["fails", "fails"]
    assert len(re.findall(r'<span class="cell ok" role="img"', text)) == 6
    assert 'title="ops add float32 forward static: ok: left to eager: add: why"' in text
    assert text.count("<script>") == 1, "its own"
    assert "RuntimeError: no kernel for &lt;b&gt;" in text
    assert "Make its script: <code>minify run" in text
    assert 'id="bug-1"' in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "float31"], "'float31' is not one of float32, float64,"),
        (["--only", "("], "'(' is no regular expression"),
        (["--suite", "nothing"], "there is no suite 'nothing'; installed are "),
        (["--budget", "0"], "0.0 is not in the range x>0"),
        (["--expect", "missing.toml"], "cannot read missing.toml: No such file or directory"),
        (["--against", "missing"], "cannot read missing: No such file or directory"),
        (
            ["--against", "taken.html"],
            "taken.html is not the file of a hunt: minify hunt BACKEND --log FILE",
        ),
        (["--junit", "taken.html"], "taken.html exists; add --force to overwrite it."),
        (["--report", "taken.html"], "taken.html exists; add --force to overwrite it."),
        (["--log", "no/such/folder/log"], "cannot write the results of the hunt to no/such/folder/log"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(desk: Desk, words: list[str], message: str) -> None:
    (desk.path / "taken.html").touch()
    refused = desk.invoke("hunt", "inductor", *words)
    assert refused.exit_code == 2
    assert message in re.sub(r"\s+", " ", refused.stderr)
    assert not list(desk.path.glob("*.jsonl"))
