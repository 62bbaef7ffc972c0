"""At which layer a failure enters, and what a file may claim about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fxminify.minifier.oracle.ablation import CANNOT, LAYERS, OTHER, PASSES, SAME, Ablation, AblationRow, _enters
from fxminify.store.errors import StoreError


@pytest.mark.parametrize(
    ("results", "enters"),
    [
        ([PASSES, PASSES, PASSES, SAME], "the backend mine"),
        ([PASSES, SAME, SAME, SAME], "AOTAutograd"),
        ([OTHER, SAME, SAME, SAME], "Dynamo"),
        ([PASSES, CANNOT, SAME, SAME], "decompositions and partitioner"),
        ([PASSES, PASSES, PASSES, PASSES], "nowhere: it does not show here now"),
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
