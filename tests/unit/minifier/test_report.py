"""The report of a capture: one value, a schema that it fits, and nothing that was not measured."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import indexes
import jsonschema
import planted
import pytest
from desks import Desk
from indexes import add, chain, minify
from reports import SCHEMA, fitting

from fxminify.minifier.agents.excerpts import detailed
from fxminify.minifier.oracle import first_node
from fxminify.minifier.oracle.ablation import ARTIFACT as ABLATION
from fxminify.minifier.oracle.ablation import OWN, PASSES, SAME, Ablation, AblationRow
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting import cause, explanation, record
from fxminify.minifier.reporting.cause import Cause, SwitchRow, WayAround
from fxminify.minifier.reporting.explanation import Explanation
from fxminify.minifier.reporting.export import ExportRequest, prepared
from fxminify.minifier.reporting.features import Aspect, Feature, ProbeAnswer
from fxminify.minifier.reporting.gathering import gather
from fxminify.minifier.reporting.overview import overview
from fxminify.minifier.reporting.report import LEFT_OUT, CaptureReport, published, values
from fxminify.minifier.reporting.report import SCHEMA as VERSION
from fxminify.repro_templates.report.figures import Values
from fxminify.repro_templates.report.html import render
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index

CASE = chain(["sin"], backend="eager")
ROW = {"item": 0, "where": "output 0", "elements": 1, "of": 2, "error": "0.25", "at": [1], "actual": "0.5",
       "expected": "0.25", "dtype": "float32", "expected_dtype": "float32", "shape": [2], "expected_shape": [2],
       "values": [{"at": [0], "actual": "1.0", "expected": "1.0"}, {"at": [1], "actual": "0.5", "expected": "0.25"}],
       }  # fmt: skip
WRONG = Failure(
    FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 0.25 in 1 of 2 elements: 0.5 instead of 0.25",
    detail={"class": "value", "where": "output 0", "error": "0.25", "eager_error": "1e-09", "elements": 1, "of": 2,
            "dtype": "float32", "measured": [ROW], "said": "Tensor-likes are not close!"},
)  # fmt: skip


def known(db: Path, failure: Failure = WRONG) -> Path:
    """An index of a divergence about which everything is known."""
    with Index.open(str(db), create=True) as index:
        id = add(index, chain(["relu", "sin", "cos"], backend="eager"), failure)
        minify(index, id, CASE, script='"""It fails."""\nimport torch\n\ntorch.compile(torch.sin)(x)\n')
        capture, reduction = index.captures.get(id), index.reductions.last(id)
        assert reduction is not None
        record.keep(index, id, record.make_header(capture, CASE, failure, queries=7, timeout=60, runs="3 of 3"))
        size = Feature(Aspect.SIZE, "x.shape[0]", "2", (ProbeAnswer("1", Outcome.PASS),))
        explanation.keep(index, id, Explanation((size,), asked=1, reduction=reduction.id))
        rows = (SwitchRow(("fusion",), ("a.b = False",), cause.CURES),)
        found = Cause(cause.key_of(CASE, CASE.torch), rows, ways=(WayAround(("a.b = False",), 2, cause.HELPS),))
        index.artifacts.save(id, cause.ARTIFACT, found.to_json())
        layers = (AblationRow("aot_eager", "AOTAutograd", PASSES), AblationRow("eager", OWN, SAME))
        ablation = Ablation(layers, "the backend eager", CASE.torch, reduction.id)
        index.artifacts.save(id, ABLATION, ablation.to_json())
        first_node.keep(index, id, {"node": "sin", "position": 2, "of": 3, "error": 0.25, "eager_error": 1e-9})
    return db


def report(db: Path, id: int = 1) -> CaptureReport:
    with Index.open(str(db), readonly=True) as index:
        return gather(index, id)


def document(db: Path, id: int = 1) -> dict[str, Any]:
    return fitting(json.loads(json.dumps(report(db, id).to_json())))


def test_the_schema_is_one_and_has_every_field_described() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert VERSION == 1
    root = SCHEMA["$defs"]["CaptureReport"]
    assert root["required"] == [*root["properties"]] == [field.name for field in fields(CaptureReport)]
    missing = [
        f"{name}.{field}"
        for name, one in SCHEMA["$defs"].items()
        for field, about in one["properties"].items()
        if not about.get("description") or field not in one["required"]
    ]
    assert missing == []


def test_a_field_of_another_type_does_not_fit(tmp_path: Path) -> None:
    found = document(known(tmp_path / "repro.db"))
    changes: tuple[dict[str, Any], ...] = ({"schema": 2}, {"id": "1"}, {"failure": {}}, {"more": 1})
    for wrong in changes:
        with pytest.raises(jsonschema.ValidationError):
            fitting(found | wrong)


def test_actual_and_expected_values_are_there_with_the_layer(tmp_path: Path) -> None:
    found = document(known(tmp_path / "repro.db"))
    assert found["divergence"] == {
        "kind": "value", "where": "output 0", "assertion": "Tensor-likes are not close!",
        "results": [{
            "where": "output 0", "dtype": "float32", "expected_dtype": "float32", "shape": [2], "expected_shape": [2],
            "elements": 2, "differing": 1, "largest_difference": "0.25", "at": [1], "actual": "0.5",
            "expected": "0.25", "values": ROW["values"],
        }],
        "float64": [{
            "where": "output 0", "kind": "value", "dtype": "float32", "error": "0.25", "eager_error": "1e-09",
            "differing": 1, "elements": 2,
        }],
        "first_node": {"node": "sin", "position": 2, "of": 3, "error": "0.25", "eager_error": "1e-09"},
    }  # fmt: skip
    assert found["layer"] == {
        "fails_in": "fusion; the backend eager (aot_eager passes)", "part": "fusion", "layer": "the backend eager",
        "passing": ["aot_eager"],
    }  # fmt: skip
    assert found["ways_around"] == [{"lines": ["a.b = False"], "runs": 2, "captured": "passes", "helps": True}]
    assert (found["minimal"]["nodes"], found["captured"]["nodes"], found["story"]["queries"]) == (1, 3, 7)
    assert [(step["pass_name"], step["nodes"]) for step in found["story"]["steps"]] == [("slices", 2), ("nodes", 1)]
    assert found["verification"]["torch"] == "2.13.0"
    assert [*found["absent"]] == ["captured.source", "rest", "versions", "known"]


def test_every_reader_has_the_values_and_the_layer(tmp_path: Path) -> None:
    db = known(tmp_path / "repro.db")
    with Index.open(str(db), readonly=True) as index:
        issue = prepared(index, 1, ExportRequest("issue")).draw().text
        comment = prepared(index, 1, ExportRequest("comment")).draw().text
        page = render(overview(index))
        short = detailed(gather(index, 1).to_json())
    assert "Fails in: fusion." in issue
    assert "Works around: a.b = False (" in issue
    assert "| output 0 | float32[2] | 1 of 2 | 0.25 | [1] | 0.5 | 0.25 |" in issue.replace("\\", "")
    assert "- **Compiled and eager:** output 0: [1, 0.5] and [1, 0.25]\n" in comment.replace("\\", "")
    assert "- **Fails in:** fusion; the backend eager (aot_eager passes)\n" in comment.replace("\\", "")
    assert "<dt>Fails in</dt><dd>fusion; the backend eager (aot_eager passes)</dd>" in page
    assert "<dt>Works around</dt><dd>a.b = False</dd>" in page
    assert "<td>output 0</td><td>float32[2]</td><td>1 of 2</td>" in page
    assert (short["fails_in"], short["ways_around"]) == (
        "fusion; the backend eager (aot_eager passes)",
        ["a.b = False"],
    )
    assert short["results"][0]["values"][1] == {"at": (1,), "actual": "0.5", "expected": "0.25"}


def test_a_layer_without_a_cause_begins_the_issue(tmp_path: Path) -> None:
    db = known(tmp_path / "repro.db")
    with Index.open(str(db)) as index:
        index.artifacts.save(1, cause.ARTIFACT, Cause("another case").to_json())
        issue = prepared(index, 1, ExportRequest("issue")).draw().text
    assert "**Fails in:** the backend eager (aot\\_eager passes)\n" in issue.partition("```python")[0].replace(
        "aot_eager", "aot\\_eager"
    )
    assert document(db)["cause"] is None


def test_the_table_has_rows_of_results_whose_values_differ(tmp_path: Path) -> None:
    form = {"item": 1, "where": "output 1", "of": 2, "dtype": "int64", "expected_dtype": "int32", "shape": [2],
            "expected_shape": [2]}  # fmt: skip
    one = {**ROW, "where": "output 2", "of": 1, "at": [], "dtype": "float16", "shape": [], "expected_shape": [],
           "values": [{"at": [], "actual": "0.5", "expected": "0.25"}]}  # fmt: skip
    db = known(tmp_path / "repro.db", replace(WRONG, detail={**WRONG.detail, "measured": [ROW, form, one]}))
    assert values(report(db)) == (
        Values("output 0", "1 of 2", "0.25", "[1]", "0.5", "0.25", "[1, 0.5]", "[1, 0.25]", "float32[2]"),
        Values("output 2", "1 of 1", "0.25", "", "0.5", "0.25", form="float16[] instead of float32[]"),
    )
    other = document(db)["divergence"]["results"][1]
    assert (other["dtype"], other["expected_dtype"], other["differing"], other["values"]) == (
        "int64", "int32", None, None,
    )  # fmt: skip


def test_what_an_older_index_does_not_have_is_null(tmp_path: Path) -> None:
    old = {name: ROW[name] for name in ("item", "where", "elements", "of", "error", "at", "actual", "expected")}
    db = known(tmp_path / "repro.db", replace(WRONG, detail={**WRONG.detail, "measured": [old, {"where": 7}]}))
    found = document(db)
    (result,) = found["divergence"]["results"]
    assert {name for name, value in result.items() if value is None} == {
        "dtype", "expected_dtype", "shape", "expected_shape", "values",
    }  # fmt: skip
    assert found["problems"] == ["a measured result cannot be read: Expected `str`, got `int` - at `$.where`"]
    without = {name: value for name, value in WRONG.detail.items() if name != "measured"}
    never = document(known(tmp_path / "never.db", replace(WRONG, detail=without)))
    assert never["divergence"]["results"] is None
    assert never["absent"]["divergence.results"] == "no run of a script measured them"


def test_what_was_measured_on_an_earlier_case_is_null(tmp_path: Path) -> None:
    db = known(tmp_path / "repro.db")
    with Index.open(str(db)) as index:
        minify(index, 1, chain(["cos"], backend="eager"), script="import torch\n")
    found = document(db)
    assert [found[name] for name in ("layer", "matters", "ablation", "cause", "ways_around")] == [None] * 5
    assert {"layer", "matters", "ablation", "cause", "ways_around"} <= set(found["absent"])


def test_every_capture_has_a_report_that_fits(desk: Desk) -> None:
    indexes.small(desk.db)
    planted.planted(desk.path / "planted.db")
    for db, ids in (("repro.db", range(1, 5)), ("planted.db", (1, 2, 3))):
        for id in ids:
            found = fitting(json.loads(desk.invoke("show", db, id, "--json").stdout))
            assert (found["id"], found["schema"]) == (id, 1)
    states = {id: document(desk.db, id) for id in range(1, 5)}
    assert [states[id]["state"] for id in states] == ["verified", "pending", "pending", "unsupported"]
    assert states[2]["minimal"] is None
    assert states[2]["captured"]["source"].startswith("def forward(x):")
    assert states[4]["environment"] is None
    assert (states[4]["captured"]["source"], states[4]["captured"]["nodes"]) == ("f(x)", None)


def test_a_report_that_is_handed_on_has_no_provenance(tmp_path: Path) -> None:
    db = known(tmp_path / "repro.db", replace(WRONG, diagnostics="a warning"))
    whole = report(db)
    assert whole.failure is not None
    assert (whole.failure.printed, whole.provenance["program"]) == ("a warning", "train.py")
    handed = published(whole)
    assert handed.failure is not None
    assert (handed.failure.printed, handed.provenance) == ("", {})
    assert handed.absent == {
        **whole.absent, "provenance": LEFT_OUT, "failure.printed": LEFT_OUT, "known": LEFT_OUT,
    }  # fmt: skip
    fitting(json.loads(json.dumps(handed.to_json())))
