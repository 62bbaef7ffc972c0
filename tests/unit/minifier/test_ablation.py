"""At which layer a failure enters, and what a file may claim about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import indexes
import pytest
from desks import Desk

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.oracle import ablation
from fxminify.minifier.oracle.ablation import (
    CANNOT,
    LAYERS,
    OTHER,
    OWN,
    PASSES,
    REFUSED,
    SAME,
    Ablation,
    AblationRow,
    _enters,
)
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.store.errors import StoreError
from fxminify.store.index import Index


@pytest.mark.parametrize(
    ("results", "enters"),
    [
        ([PASSES, PASSES, PASSES, SAME], "the backend mine"),
        ([PASSES, SAME, SAME, SAME], "AOTAutograd"),
        ([PASSES, OTHER, SAME, SAME], "no layer for certain: aot_eager fails in another way"),
        ([PASSES, CANNOT, SAME, SAME], "no layer for certain: aot_eager cannot run"),
        ([PASSES, PASSES, SAME, OTHER], "decompositions and partitioner"),
        ([PASSES, PASSES, PASSES, PASSES], "nowhere: it does not show here now"),
        ([PASSES, REFUSED, REFUSED, REFUSED], "nowhere: eager mode fails, too, without a backend"),
    ],
)
def test_the_first_layer_that_fails_is_named(results: list[str], enters: str) -> None:
    ladder = [*LAYERS, ("mine", "the backend")]
    rows = [AblationRow(name, layer, result) for (name, layer), result in zip(ladder, results, strict=True)]
    assert _enters([*rows, AblationRow("another", "", SAME)]) == enters


def test_an_ablation_is_read_back_and_nothing_else_is() -> None:
    found = Ablation((AblationRow("eager", "Dynamo", PASSES, "", 0.25),), "Dynamo")
    assert Ablation.from_json(json.loads(json.dumps(found.to_json()))) == found
    wrong: tuple[Any, ...] = ("", [], {"rows": [{"backend": 1, "more": 2}], "enters": ""}, {"rows": 3, "enters": ""})
    for doc in wrong:
        with pytest.raises(StoreError, match="cannot be read"):
            Ablation.from_json(doc)


@pytest.mark.parametrize(
    ("fails", "options", "ran"),
    [
        ("aot_eager", {}, ["eager", "aot_eager"]),
        ("planted", {}, ["eager", "aot_eager", "aot_eager_decomp_partition", "planted"]),
        ("aot_eager", {"backends": ["mine"]}, ["eager", "aot_eager", "mine"]),
        ("eager", {"backends": ["planted"]}, ["eager", "planted"]),
        ("eager", {"everything": True}, ["eager", "aot_eager", "aot_eager_decomp_partition", "planted", "other"]),
        ("eager", {"everything": True, "backends": ["mine"]},
         ["eager", "aot_eager", "aot_eager_decomp_partition", "planted", "mine"]),
    ],
)  # fmt: skip
def test_it_stops_at_the_layer_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, options: dict[str, Any], ran: list[str]
) -> None:
    db = str(tmp_path / "repro.db")
    with Index.open(db, create=True) as index:
        id = indexes.add(index, indexes.chain(["sin"]), indexes.failing("no sin"))

    def row(spec: BackendSpec, layer: str, *rest: object) -> AblationRow:
        return AblationRow(spec.name, layer, SAME if spec.name == fails else PASSES)

    monkeypatch.setattr(ablation, "_row", row)
    monkeypatch.setattr(ablation, "named", lambda name, own: BackendSpec(name, "registered", name))
    monkeypatch.setattr(ablation, "others", lambda own: ["other"])
    found = ablation.ablate(db, id, trust=True, **options)
    assert [row.backend for row in found.rows] == ran
    assert found.enters == {"planted": "the backend planted", "eager": "Dynamo"}.get(fails, "AOTAutograd")


@pytest.mark.parametrize(
    ("outcome", "detail", "result"),
    [
        (Outcome.SAME, "", SAME),
        (Outcome.PASS, "", PASSES),
        (Outcome.OTHER, "RuntimeError: another", OTHER),
        (Outcome.CRASH, "SIGSEGV", OTHER),
        (Outcome.INVALID, "eager: RuntimeError: no", REFUSED),
        (Outcome.INVALID, "a value is no number", CANNOT),
        (Outcome.TIMEOUT, "", CANNOT),
        (Outcome.INFRA, "the worker did not start", CANNOT),
    ],
)
def test_what_a_worker_answers_is_the_result_of_a_layer(outcome: Outcome, detail: str, result: str) -> None:
    assert ablation.result_of(Verdict(outcome, detail=detail)) == result


@pytest.mark.parametrize(
    ("own", "before"),
    [("eager", []), ("aot_eager", ["eager"]), ("inductor", ["eager", "aot_eager", "aot_eager_decomp_partition"])],
)
def test_only_the_layers_before_the_backend_are_asked(own: str, before: list[str]) -> None:
    assert [name for name, _ in ablation.layers_before(own)] == before


def test_what_was_found_of_an_earlier_reduction_or_where_it_does_not_show_is_not_stated(desk: Desk) -> None:
    with Index.open(str(desk.db), create=True) as index:
        id = indexes.add(index, indexes.chain(["sin", "cos"]), indexes.failing("no sin"))
        indexes.minify(index, id, indexes.chain(["sin"]))
        first = index.reductions.last(id)
        assert first is not None
        rows = [AblationRow("eager", "Dynamo", PASSES), AblationRow("planted", OWN, SAME)]

        def shown() -> tuple[bool, bool]:
            text = " ".join(desk.invoke("show", "repro.db", id).stdout.split())
            issue = desk.invoke("repro", "repro.db", id, "--format", "issue").stdout
            return "layer the backend planted (eager passes)" in text, "the backend planted" in issue

        index.artifacts.save(id, ablation.ARTIFACT, Ablation.of(rows, first.id).to_json())
        assert shown()[0]
        gone = Ablation.of([AblationRow("eager", "Dynamo", PASSES), AblationRow("planted", OWN, PASSES)], first.id)
        assert (gone.shows, gone.enters) == (False, "nowhere: it does not show here now")
        index.artifacts.save(id, ablation.ARTIFACT, gone.to_json())
        assert shown() == (False, False)
        index.artifacts.save(id, ablation.ARTIFACT, Ablation.of(rows, first.id).to_json())
        indexes.minify(index, id, indexes.chain(["cos"]))
        assert ablation.stored(index, id) is None


def test_a_wrong_fake_kernel_is_to_blame_wherever_the_failure_shows() -> None:
    wrong = "mine.pool, which returns float32[8] where the operator returns float32[9]"
    own = AblationRow("planted", OWN, SAME)
    assert Ablation.of([AblationRow("eager", "Dynamo", PASSES), own], 1, wrong).enters == f"the fake kernel of {wrong}"
    assert Ablation.of([AblationRow("eager", "Dynamo", PASSES), own], 1).enters == "the backend planted"
    refused = [AblationRow("eager", "Dynamo", ablation.REFUSED), own]
    assert Ablation.of(refused, 1, wrong).enters == "nowhere: eager mode fails, too, without a backend"
    gone = [AblationRow("eager", "Dynamo", PASSES), AblationRow("planted", OWN, PASSES)]
    assert Ablation.of(gone, 1, wrong).enters == "nowhere: it does not show here now"
