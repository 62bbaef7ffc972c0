"""Graphs with subgraphs: results are 1-minimal, whatever fails; every candidate is well-formed; jobs change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from made import (
    REMOVALS,
    REPLACEMENTS,
    SHAPES,
    Fails,
    Parallel,
    assert_nothing_more_can_go,
    make,
    proposed,
    random_case,
    shrinker,
    spec,
)

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.hop_calls import hop_calls, positions, renamed, with_distinct_names
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.patch import apply, merge
from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.minifier.passes import Stage
from fxminify.store.document.case import Case, Graph, Node, target_name

#: Operator, and whether its operands are a list.
OPERATORS = [
    ("cond", True),
    ("tag_activation_checkpoint", False),
    ("map_impl", True),
    ("autograd_function_apply", False),
]


def nested_case(rng: Random) -> tuple[Case, Trace]:
    """A random graph whose last nodes read a call of one or two random subgraphs."""
    case, trace = random_case(rng)
    graph, values, tensors = case.graph, dict(trace.values), list(trace.tensors)
    for number in range(rng.randrange(1, 3)):
        operator, listed = rng.choice(OPERATORS)
        names = [n.name for n in graph.nodes[:-1] if n.op != "get_attr" and values[n.name].kind is ValueKind.TENSOR]
        operands = rng.sample(names, min(len(names), rng.randrange(1, 4)))
        subgraphs = []
        for branch in range(1 if operator != "cond" else 2):
            subgraph, inner = _body(rng, len(operands), f"b{number}{branch}")
            subgraphs.append((f"body_{number}_{branch}", subgraph))
            for name, value in inner.values.items():
                snapshots = tuple((at, i + len(tensors)) for at, i in value.snapshots)
                alias = operands[int(name[1:])] if name.startswith("x") else ""
                values[f"b{number}{branch}{name}"] = replace(value, snapshots=snapshots, alias=alias)
            tensors += inner.tensors
        read = [Node(path, "get_attr", path) for path, _ in subgraphs]
        given = [{"ref": n} for n in operands]
        first = [{"ref": path} for path, _ in subgraphs]
        call = Node(
            f"call{number}", "call_function", {"hop": operator}, (*first, given) if listed else (*first, *given)
        )
        item = Node(f"item{number}", "call_function", {"fn": "_operator.getitem"}, ({"ref": call.name}, 0))
        values[call.name] = Recorded(ValueKind.OPAQUE)
        values[item.name] = Recorded(ValueKind.TENSOR, ((0, len(tensors)),))
        tensors.append(spec(rng.choice(SHAPES), f"{item.name}@0"))
        output = graph.output
        returned = {"tuple": [*output.args[0]["tuple"], {"ref": item.name}]}
        nodes = (*graph.nodes[:-1], *read, call, item, replace(output, args=(returned,)))
        graph = Graph(nodes, {**graph.attrs, **{path: {"graph": subgraph} for path, subgraph in subgraphs}})
    case = with_distinct_names(replace(case, graph=graph))
    return case, Trace(values, tuple(tensors), positions(case.graph))


def _body(rng: Random, inputs: int, prefix: str) -> tuple[Graph, Trace]:
    names = [f"x{i}" for i in range(inputs)]
    shapes = {n: rng.choice(SHAPES) for n in names}
    steps = []
    for i in range(rng.randrange(1, 12)):
        read = rng.sample(names[-4:], min(len(names), rng.randrange(1, 3)))
        steps.append((f"n{i}", rng.choice(["add", "gelu", "view", "asinh", "erf", "atan"]), read))
        shapes[f"n{i}"] = rng.choice(SHAPES)
        names.append(f"n{i}")
    case, trace = make([f"x{i}" for i in range(inputs)], steps, [names[-1]], shapes)
    own = {n: Recorded(ValueKind.TENSOR, ((0, len(trace.tensors) + i),)) for i, n in enumerate(names[:inputs])}
    tensors = (*trace.tensors, *(spec(shapes[n], f"{prefix}{n}@0") for n in names[:inputs]))
    moved = {n.name: f"{prefix}{n.name}" for n in case.graph.nodes}
    return renamed(case.graph, moved), Trace({**trace.values, **own}, tensors, {})


def kinds(graph: Graph) -> list[str]:
    """The operations of a graph and its subgraphs."""
    inner = [k for attr in graph.attrs.values() if "graph" in attr for k in kinds(attr["graph"])]
    return [*map(target_name, graph.compute), *inner]


def inside(graph: Graph) -> list[str]:
    return [k for attr in graph.attrs.values() if "graph" in attr for k in kinds(attr["graph"])]


def check(graph: Graph, inputs: int | None = None) -> None:
    """References lead to earlier nodes, names differ, calls give their subgraphs what they take."""
    seen: set[str] = set()
    for node in graph.nodes:
        assert set(node.inputs) <= seen, node
        assert node.name not in seen
        seen.add(node.name)
        if node.op == "get_attr":
            assert node.target in graph.attrs
    assert inputs is None or len(graph.placeholders) == inputs
    for call in hop_calls(graph):
        for path in call.shared:
            assert len(graph.attrs[path]["graph"].placeholders) == len(call.operands)
    for attr in graph.attrs.values():
        if "graph" in attr:
            check(attr["graph"])


def random_failure(rng: Random, case: Case) -> Callable[[Case], bool]:
    wanted = set(rng.sample(sorted(set(kinds(case.graph))), 2))
    deep = set(rng.sample(sorted(set(inside(case.graph))), 1)) if rng.random() < 0.6 else set()
    return lambda candidate: wanted <= set(kinds(candidate.graph)) and deep <= set(inside(candidate.graph))


@pytest.mark.parametrize("seed", range(40))
def test_nothing_more_can_go(seed: int) -> None:
    rng = Random(seed)
    case, trace = nested_case(rng)
    fails = random_failure(rng, case)
    assert fails(case)
    oracle = Fails(fails)
    best = shrinker(oracle).run(case, trace).case
    assert fails(best)
    for asked in oracle.asked:
        check(asked.graph, len(asked.inputs))
    assert_nothing_more_can_go(best, trace, REMOVALS, fails)


@pytest.mark.parametrize("seed", range(20))
def test_any_patches_of_a_pass_go_together(seed: int) -> None:
    rng = Random(seed)
    case, trace = nested_case(rng)
    view = GraphView(case, trace)
    for p in (*REMOVALS, *REPLACEMENTS):
        for step in range(6):
            proposal = proposed(p, view, step)
            if proposal is None:
                break
            for _ in range(4):
                some = [patch for patch in proposal.patches if rng.random() < 0.5]
                candidate = apply(view, merge(some))
                if candidate is not None:
                    check(candidate.graph, len(candidate.inputs))
                    assert (
                        p.stage is Stage.REPLACE
                        or p.name in ("slices", "nodes")
                        or size(candidate)[:4] <= size(case)[:4]
                    ), p.name


@pytest.mark.parametrize("seed", range(8))
def test_jobs_do_not_change_the_result(seed: int) -> None:
    rng = Random(seed)
    case, trace = nested_case(rng)
    fails = random_failure(rng, case)
    one = shrinker(Fails(fails)).run(case, trace).case
    assert shrinker(Parallel(fails, 3), jobs=3).run(case, trace).case == one
