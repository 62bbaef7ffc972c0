"""Control flow that eager runs and torch's own rules forbid: subgraphs that return or change what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from captured import capture, spec

from fxminify.minifier.candidate.validity import Validator, Way
from fxminify.minifier.oracle import tasks
from fxminify.minifier.reducer.validity import KnownValidity, NotKnown
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.minifier.tracing.rules import obeyed
from fxminify.store.document.case import Case, Graph, Node


def branches(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x * y, (x, x.sin()))
    return result


def loop(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z * 2), (0, x * 2))[1]
    return result


@pytest.fixture(scope="module")
def captured() -> dict[str, Case]:
    with torch.no_grad():
        return {f.__name__: capture(f, (torch.ones(3),), spec("eager", "inductor"))[0] for f in (branches, loop)}


def edited(case: Case, subgraph: int, edit: Callable[[Graph], Graph]) -> Case:
    """``case`` with one of its subgraphs changed, counted in their order."""
    names = [name for name, attr in case.graph.attrs.items() if "graph" in attr]
    name = names[subgraph]
    attrs = {**case.graph.attrs, name: {**case.graph.attrs[name], "graph": edit(case.graph.attrs[name]["graph"])}}
    return replace(case, graph=replace(case.graph, attrs=attrs))


def returning_operand(at: int) -> Callable[[Graph], Graph]:
    """Let a subgraph return its last placeholder as its result ``at``."""

    def edit(graph: Graph) -> Graph:
        (old,) = graph.output.args
        values: list[Any] = [*old["tuple"]]
        values[at] = {"ref": graph.placeholders[-1].name}
        return replace(graph, nodes=(*graph.nodes[:-1], replace(graph.output, args=({"tuple": values},))))

    return edit


def writing(graph: Graph) -> Graph:
    """Let a subgraph write to its last placeholder."""
    node = Node("written", "call_method", "add_", ({"ref": graph.placeholders[-1].name}, 1))
    return replace(graph, nodes=(*graph.nodes[:-1], node, graph.output))


@pytest.mark.parametrize(("name", "subgraph", "at"), [("branches", 0, 0), ("branches", 1, 0), ("loop", 1, 1)])
def test_a_subgraph_must_not_return_or_change_its_operand(
    captured: dict[str, Case], name: str, subgraph: int, at: int
) -> None:
    case = captured[name]
    cases = [case, edited(case, subgraph, returning_operand(at)), edited(case, subgraph, writing)]
    assert obeyed(cases) == [True, False, False]


def test_random_numbers_of_the_process_stay(captured: dict[str, Case]) -> None:
    before = torch.get_rng_state()
    assert obeyed([captured["branches"]]) == [True]
    assert torch.equal(torch.get_rng_state(), before)


class Told:
    """Has the answers of a worker. Remembers how many cases it was asked about."""

    def __init__(self) -> None:
        self.asked = 0
        self.scratch = Scratch.create()

    def way(self, base: Case) -> Way:
        return Way.NONE

    def valid(self, way: Way, candidates: list[Case]) -> list[bool]:
        raise AssertionError

    def obeys_rules(self, cases: list[Case]) -> list[bool]:
        self.asked += len(cases)
        return list(tasks.rules(tasks.rules_argument(cases), self.scratch, lambda phase: None)["obeyed"])


def test_the_rules_are_asked_about_once_and_only_for_subgraphs(captured: dict[str, Case]) -> None:
    case = captured["branches"]
    wrong, flat = edited(case, 0, returning_operand(0)), Case(Graph((Node("output", "output", "output", (None,)),)), ())
    told: Any = Told()
    validator: Validator = told
    known = KnownValidity(validator, repr)
    with known.looking(), pytest.raises(NotKnown):
        known(case, [wrong])
    assert [known(case, [flat, wrong, case]) for _ in range(2)] == [(True, False, True)] * 2
    assert known.obeys_rules(case, [flat]) == (True,)
    assert told.asked == 2
    assert known.obeys_rules(wrong, [wrong, case]) == (True, True)  # torch refuses even the base: nothing is known
    told.scratch.remove()
