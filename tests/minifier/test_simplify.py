"""Each simplification proposes the plainest form first and keeps only what the oracle accepts."""

from dataclasses import replace

import numpy as np
from made import Held

from fxminify.minifier.passes import listing
from fxminify.minifier.recording.storages import settle
from fxminify.minifier.reduction.simplify import simplify
from fxminify.minifier.simplifications import SIMPLIFICATIONS, name_of
from fxminify.store.case import Case, Graph, Node, TensorSpec

DATA = np.linspace(-1, 2, 40, dtype=np.float32).tobytes()
CASE = Case(
    graph=Graph(
        (
            Node("x", "placeholder", "L_x_"),
            Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
            Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
        )
    ),
    inputs=({"tensor": 0},),
    tensors=(TensorSpec("float32", (5, 8), (1, 5), storage="s", requires_grad=True, parameter=True),),
    context={"grad": False, "threads": 1},
    backend={"name": "inductor", "mode": "default", "options": {"dict": [["a", 1], ["b", 2]]}},
    backward=True,
)
BLOBS = Held(s=DATA)


def test_everything_goes_when_nothing_matters() -> None:
    plain = simplify(CASE, BLOBS, lambda case, name: True)
    assert plain.context == {}
    assert plain.backend == {"name": "inductor"}
    assert not plain.backward
    assert plain.tensors == (TensorSpec("float32", (1, 1), (1, 1), init={"fn": "full", "value": 0.0}),)


def test_nothing_changes_when_everything_matters() -> None:
    assert simplify(CASE, BLOBS, lambda case, name: False) == CASE


def test_what_matters_stays() -> None:
    def same(case: Case, name: str) -> bool:
        return case.context.get("grad") is False and ["b", 2] in case.backend.get("options", {}).get("dict", [])

    plain = simplify(CASE, BLOBS, same)
    assert plain.context == {"grad": False}
    assert plain.backend == {"name": "inductor", "options": {"dict": [["b", 2]]}}


def test_a_value_that_matters_is_kept_by_the_first_recipe_that_has_it() -> None:
    def same(case: Case, name: str) -> bool:
        spec = case.tensors[0]
        return spec.storage == "s" or (spec.init or {}).get("value", 0.0) == 2.0

    assert simplify(CASE, BLOBS, same).tensors[0].init == {"fn": "full", "value": 2.0}


def test_every_simplification_is_documented_and_listed() -> None:
    rows = [row for row in listing() if row["stage"] == "simplify"]
    assert [row["pass"] for row in rows] == [
        "everything",
        "all-but-sizes",
        "surroundings",
        *map(name_of, SIMPLIFICATIONS),
    ]
    assert all(row["what"].endswith(".") for row in rows)


def test_settled_storages_are_named_by_their_content() -> None:
    twin = replace(CASE, tensors=(*CASE.tensors, replace(CASE.tensors[0], storage="relu@0")))
    case, blobs = settle(twin, {**BLOBS, "relu@0": DATA, "unused": b""})
    assert sorted(blobs.values()) == [DATA, DATA + bytes(64)]
    assert {t.storage for t in case.tensors} == set(blobs)
    assert settle(case, blobs) == (case, blobs)
