"""A comment: at most 25 lines, and only what was measured on the script that it shows."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from indexes import add, chain, failing, minify

from fxminify.minifier.oracle.ablation import ARTIFACT as ABLATION
from fxminify.minifier.oracle.ablation import OWN, PASSES, SAME, Ablation, AblationRow
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting import cause, explanation
from fxminify.minifier.reporting.cause import Cause, SwitchRow, WayAround
from fxminify.minifier.reporting.explanation import Explanation
from fxminify.minifier.reporting.export import ExportRequest, prepared
from fxminify.minifier.reporting.features import Aspect, Feature, ProbeAnswer
from fxminify.minifier.reporting.record import keep, make_header
from fxminify.minifier.reporting.retests import by_version, first_bad, newest
from fxminify.repro_templates.anonymous import anonymous
from fxminify.repro_templates.comment import MOST_LINES, Findings, shortened
from fxminify.repro_templates.context import Header
from fxminify.repro_templates.render import render
from fxminify.store.document.case import Case
from fxminify.store.index import Index, Retest, RetestResult

CASE = chain(["sin"], backend="eager")
FAILURE = failing("no kernel for sin")
FOUND = Findings(("size 2 or more in x.shape[0] (1 passes)",), (), ("dtype of x (float64, float16)",))


def comment(case: Case = CASE, findings: Findings = FOUND, **more: object) -> str:
    return render(case, {}, format="comment", header=header(case, findings, **more)).text


def header(case: Case, findings: Findings, **more: object) -> Header:
    made = Header(FAILURE, torch="2.13.0", python="3.11", platform="Linux x86_64", runs="3 of 3", findings=findings)
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_whole_comment() -> None:
    assert (
        comment()
        == """\
Reproduced on torch 2.13.0, Python 3.11, Linux x86_64 in 3 of 3 fresh runs: \
`[eager] torch.sin: compile error: RuntimeError: no kernel for sin`
```python
import torch


def forward(x):
    return torch.sin(x)


torch.manual_seed(0)
x = torch.randn(2, 8)

torch.compile(forward, backend="eager")(x)
```
Run it: it fails while the bug is there; exit code 0 means the bug is gone.

- **Necessary:** size 2 or more in x.shape[0] (1 passes)
- **Does not matter (as tested):** dtype of x (float64, float16)
"""
    )


def test_what_was_not_measured_is_not_there() -> None:
    made = comment(findings=Findings(), runs="")
    assert made.startswith("Captured with torch 2.13.0, Python 3.11, Linux x86\\_64: `[eager]")
    assert "**" not in made
    assert "Reproduced" not in comment(runs="0 of 3")


@pytest.mark.parametrize("nodes", [1, 7, 8, 40])
def test_it_has_at_most_25_lines_and_else_the_script_beside_it(nodes: int) -> None:
    whole = Findings(("one",), ("one",), ("one",), ("one",), "the backend", ("a setting",), "torch 2.13.0", "passes")
    case = chain(["sin"] * nodes, backend="eager")
    made = render(case, {}, format="comment", header=header(case, whole))
    assert len(made.text.splitlines()) <= MOST_LINES
    assert made.text.count("**") == 2 * 8
    if made.files:
        assert "lines: `repro.py`, beside this text." in made.text
        assert made.files["repro.py"].decode() == render(case, {}, header=header(case, whole)).text
    assert bool(made.files) == (nodes > 7)


def test_a_blank_line_in_a_string_stays() -> None:
    text = 'x = """\n\n\n"""\n' + "y = 1\n\n" * 5
    assert shortened(text, Findings()) == text.strip("\n")
    assert shortened(text + "z = 1\n" * 7, Findings()) == ""
    assert shortened(text.replace("\n\n\n", "\n") + "z = 1\n" * 9, Findings()).count("\n") == 15


def test_neutral_names_are_those_of_the_script() -> None:
    case = chain(["sin"], backend="eager")
    nodes = (replace(case.graph.nodes[0], name="salary", target="L_salary_"), *case.graph.nodes[1:])
    nodes = (nodes[0], replace(nodes[1], args=({"ref": "salary"},)), nodes[2])
    case = replace(case, graph=replace(case.graph, nodes=nodes))
    found = Findings(("size 2 in salary.shape[0]", "a row of salary"), free=("dtype of salary (float64)",))
    told = header(case, found, matters=("Needs size 2 in salary.shape[0].",))
    renamed, clean = anonymous(case, told)
    made = render(renamed, {}, format="comment", header=clean).text
    assert "salary" in comment(case, found)
    assert "salary" not in made
    assert "size 2 in x.shape[0]; a row of x" in made
    assert clean.matters == ("Needs size 2 in x.shape[0].",)


def measured_index(tmp_path: Path) -> str:
    """A capture whose script was explained, ablated and retested, and whose cause was searched for."""
    db = str(tmp_path / "repro.db")
    with Index.open(db, create=True) as index:
        id = add(index, chain(["relu", "sin", "cos"], backend="eager"), FAILURE)
        minify(index, id, CASE, script='"""It fails."""\nimport torch\n\ntorch.compile(torch.sin)(x)\n')
        measure(index, id)
    return db


def measure(index: Index, id: int) -> None:
    capture, reduction = index.captures.get(id), index.reductions.last(id)
    assert reduction is not None
    keep(index, id, make_header(capture, CASE, FAILURE, queries=7, timeout=60, runs="3 of 3"))
    size = Feature(Aspect.SIZE, "x.shape[0]", "2", (ProbeAnswer("1", Outcome.PASS), ProbeAnswer("3", Outcome.SAME)))
    explanation.keep(index, id, Explanation((size,), reduction=reduction.id))
    rows = (SwitchRow(("fusion",), ("a.b = False",), cause.CURES),)
    found = Cause(cause.key_of(CASE, CASE.torch), rows, ways=(WayAround(("a.b = False",), 2, cause.HELPS),))
    index.artifacts.save(id, cause.ARTIFACT, found.to_json())
    layers = (AblationRow("aot_eager", "AOTAutograd", PASSES), AblationRow("eager", OWN, SAME))
    index.artifacts.save(id, ABLATION, Ablation(layers, "the backend eager", CASE.torch, reduction.id).to_json())
    index.retests.add(id, "eager", RetestResult.FIXED, shown=0, runs=2, seconds=1.0, versions={"torch": "2.12.0"})


def bullets(db: str) -> list[str]:
    with Index.open(db, readonly=True) as index:
        made = prepared(index, 1, ExportRequest("comment")).draw()
    return [line for line in made.text.splitlines() if line.startswith("- ")]


def test_each_finding_of_an_index_is_there(tmp_path: Path) -> None:
    assert bullets(measured_index(tmp_path)) == [
        "- **Necessary:** size 2 or more in x.shape[0] (1 passes, 3 fails)",
        "- **Fails in:** fusion; the backend eager (aot_eager passes)",
        "- **Works around:** a.b = False",
        "- **First bad version:** torch 2.13.0 of the versions tried (torch 2.12.0 passes)",
    ]


def test_what_was_measured_on_an_earlier_script_is_not_there(tmp_path: Path) -> None:
    """The capture was minified again, to another case."""
    db, other = measured_index(tmp_path), chain(["cos"], backend="eager")
    time.sleep(1.1)  # times in an index are whole seconds
    with Index.open(db) as index:
        minify(index, 1, other, script="import torch\n")
    assert bullets(db) == []


def retest(number: int, result: RetestResult, **versions: str) -> Retest:
    return Retest(number, 1, "eager", result, "", "", 0, 2, 1.0, {"torch": "2.13.0", **versions}, "")


GOOD, BAD, OTHER = RetestResult.FIXED, RetestResult.FAILING, RetestResult.CHANGED


@pytest.mark.parametrize(
    ("rows", "first", "now"),
    [
        ([], "", ""),
        ([(GOOD, {"torch": "2.12.0"})], "torch 2.13.0 of the versions tried (torch 2.12.0 passes)", ""),
        ([(BAD, {"torch": "2.12.0"})], "", ""),
        ([(OTHER, {"torch": "2.12.0"})], "", ""),
        ([(GOOD, {"torch": "2.14.0"})], "", "passes with torch 2.14.0"),
        ([(OTHER, {"torch": "2.14.0"})], "", "shows another failure with torch 2.14.0"),
        ([(GOOD, {})], "", "passes with torch 2.13.0"),  # the same versions: a failure that comes and goes
        ([(GOOD, {}), (BAD, {})], "", ""),
        ([(GOOD, {"ort": "1.2"}), (BAD, {"ort": "1.3"})], "ort 1.3 of the versions tried (ort 1.2 passes)", ""),
        ([(BAD, {"ort": "1.10"}), (GOOD, {"ort": "1.9"})], "ort 1.10 of the versions tried (ort 1.9 passes)", ""),
        ([(GOOD, {"torch": "2.9.0"}), (BAD, {"torch": "2.10.0"})],
         "torch 2.10.0 of the versions tried (torch 2.9.0 passes)", ""),
        ([(GOOD, {"torch": "2.11.0"}), (RetestResult.CANNOT_RUN, {"torch": "2.12.0"})],
         "torch 2.13.0 of the versions tried (torch 2.11.0 passes)", ""),
    ],
)  # fmt: skip
def test_the_first_bad_version(rows: list[tuple[RetestResult, dict[str, str]]], first: str, now: str) -> None:
    retests = [retest(number, result, **versions) for number, (result, versions) in enumerate(rows, 1)]
    found = by_version(retest(0, BAD), retests)
    assert (first_bad(found), newest(found)) == (first, now)
