"""Sizes shrink together, with the numbers of the graph that follow them, to the smallest that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made import Held

from fxminify.minifier.passes.candidates import Canonicalize
from fxminify.minifier.passes.dimensions import fewer_dimensions, resized, smaller_dimensions
from fxminify.repro_templates.source.elements import numbers
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.document.strides import contiguous
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode

OUTPUT = Node("output", "output", "output", ({"tuple": [{"ref": "out"}]},))


def case(*shapes: tuple[int, ...], out: tuple[str, list[Any]] = ("torch.stack", [])) -> Case:
    """A graph ``out = f(x0, x1, ...)`` of inputs of ones."""
    names = [f"x{i}" for i in range(len(shapes))]
    target, arguments = out
    nodes = [
        Node(n, "placeholder", n, meta={"dtype": "float32", "shape": list(s)})
        for n, s in zip(names, shapes, strict=True)
    ]
    nodes.append(Node("out", "call_function", {"fn": target}, tuple(arguments)))
    tensors = tuple(TensorSpec("float32", s, contiguous(s), init={"fn": "full", "value": 1.0}) for s in shapes)
    inputs = tuple({"tensor": i} for i in range(len(shapes)))
    return Case(Graph((*nodes, OUTPUT)), inputs, tensors)


def smallest(
    start: Case, fails: Callable[[Case], bool], canonicalize: Canonicalize = smaller_dimensions
) -> tuple[Case, int]:
    """What ``fails`` leaves, and how often it was asked; what eager cannot run does not fail."""
    asked = 0
    candidates = canonicalize(start, Held())
    try:
        candidate = next(candidates)
        while True:
            asked += 1
            candidate = candidates.send(runs(candidate) and fails(candidate))
    except StopIteration as end:
        return end.value, asked


def runs(candidate: Case) -> bool:
    gm, inputs = build(candidate, {})
    try:
        gm(*inputs)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def shapes(found: Case) -> list[tuple[int, ...]]:
    return [t.shape for t in found.tensors]


MATMUL = case((3, 24), (24, 40), out=("torch.matmul", [{"ref": "x0"}, {"ref": "x1"}]))
RESHAPE = case((2, 12, 32), out=("torch.reshape", [{"ref": "x0"}, [24, 32]]))
TRANSPOSED = case((4, 4, 4), out=("torch.transpose", [{"ref": "x0"}, 1, 2]))


def test_sizes_that_do_not_matter_are_one_after_a_single_question() -> None:
    found, asked = smallest(MATMUL, lambda c: True)
    assert shapes(found) == [(1, 1), (1, 1)]
    assert asked == 1
    assert [n.meta.get("shape") for n in found.graph.nodes] == [[1, 1], [1, 1], None, None]


@pytest.mark.parametrize("threshold", [2, 3, 8, 17, 23, 24])
def test_a_threshold_is_found_exactly(threshold: int) -> None:
    found, asked = smallest(MATMUL, lambda c: c.tensors[0].shape[1] >= threshold)
    assert shapes(found) == [(1, threshold), (threshold, 1)]
    assert asked <= 14


def test_sizes_that_must_be_cost_few_questions() -> None:
    image = case((8, 12, 197, 64), (8, 12, 64, 197), out=("torch.matmul", [{"ref": "x0"}, {"ref": "x1"}]))
    found, asked = smallest(image, lambda c: False)
    assert (found, asked <= 27) == (image, True)
    found, asked = smallest(image, lambda c: c.tensors[1].shape[3] >= 17)
    assert (shapes(found), asked <= 17) == ([(1, 1, 1, 1), (1, 1, 1, 17)], True)


@pytest.mark.parametrize(("size", "least"), [(5, 3), (21, 3), (7, 3), (97, 3)])
def test_a_size_that_must_be_odd_is_the_smallest_odd_one(size: int, least: int) -> None:
    found = case((size,), out=("torch.sin", [{"ref": "x0"}]))
    for _ in range(5):
        found, _ = smallest(found, lambda c: c.tensors[0].shape[0] % 2 == 1 and c.tensors[0].shape[0] >= least)
    assert shapes(found) == [(least,)]


def test_heads_of_an_attention_shrink_though_no_tensor_has_their_size() -> None:
    def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        q = torch.nn.functional.linear(x, w).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q[0], q[1], q[2])

    encoded = encode(torch.fx.symbolic_trace(attention), [torch.ones(2, 16, 32), torch.ones(96, 32)])
    ones = tuple(replace(t, storage=None, init={"fn": "full", "value": 1.0}) for t in encoded.tensors)
    found, asked = smallest(Case(encoded.graph, encoded.inputs, ones), lambda c: True)
    assert shapes(found) == [(2, 2, 1), (12, 1)]
    assert asked <= 30


def test_numbers_in_lists_follow_and_dimensions_do_not() -> None:
    found, _ = smallest(TRANSPOSED, lambda c: True)
    assert shapes(found) == [(1, 1, 1)]
    assert found.graph.nodes[1].args == ({"ref": "x0"}, 1, 2)
    found, _ = smallest(RESHAPE, lambda c: c.tensors[0].shape[2] > 1)
    assert shapes(found)[0][2] == 2
    assert found.graph.nodes[1].args[1][1] == 2


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (("torch.zeros", [[2, 4, 4]]), [[1, 1, 1]]),
        (("torch.ones", [3, 4]), [1, 1]),
        (("torch.full", [{"tuple": [5, 3]}, 7]), [{"tuple": [1, 1]}, 7]),
        (("torch.arange", [12]), [1]),
    ],
)
def test_sizes_that_the_graph_itself_makes_shrink(call: tuple[str, list[Any]], left: list[Any]) -> None:
    found, _ = smallest(case(out=call), lambda candidate: True)
    (node,) = found.graph.compute
    assert list(node.args) == left


@pytest.mark.parametrize(("least", "most"), [(1, 1), (2, 6)])
def test_sizes_that_a_call_gives_its_result_shrink(least: int, most: int) -> None:
    resize = ("torch.nn.functional.interpolate", [{"ref": "x0"}, {"tuple": [16, 16]}])
    start = case((1, 8, 8, 8), out=resize)
    made = replace(start.graph.nodes[1], meta={"shape": [1, 8, 16, 16]})
    start = replace(start, graph=start.graph.map_nodes(lambda node: made if node.is_compute else node))
    found, asked = smallest(start, lambda c: c.graph.nodes[1].args[1]["tuple"][1] >= least)
    assert shapes(found) == [(1, 1, 1, 1)]
    assert found.graph.nodes[1].args[1] == {"tuple": [least, least]}
    assert asked <= most


def test_the_smallest_size_that_the_graph_must_make_is_found() -> None:
    def fails(candidate: Case) -> bool:
        return bool(candidate.graph.compute[0].args[0][1] >= 5)

    found, _ = smallest(case(out=("torch.zeros", [[2, 40]])), fails)
    assert found.graph.compute[0].args == ([1, 5],)


def test_one_of_two_equal_sizes_may_matter_alone() -> None:
    added = case((6, 6), (6, 6), out=("torch.add", [{"ref": "x0"}, {"ref": "x1"}]))
    found, _ = smallest(added, lambda c: c.tensors[0].shape == (6, 6))
    assert shapes(found) == [(6, 6), (1, 1)]


def test_recorded_values_keep_their_first_elements_that_are_no_zeros() -> None:
    values = np.zeros((4, 8), dtype=np.float32)
    values[2, 5:] = 1, 2, 3
    held = Held(s=values.tobytes(), t=values.T.tobytes())
    recorded = TensorSpec("float32", (4, 8), (8, 1), storage="s")
    transposed = TensorSpec("float32", (4, 8), (1, 4), storage="t")
    start = Case(MATMUL.graph, ({"tensor": 0}, {"tensor": 1}), (recorded, transposed))
    found = resized(start, {4: 2, 8: 3}, "none", held)
    assert [(t.shape, t.stride, t.offset) for t in found.tensors] == [((2, 3), (3, 1), 0), ((2, 3), (1, 2), 0)]
    assert [numbers("float32", held[str(t.storage)]).tolist() for t in found.tensors] == [
        [1, 2, 3, 0, 0, 0],
        [1, 0, 2, 0, 3, 0],
    ]


def test_a_memory_format_stays_one_without_gaps_where_a_size_is_one() -> None:
    """Strides that are equal because a size is 1 are still those of channels_last."""
    given = case((4, 2, 2, 2), out=("torch.relu", [{"ref": "x0"}]))
    given = replace(given, tensors=(replace(given.tensors[0], stride=(8, 1, 4, 2)),))

    def last(c: Case) -> bool:
        shape, stride = c.tensors[0].shape, c.tensors[0].stride
        return shape[0] == 4 and shape[3] == 2 and stride[1] == 1 and stride[2] > stride[3]

    found, _ = smallest(given, last)
    assert (found.tensors[0].shape, found.tensors[0].stride) == ((4, 1, 1, 2), (2, 1, 2, 1))


def test_inputs_of_earlier_calls_shrink_with_those_of_the_last() -> None:
    given = case((5, 4), (5, 4), out=("torch.add", [{"ref": "x0"}, {"ref": "x1"}]))
    before = replace(given.tensors[0], init={"fn": "full", "value": 0.0})
    given = replace(given, tensors=(*given.tensors, before), earlier=({"x0": {"tensor": 2}},))
    found, asked = smallest(given, lambda c: c.tensors[2].shape == c.tensors[0].shape)
    assert (shapes(found), asked) == ([(1, 1)] * 3, 1)
    found, _ = smallest(found, lambda c: bool(c.earlier), fewer_dimensions)
    assert shapes(found) == [(1,)] * 3
    other = replace(given, tensors=(*given.tensors[:2], replace(before, shape=(7, 4), stride=(4, 1))))
    found, _ = smallest(other, lambda c: c.tensors[2].shape != c.tensors[0].shape)
    assert sorted(shapes(found)) == [(1, 1), (1, 1), (2, 1)]


def test_symbolic_sizes_shrink_to_two_with_the_numbers_they_stand_for() -> None:
    x = Node("x0", "placeholder", "x0")
    size = Node("s77", "placeholder", "s77")
    out = Node("out", "call_function", {"fn": "torch.reshape"}, ({"ref": "x0"}, [{"ref": "s77"}, 24]))
    value = {"sym": {"kind": "SymInt", "expr": "s77", "hint": 7}}
    start = Case(Graph((x, size, out, OUTPUT)), ({"tensor": 0}, value), case((7, 24)).tensors)
    found, asked = smallest(start, lambda c: True)
    assert shapes(found) == [(2, 2)]
    assert found.inputs[1] == {"sym": {"kind": "SymInt", "expr": "s77", "hint": 2}}
    assert asked == 1
    found, _ = smallest(start, lambda c: c.tensors[0].shape[0] >= 5)
    assert shapes(found) == [(5, 2)]


def test_multiples_of_a_size_follow_it() -> None:
    """Three projections in one matrix: a width of 24 makes 72 rows, and the graph names both."""
    width, rows = Node("w", "placeholder", "w"), Node("x", "placeholder", "x")
    linear = Node("y", "call_function", {"fn": "torch.nn.functional.linear"}, ({"ref": "x"}, {"ref": "w"}))
    out = Node("out", "call_function", {"fn": "torch.split"}, ({"ref": "y"}, 24, 1))
    tensors = tuple(replace(RESHAPE.tensors[0], shape=s, stride=contiguous(s)) for s in ((72, 24), (5, 24)))
    start = Case(Graph((width, rows, linear, out, OUTPUT)), ({"tensor": 0}, {"tensor": 1}), tensors)

    def fails(candidate: Case) -> bool:
        gm, inputs = build(candidate, Held())
        parts = gm(*inputs)[0]
        return len(parts) == 3 and all(p.shape[1] == inputs[1].shape[1] >= 4 for p in parts)

    found, _ = smallest(start, fails)
    assert shapes(found) == [(12, 4), (1, 4)]


@pytest.mark.parametrize(
    ("shape", "literal", "least"),
    [
        ((1, 4096), [1, 16, 16, 16], (1, 8)),
        ((1, 512), [1, 16, 8, 4], (1, 8)),
        ((1, 16, 256), [1, 16, 16, 16], (1, 2, 4)),
    ],
)
def test_a_size_shrinks_with_the_literal_shape_that_it_is_the_product_of(
    shape: tuple[int, ...], literal: list[int], least: tuple[int, ...]
) -> None:
    start = case(shape, out=("torch.reshape", [{"ref": "x0"}, literal]))
    found, asked = smallest(start, lambda c: all(n >= 2 for n in c.graph.nodes[1].args[1][1:]))
    assert shapes(found) == [least]
    assert asked <= 12


def test_a_literal_shape_shrinks_to_the_least_of_each_size() -> None:
    start = case((1, 4096), out=("torch.reshape", [{"ref": "x0"}, [1, 16, 16, 16]]))
    found, _ = smallest(start, lambda c: c.graph.nodes[1].args[1][2] >= 5)
    assert shapes(found) == [(1, 125)]
    flat = case((1, 16, 16, 16), out=("torch.reshape", [{"ref": "x0"}, [1, 4096]]))
    found, _ = smallest(flat, lambda c: c.tensors[0].shape[1] >= 3)
    assert shapes(found) == [(1, 3, 3, 3)]


def test_dimensions_at_one_place_shrink_together_where_others_of_their_size_stay() -> None:
    start = case((2, 9, 2), (2, 2, 9), out=("torch.bmm", [{"ref": "x0"}, {"ref": "x1"}]))
    found, _ = smallest(start, lambda c: c.tensors[0].shape[2] == 2)
    assert shapes(found) == [(1, 1, 2), (1, 2, 1)]


def test_dimensions_that_had_another_size_shrink_together_where_others_of_their_new_size_stay() -> None:
    """A batch norm in training needs two values a channel, and one channel."""
    arguments = [{"ref": "x0"}, {"ref": "x1"}, {"ref": "x1"}, None, None, True]
    norm = case((4, 8, 16, 16), (8,), out=("torch.nn.functional.batch_norm", arguments))
    found, asked = smallest(norm, lambda c: True)
    assert shapes(found) == [(2, 1, 1, 1), (1,)]
    assert asked < 16


def test_a_smaller_graph_computes_what_its_own_sizes_give() -> None:
    found, _ = smallest(RESHAPE, lambda c: True)
    gm, inputs = build(found, {})
    (out,) = gm(*inputs)
    assert torch.equal(out, torch.ones(out.shape))


def test_dimensions_of_size_one_go_after_a_single_question() -> None:
    found, asked = smallest(case((1, 1, 4), (1, 1, 4), out=("torch.add", [{"ref": "x0"}, {"ref": "x1"}])),
                            lambda candidate: True, fewer_dimensions)  # fmt: skip
    assert (shapes(found), asked) == ([(4,), (4,)], 1)
    assert smallest(found, lambda candidate: True, fewer_dimensions) == (found, 0)


def test_a_last_dimension_of_size_one_goes_behind_a_larger_one() -> None:
    summed = case((1, 5, 1), out=("torch.cumsum", [{"ref": "x0"}, 1]))
    found, asked = smallest(summed, lambda c: c.tensors[0].shape[1:2] == (5,), fewer_dimensions)
    assert (shapes(found), asked) == ([(1, 5)], 3)
    ones = case((1, 1, 1), out=("torch.relu", [{"ref": "x0"}]))
    assert smallest(ones, lambda candidate: False, fewer_dimensions) == (ones, 2)


def test_what_needs_its_rank_keeps_it() -> None:
    convolved = case((1, 1, 5), (1, 1, 3), out=("torch.conv1d", [{"ref": "x0"}, {"ref": "x1"}]))
    assert smallest(convolved, lambda candidate: True, fewer_dimensions) == (convolved, 2)
    stacked = case((1, 1, 1, 5), out=("torch.softmax", [{"ref": "x0"}, 1]))
    found, asked = smallest(stacked, lambda candidate: True, fewer_dimensions)
    assert (shapes(found), asked) == ([(1, 5)], 3)
