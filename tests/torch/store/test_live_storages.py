"""Storages of live tensors are read where they are, and hashed again only where they changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import fxminify
from fxminify.backends.capture import recorder
from fxminify.minifier.passes.values import plain_values
from fxminify.minifier.reducer.history import values
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.repro_templates.source.function import print_graph
from fxminify.repro_templates.source.inputs import print_inputs
from fxminify.store.document import storages
from fxminify.store.document.case import Case, Graph, Node, TensorSpec, to_json
from fxminify.store.document.decode import InvalidDocument, validate
from fxminify.store.index import Index
from fxminify.store.live.build import MAPPED, build
from fxminify.store.live.encode import encode
from fxminify.store.live.snapshot import Digests, Keep, Tensors, digest
from fxminify.store.live.synthesis import recipe


def kept(keep: Keep, *given: torch.Tensor, clip: bool = True) -> list[str]:
    """For each tensor ``kept``, or the generator that stands in for it."""
    tensors = Tensors(clip=clip, keep=keep)
    for t in given:
        tensors.add(t)
    specs, _ = tensors.finish()
    assert tensors.left_out == [i for i, spec in enumerate(specs) if spec.init is not None]
    return ["kept" if spec.init is None else spec.init["fn"] for spec in specs]


def test_live_storages_are_those_that_are_read() -> None:
    x = torch.arange(100.0)
    given = [x[10:20], x.view(10, 10).t(), torch.arange(100.0), torch.zeros(0), torch.ones(3, dtype=torch.bool)]
    copied, live = Tensors(), Tensors()
    for t in given:
        copied.add(t), live.add(t)
    specs, blobs = copied.finish()
    same, found = live.live(Digests())
    assert specs == same
    assert dict(found) == blobs
    assert {key: found.size(key) for key in found} == {key: len(data) for key, data in blobs.items()}
    (key,) = (key for key in found if key == digest(x.numpy().tobytes()))
    x[0] = 7
    assert found[key] == x.numpy().tobytes()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests that were computed."""
    found: list[str] = []
    compute = storages.digest

    def counted(parts: Iterator[Any]) -> str:
        found.append(compute(parts))
        return found[-1]

    monkeypatch.setattr(storages, "digest", counted)
    return found


def test_a_storage_that_has_not_changed_is_not_hashed_again(hashed: list[str]) -> None:
    digests, weight = Digests(), nn.Parameter(torch.rand(1 << 19))

    def key() -> str:
        tensors = Tensors()
        tensors.add(weight)
        (found,) = tensors.live(digests)[1]
        return found

    first = key()
    assert (key(), len(hashed)) == (first, 1)
    with torch.no_grad():
        weight.mul_(1.5)  # an optimizer of torch
    second = key()
    assert (second != first, len(hashed)) == (True, 2)
    weight.data.mul_(1.5)  # one that torch does not see
    assert (key() not in (first, second), len(hashed)) == (True, 3)


def test_inference_tensors_have_no_versions_and_are_hashed_each_time(hashed: list[str]) -> None:
    with torch.inference_mode():
        t = torch.rand(1 << 19)
    digests = Digests()
    for _ in range(2):
        tensors = Tensors()
        tensors.add(t)
        tensors.live(digests)
    assert len(hashed) == 2


# What is kept


def test_beyond_a_budget_the_largest_storages_are_left_out() -> None:
    small, middle, large = torch.randn(64), torch.randn(1000), torch.randn(2000)
    shared = torch.randn(3000)
    assert kept(Keep(all=12_300), small, middle, large) == ["kept", "kept", "kept"]
    assert kept(Keep(all=12_200), small, middle, large) == ["kept", "kept", "randn"]
    assert kept(Keep(all=300), small, middle, large) == ["kept", "randn", "randn"]
    assert kept(Keep(all=0), small, middle, large) == ["randn"] * 3
    assert kept(Keep(each=300, all=100_000), small, middle) == ["kept", "randn"]
    # A storage of several tensors goes last: tensors that are made one by one cannot share it.
    assert kept(Keep(all=12_200), small, shared[:2000], shared[1000:]) == ["randn", "kept", "kept"]
    assert kept(Keep(all=300), small, shared[:2000], shared[1000:]) == ["randn", "randn", "randn"]


def test_where_offsets_count_from_the_start_of_a_storage_only_whole_storages_are_left_out() -> None:
    whole, part = torch.randn(1000), torch.randn(1000)[1:]
    assert kept(Keep(all=0), whole, part, clip=False) == ["randn", "kept"]
    assert kept(Keep(each=0), whole, part, clip=False) == ["kept", "kept"]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (nn.Parameter(torch.randn(4000, 30) * 0.02), {"fn": "randn", "std": 0.02}),
        (torch.randn(3_000_000, dtype=torch.bfloat16) * 3, {"fn": "randn", "std": 3.0}),
        (torch.full((100,), 1.5) + torch.rand(100) / 1000, {"fn": "full", "value": 1.5}),
        (torch.rand(1000), {"fn": "rand"}),
        (torch.full((100,), torch.inf), {"fn": "randn"}),
        (torch.randint(0, 9, (100,)), {"fn": "randint", "low": 0, "high": 9}),
    ],
)
def test_what_stands_in_for_values_is_measured(tensor: torch.Tensor, expected: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert recipe(tensor, measured=True) == expected


def spread(init: Any) -> Case:
    nodes = (
        Node("x", "placeholder", "x"),
        Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
        Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
    )
    return Case(Graph(nodes), ({"tensor": 0},), (TensorSpec("float32", (4, 8), (8, 1), init=init),), torch="2.13.0")


def test_numbers_with_a_standard_deviation_are_the_same_in_worker_and_script() -> None:
    case = spread({"fn": "randn", "std": 0.02})
    assert validate(to_json(case)) == case
    (built,) = build(case, {})[1]
    torch.manual_seed(0)
    assert torch.equal(built, torch.randn(4, 8) * 0.02)
    printed = print_inputs(case, {}, print_graph(case).parameters)
    assert "x = torch.randn(4, 8).mul_(0.02)" in [s.layout() for s in printed.statements]
    assert values(case.tensors[0]) == "randn times 0.02"
    for wrong in (0.0, -1.0, 1, float("inf"), "1"):
        with pytest.raises(InvalidDocument):
            validate(to_json(spread({"fn": "randn", "std": wrong})))
    with pytest.raises(InvalidDocument):
        validate(to_json(spread({"fn": "rand", "std": 1.0})))


def test_plainer_numbers_are_tried_in_place_of_measured_ones() -> None:
    case = replace(spread({"fn": "randn", "std": 0.02}))
    tried = []
    candidates = plain_values(case, {})  # type: ignore[arg-type]
    candidate = next(candidates)
    while True:
        tried.append((candidate.tensors[0].init or {}).copy())
        try:
            candidate = candidates.send(candidate.tensors[0].init == {"fn": "randn"})
        except StopIteration as end:
            case = end.value
            break
    assert {"fn": "randn"} in tried
    assert case.tensors[0].init == {"fn": "randn"}


# Captures


def failing(gm: fx.GraphModule, inputs: Any) -> Any:
    def run(*given: Any) -> Any:
        raise RuntimeError("no kernel")

    return run


def test_a_row_says_which_values_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "BUDGET", Keep(all=3000, measured=True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 20))
    with fxminify.capturing(tmp_path / "repro.db"), pytest.raises(RuntimeError, match="no kernel"):
        torch.compile(model, backend=failing)(torch.ones(1, 20))
    with Index.open(str(tmp_path / "repro.db")) as index:
        (row,) = index.captures.find()
        case = index.captures.case(row.id)
        blobs = index.blobs.view(case.storages)
        assert sum(blobs.size(key) for key in blobs) <= 3000
    assert row.provenance["data"] == "metadata"
    (named,) = row.provenance["left_out"].split("; ")
    assert re.fullmatch(r"l_\w+_parameters_weight_ \[\d+, \d+\] float32", named)
    (left,) = (spec for spec in case.tensors if spec.init is not None)
    # 0.13 or 0.11: the two weights are of one size, and either may be left out.
    assert left.init == {"fn": "randn", "std": pytest.approx(0.12, abs=0.015)}


# Workers


def test_large_storages_are_mapped_and_private() -> None:
    t = torch.rand(MAPPED // 4)
    small = torch.rand(10)
    encoded = encode(fx.symbolic_trace(lambda x, y: x.sum() + y), [t, small])
    case = Case(encoded.graph, encoded.inputs, encoded.tensors)
    scratch = Scratch.create()
    try:
        scratch.put(encoded.blobs)
        first, second = build(case, scratch)[1], build(case, scratch)[1]
        assert torch.equal(first[0], t)
        before = Path("/proc/self/maps").read_text()
        assert str(scratch.file(next(iter(case.storages)))).rpartition("/")[0] in before
        first[0].mul_(2)
        first[1].mul_(2)
        assert torch.equal(second[0], t)
        assert torch.equal(second[1], small)
        assert torch.equal(build(case, scratch)[1][0], t)
    finally:
        scratch.remove()
    assert torch.equal(second[0], t)  # although the file is gone
