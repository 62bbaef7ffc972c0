"""A case studied anew: signatures of what it calls, and what its composite operations consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from captured import capture, spec
from made import REMOVALS, REPLACEMENTS, Fails, code, shrinker
from torch.utils.checkpoint import checkpoint

from fxminify.minifier.candidate.hop_calls import paths, subgraph
from fxminify.minifier.candidate.trace import Trace, ValueKind
from fxminify.minifier.oracle import tasks
from fxminify.minifier.reducer.shrinker import ReductionResult
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.minifier.tracing.study import study
from fxminify.repro_templates.source.function import print_graph
from fxminify.store.document.case import Case, target_name
from fxminify.store.live.build import build

PARTS = [p for p in REPLACEMENTS if p.name == "parts"]


def studied(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Case, dict[str, bytes], Trace]:
    case, blobs = capture(function, inputs, spec("healthy"))
    blobs = dict(blobs)
    return case, blobs, study(case, blobs, put=blobs.__setitem__)


def kinds(case: Case) -> set[str]:
    """What the nodes of all graphs of a case call."""
    graphs = [subgraph(case.graph, path) for path in ((), *paths(case.graph))]
    return {target_name(node) for graph in graphs for node in graph.compute}


def reduced(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    fails: Callable[[set[str]], bool],
) -> tuple[ReductionResult, Fails, dict[str, bytes]]:
    """The reduction of a failure that a set of operations shows, studied anew wherever the engine asks for it."""
    case, blobs, trace = studied(function, inputs)

    def again(smaller: Case) -> Trace:
        return study(smaller, blobs, put=blobs.__setitem__)

    oracle = Fails(lambda candidate: fails(kinds(candidate)))
    return shrinker(oracle, passes=(*REMOVALS, *PARTS), study=again).run(case, trace), oracle, blobs


COMPOSITES = [
    ("softmax", lambda x: torch.softmax(x, -1), "exp"),
    ("gelu", lambda x: F.gelu(x, approximate="tanh"), "tanh"),
    ("layer_norm", lambda x: F.layer_norm(x, (8,)), "rsqrt"),
    ("cross_entropy", lambda x: F.cross_entropy(x, torch.zeros(8, dtype=torch.int64)), "_log_softmax"),
    ("batch_norm", lambda x: F.batch_norm(x, torch.zeros(8), torch.ones(8), training=True), "rsqrt"),
    ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(x, x, x), "_safe_softmax"),
    ("linear", lambda x: F.linear(x, x), "mm"),
    ("dropout", lambda x: F.dropout(x, 0.5, True), "bernoulli_"),
]


@pytest.mark.parametrize(("name", "function", "culprit"), COMPOSITES, ids=[c[0] for c in COMPOSITES])
def test_one_part_takes_the_place_of_a_composite_operation(
    name: str, function: Callable[..., Any], culprit: str
) -> None:
    def fails(found: set[str]) -> bool:
        return name in found or culprit in found

    result, oracle, blobs = reduced(lambda x: function(x.sin()).cos(), [torch.randn(8, 8)], fails)
    assert [target_name(n) for n in result.case.graph.compute] == [culprit]
    assert len(oracle.asked) <= 16
    gm, inputs = build(result.case, blobs)
    for value in torch.utils._pytree.tree_leaves(gm(*inputs)):
        assert value.shape


def test_a_composite_stays_whole_where_no_part_fails_alone() -> None:
    result, oracle, _ = reduced(lambda x: torch.softmax(x, -1), [torch.randn(4, 4)], lambda found: "softmax" in found)
    assert code(result.case) == "l_x_ -> softmax = softmax(l_x_) -> softmax"
    assert len(oracle.asked) == 1


def test_a_composite_stays_whole_where_two_parts_are_needed() -> None:
    def fails(found: set[str]) -> bool:
        return "softmax" in found or {"exp", "div"} <= found

    result, _, _ = reduced(lambda x: torch.softmax(x, -1), [torch.randn(4, 4)], fails)
    assert code(result.case) == "l_x_ -> softmax = softmax(l_x_) -> softmax"


def test_a_part_and_what_it_needs_beside_it() -> None:
    def fails(found: set[str]) -> bool:
        return ("softmax" in found or "exp" in found) and "atan" in found

    result, _, _ = reduced(lambda x: torch.softmax(x.atan(), -1), [torch.randn(4, 4)], fails)
    assert [target_name(n) for n in result.case.graph.compute] == ["atan", "exp"]


def test_parts_of_parts() -> None:
    def fails(found: set[str]) -> bool:
        return not found.isdisjoint({"cross_entropy", "_log_softmax", "log"})

    result, _, _ = reduced(lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.int64)), [torch.randn(4, 4)], fails)
    assert [target_name(n) for n in result.case.graph.compute] == ["log"]


@pytest.mark.parametrize("bias", [None, torch.zeros(2)])
def test_signatures_of_functions_operators_and_methods(bias: torch.Tensor | None) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return F.conv2d(x, w, bias, 1, 1).add(1, alpha=2).sum(-1), F.layer_norm(x, (4,)), torch.clamp(x, 0)

    _, _, trace = studied(function, [torch.randn(1, 2, 4, 4), torch.randn(2, 2, 3, 3)])
    names = {name: ["=" * free + p for p, free in signature] for name, signature in trace.signatures.items()}
    assert names["conv2d"] == ["input", "weight", "=bias", "=stride", "=padding", "=dilation", "=groups"]
    assert names["add"] == ["input", "other", "=alpha"]
    assert names["sum_1"] == ["input", "dim", "=keepdim", "=dtype"]
    assert names["layer_norm"] == ["input", "normalized_shape", "=weight", "=bias", "=eps"]
    assert names["clamp"] == ["input", "=min", "=max"]


def test_a_worker_keeps_what_it_studied_apart_from_what_was_recorded_before() -> None:
    case, blobs = capture(lambda x: torch.softmax(x.sin(), -1), [torch.randn(4, 4)], spec("healthy"))
    scratch = Scratch.create()
    try:
        scratch.put(blobs)
        trace = Trace.from_json(tasks.study(tasks.study_argument(case, "k:"), scratch, lambda phase: None))
        assert all(t.storage is None or (t.storage.startswith("k:") and t.storage in scratch) for t in trace.tensors)
        assert trace.parts["softmax"].compute[2].name == "softmax__part2_exp"
        assert trace.values["softmax__part2_exp"].kind is ValueKind.TENSOR
        part = replace(case, graph=trace.parts["softmax"])
        printed = print_graph(replace(part, inputs=case.inputs)).text
        assert "exp = torch.ops.aten.exp.default(" in printed
    finally:
        scratch.remove()


def test_random_numbers_and_inputs_are_as_before() -> None:
    case, blobs = capture(lambda x: F.dropout(x, 0.5, True), [torch.randn(8, 8)], spec("healthy"))
    kept, state = dict(blobs), torch.get_rng_state()
    trace = study(case, blobs, put=lambda key, data: None)
    assert trace.parts.keys() == {"dropout"}
    assert torch.equal(torch.get_rng_state(), state)
    assert blobs == kept
    assert Trace.from_json(trace.to_json()) == trace


INSIDE: list[tuple[str, Callable[..., Any], set[str], list[str]]] = [
    (
        "cond",
        lambda x: torch.cond(x.sum() > 0, lambda x: torch.softmax(x, -1), lambda x: x.cos(), (x,)),
        {"softmax", "exp"},
        ["cond", "exp", "getitem"],
    ),
    (  # of another shape than the whole: what the subgraph returns takes its form
        "tag_activation_checkpoint",
        lambda x: checkpoint(lambda x: F.layer_norm(x, (4,)).sin(), x, use_reentrant=False).cos(),
        {"layer_norm", "rsqrt"},
        ["getitem", "rsqrt", "tag_activation_checkpoint"],
    ),
]


@pytest.mark.parametrize(("hop", "function", "culprits", "left"), INSIDE, ids=[i[0] for i in INSIDE])
def test_a_composite_in_a_body_is_taken_apart_where_it_stands(
    hop: str, function: Callable[..., Any], culprits: set[str], left: list[str]
) -> None:
    result, _, blobs = reduced(
        function, [torch.rand(4, 4, requires_grad=True)], lambda found: hop in found and not found.isdisjoint(culprits)
    )
    assert sorted(kinds(result.case)) == left
    gm, inputs = build(result.case, blobs)
    gm(*inputs)


def test_a_part_with_several_results_is_one_node_more() -> None:
    def fails(found: set[str]) -> bool:
        return "quantile" in found or "sort" in found

    result, _, blobs = reduced(lambda x: torch.quantile(x.sin(), 0.5, 1).cos(), [torch.randn(4, 4)], fails)
    assert [target_name(n) for n in result.case.graph.compute] == ["quantile"]
    gm, inputs = build(result.case, blobs)
    gm(*inputs)
