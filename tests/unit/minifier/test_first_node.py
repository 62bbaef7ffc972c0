"""The search for the first node that differs, with runs of a backend that a test plays."""

from __future__ import annotations

import pytest
from indexes import chain
from replies import Scripted, fails, passes

from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.minifier.oracle import first_node
from fxminify.minifier.oracle.tasks import case_from_json
from fxminify.minifier.sandbox.pool import Reply
from fxminify.store.document.case import Case, Json
from fxminify.store.failure import Failure, FailureKind, Phase

COUNT = 20
CASE = chain(["sin"] * COUNT, compare=True)
NAMES = [node.name for node in CASE.graph.compute]
#: Bytes of each value.
SIZE = 2 * 8 * 4
TRACE = Trace(
    {name: Recorded(ValueKind.TENSOR, ((i, 0),)) for i, name in enumerate(NAMES)},
    CASE.tensors,
    {name: i for i, name in enumerate(NAMES)},
)
WRONG = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, detail={"class": "value", "where": "output 0"})


class WrongFrom(Scripted):
    """Workers in which the values from a node on differ. ``asked`` has the cases."""

    def __init__(self, node: str | None) -> None:
        super().__init__()
        self.node = node
        self.asked: list[Case] = []

    def reply(self, argument: Json) -> Reply:
        case = case_from_json(argument["case"])
        self.asked.append(case)
        outputs = [item["ref"] for item in case.graph.output.args[0]["tuple"]]
        wrong = NAMES[NAMES.index(self.node) :] if self.node else []
        found = [
            {"class": "value", "where": f"output {i}", "error": 0.5} for i, name in enumerate(outputs) if name in wrong
        ]
        if not found:
            return passes()
        first, *others = found
        return fails(Failure(FailureKind.DIVERGENCE, Phase.FORWARD, detail={**first, "others": others}))


@pytest.mark.parametrize("node", [NAMES[0], NAMES[1], NAMES[7], NAMES[10], NAMES[-1]])
@pytest.mark.parametrize("values", [1, 2, 3, 5, 8, COUNT])
def test_the_first_node_is_found_with_few_values_at_a_time(node: str, values: int) -> None:
    workers = WrongFrom(node)
    found = first_node.find(workers, CASE, TRACE, WRONG, "direct", 60.0, budget=values * SIZE)
    assert found == {"node": node, "position": NAMES.index(node) + 1, "of": COUNT, "class": "value", "error": 0.5}
    assert all(len(case.graph.output.args[0]["tuple"]) <= max(2, values) for case in workers.asked)
    assert len(workers.asked) <= (1 if values == COUNT else 6)


def test_only_the_part_up_to_the_last_value_is_run() -> None:
    workers = WrongFrom(NAMES[2])
    first_node.find(workers, CASE, TRACE, WRONG, "direct", 60.0, budget=2 * SIZE)
    assert [len(case.graph.compute) for case in workers.asked] == [20, 3, 2]


def test_where_no_value_differs_there_is_no_answer() -> None:
    workers = WrongFrom(None)
    assert first_node.find(workers, CASE, TRACE, WRONG, "direct", 60.0, budget=4 * SIZE) is None
    assert len(workers.asked) == 1
