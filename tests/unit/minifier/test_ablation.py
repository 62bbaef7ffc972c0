"""At which layer a failure enters, and what a file may claim about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import indexes
import pytest

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.oracle import ablation
from fxminify.minifier.oracle.ablation import (
    CANNOT,
    LAYERS,
    OTHER,
    PASSES,
    REFUSED,
    SAME,
    Ablation,
    AblationRow,
    _enters,
)
from fxminify.store.errors import StoreError
from fxminify.store.index import Index


@pytest.mark.parametrize(
    ("results", "enters"),
    [
        ([PASSES, PASSES, PASSES, SAME], "the backend mine"),
        ([PASSES, SAME, SAME, SAME], "AOTAutograd"),
        ([OTHER, SAME, SAME, SAME], "Dynamo"),
        ([PASSES, CANNOT, SAME, SAME], "decompositions and partitioner"),
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
