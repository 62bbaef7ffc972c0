"""What each pass proposes, and that proposals keep the promises at the head of the package."""

from dataclasses import replace
from itertools import combinations

import pytest
from made import REMOVALS, code, make, proposed

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.patch import Patch, apply, merge
from fxminify.minifier.passes import ends, nodes, reroute
from fxminify.minifier.passes.proposal import Proposal

STEPS = [
    ("a", "asinh", ["x"]),
    ("b", "add", ["a", "y"]),
    ("c", "view", ["b"]),
    ("d", "gelu", ["c"]),
    ("e", "gelu", ["d"]),
    ("f", "view", ["e"]),
    ("g", "mul", ["f", "a"]),
    ("z", "exp", ["g"]),
]
SHAPES = {"x": (2, 2), "y": (2, 2), "a": (2, 2), "b": (2, 2), "f": (2, 2), "g": (2, 2), "z": (2, 2)}


def view() -> GraphView:
    return GraphView(*make(["x", "y"], STEPS, ["g", "a"], SHAPES))


def results(proposal: Proposal | None) -> list[str]:
    assert proposal is not None
    s = view()
    return [code(case) for p in proposal.patches if (case := apply(s, p)) is not None]


def test_every_unit_is_a_patch_of_nodes() -> None:
    proposal = nodes.singles(view(), 0)
    assert proposal is not None
    assert [sorted(p.drop) for p in proposal.patches] == [[name] for name, _, _ in STEPS]
    assert nodes.singles(view(), 1) is None


def test_rare_operations_weigh_more() -> None:
    weight = dict(zip(view().compute, view().weights, strict=True))
    assert weight["a"] > 1.5 * weight["d"]
    assert sum(weight.values()) == pytest.approx(1)


def test_what_is_handed_through_is_one_patch_more() -> None:
    s = GraphView(*make(["x", "y"], STEPS, ["y", "g", "x"], SHAPES))
    proposal = nodes.singles(s, 0)
    assert proposal is not None
    assert proposal.patches[-1] == Patch(cut=frozenset([0, 2]))


def test_bypass_takes_each_input_of_the_same_sort_in_turn() -> None:
    first, second = reroute.skip_to_operand(view(), 0), reroute.skip_to_operand(view(), 1)
    assert first is not None
    assert second is not None
    assert [dict(p.replace) for p in first.patches] == [
        {"a": {"ref": "x"}},
        {"b": {"ref": "a"}},
        {"d": {"ref": "c"}},
        {"e": {"ref": "d"}},
        {"g": {"ref": "f"}},
        {"z": {"ref": "g"}},
    ]
    assert [dict(p.replace) for p in second.patches] == [{"b": {"ref": "y"}}, {"g": {"ref": "a"}}]
    assert reroute.skip_to_operand(view(), 2) is None


def test_jumps_go_to_any_node_above_of_the_same_sort_the_furthest_first() -> None:
    steps = [reroute.replace_with_ancestor(view(), step) for step in range(len(STEPS) + 1)]
    sources = [[next(iter(p.replace.items())) for p in s.patches] for s in steps if s is not None]
    assert sources[0] == []  # z is dead
    assert sources[1] == [("g", {"ref": n}) for n in ("x", "y", "a", "b", "f")]
    assert sources[2] == [("f", {"ref": n}) for n in ("x", "y", "a", "b")]
    assert sources[3] == [("e", {"ref": n}) for n in ("c", "d")]
    assert steps[-1] is None


def test_outputs_that_are_read_go_first() -> None:
    without = [apply(view(), Patch(cut=frozenset([number]))) for number in (0, 1)]
    expected = [code(case) for case in without if case is not None]
    assert len(expected) == 2
    assert results(ends.outputs(view(), 0)) == expected
    last = ends.outputs(view(), 1)
    assert last is not None
    assert [p.cut for p in last.patches] == [{0}, {1}]


def test_dead_nodes_are_proposed_with_side_effects_or_without() -> None:
    proposal = ends.dead(view(), 0)
    assert proposal is not None
    assert [p.erase for p in proposal.patches] == [{"z"}]


def test_inputs_that_look_alike_become_one() -> None:
    proposal = ends.inputs(view(), 1)
    assert proposal is not None
    assert [dict(p.replace) for p in proposal.patches] == [{"y": {"ref": "x"}}]


def test_numbers_become_literals() -> None:
    case, trace = make(["x", "n", "m"], [("a", "view", ["x", "n", "m"])], ["a"])
    symbol = {"sym": {"kind": "SymInt", "expr": "s0", "hint": 4}}
    s = GraphView(replace(case, inputs=(case.inputs[0], symbol, 2)), trace)
    proposal = ends.inputs(s, 0)
    assert proposal is not None
    written = apply(s, merge(proposal.patches))
    assert written is not None
    assert written.graph.compute[0].args == ({"ref": "x"}, 4, 2)
    assert [n.name for n in written.graph.placeholders] == ["x"]


@pytest.mark.parametrize("name", [p.name for p in REMOVALS])
def test_any_two_patches_go_together_and_none_makes_the_case_larger(name: str) -> None:
    row, s = next(p for p in REMOVALS if p.name == name), view()
    step = 0
    while (proposal := proposed(row, s, step)) is not None:
        for some in [*combinations(proposal.patches, 1), *combinations(proposal.patches, 2)]:
            case = apply(s, merge(some))
            assert case is None or size(case)[0] < size(s.case)[0] or size(case) <= size(s.case)
        step += 1
