"""The order of cases: what *smaller* means, and why a reduction ends.

The size of a case is a tuple of natural numbers, the most important first. Only a case with a smaller tuple may replace
the best case. No sequence of such tuples descends for ever, so every reduction ends. The numbers are:

1. compute nodes, including the nodes of subgraphs;
2. nodes that are not part of a decomposition, so a composite operation is larger than one part of it;
3. returned values;
4. inputs, including the inputs of subgraphs;
5. the ranks of the called operations: the plain operation of each form has the lowest (`RANKS`);
6. literal arguments, the items of lists included;
7. the sum of the weights of the numbers among them (`weight`).

Counting the nodes nearly always decides. The other numbers are computed only if it does not. The share of each node is
computed once, because candidates share most of their nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...store.document.case import Case, Graph, Node, Value, tag, target_name

Size = tuple[int, ...]

#: Between the name of a composite node and the number of one of its parts.
PART = "__part"
#: A node that comes from so many decompositions is not decomposed again.
DEEPEST = 3

#: The ranks of plain operations; any other operation has the rank `OTHER`. Rank 0 holds one operation of each form:
#: one tensor to one of the same type, two tensors to one, a comparison, a reduction, another shape, another dtype.
#: Some forms have a second operation, for failures that the first one does not show.
RANKS: Mapping[str, int] = {
    **dict.fromkeys(("neg", "logical_not", "add", "eq", "sum", "reshape", "view", "to", "_to_copy", "zeros"), 0),
    **dict.fromkeys(("relu", "mul", "amax", "any"), 1),
    "getitem": 0,
}
OTHER = 2


def size(case: Case) -> Size:
    """The size of ``case``, as the module says."""
    return SizeCache().size(case)


class SizeCache:
    """Computes sizes of cases that share most of their nodes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, Size]] = {}
        self._counted: dict[int, tuple[Graph, int]] = {}

    def size(self, case: Case) -> Size:
        """The size of ``case``, as the module says."""
        total = [0] * 7
        self._add(case.graph, total)
        return tuple(total)

    def nodes(self, case: Case) -> int:
        """The number of compute nodes of ``case``, which is the first number of its size."""
        known = self._counted.get(id(case.graph))
        if known is None or known[0] is not case.graph:
            if len(self._counted) >= 8:  # the best case, and those that are asked about
                del self._counted[next(iter(self._counted))]
            known = self._counted[id(case.graph)] = case.graph, case.graph.count
        return known[1]

    def is_smaller(self, case: Case, than: Case) -> bool:
        """Whether ``case`` is smaller than ``than``."""
        one, other = self.nodes(case), self.nodes(than)
        return one < other if one != other else self.size(case) < self.size(than)

    def _add(self, graph: Graph, total: list[int]) -> None:
        compute = composite = inputs = ranks = written = numbers = 0
        for node in graph.nodes:
            if node.is_compute:
                known = self._known.get(id(node))
                a, b, c, d = known[1] if known is not None and known[0] is node else self._weigh(node)
                compute += 1
                composite += a
                ranks += b
                written += c
                numbers += d
            elif node.op == "placeholder":
                inputs += 1
        for i, more in enumerate((compute, composite, len(graph.output.inputs), inputs, ranks, written, numbers)):
            total[i] += more
        for attr in graph.attrs.values():
            if "graph" in attr:
                self._add(attr["graph"], total)

    def _weigh(self, node: Node) -> Size:
        if len(self._known) > 100_000:
            self._known.clear()
        values = [*node.args, *node.kwargs.values()]
        found = (
            max(0, DEEPEST - generation(node.name)),
            rank(node),
            sum(map(_written, values)),
            sum(map(weight, values)),
        )
        self._known[id(node)] = node, found
        return found


def generation(name: str) -> int:
    """From how many decompositions, one inside another, a node of this name comes."""
    return name.count(PART)


def rank(node: Node) -> int:
    """The rank of the operation that ``node`` calls; lower is plainer."""
    return RANKS.get(target_name(node), OTHER)


def weight(value: Value) -> int:
    """The weight of an argument: 0 for 0, None and False, twice the size of an integer, more for fractions."""
    if value is None or value is False or value == 0:
        return 0
    if type(value) is int:
        return 2 * abs(value) + (value < 0)
    if type(value) is float:
        return weight(int(value)) + (0 if value.is_integer() else 3)
    if type(value) is list:
        return sum(map(weight, value))
    kind = tag(value)
    inside: Any = value[kind] if kind is not None else None
    if kind == "ref" or value is True:
        return 1
    if kind == "float":
        return 1 << 64
    if kind == "dict":
        return sum(weight(item) for _, item in inside)
    if isinstance(inside, list) and kind in ("tuple", "size", "slice", "set", "frozenset"):
        return sum(map(weight, inside))
    return 2


def _written(value: Value) -> int:
    if type(value) is list:
        return 1 + sum(map(_written, value))
    kind = tag(value)
    if kind == "dict":
        return 1 + sum(_written(item) for _, item in value[kind])
    if kind in ("tuple", "size", "set", "frozenset"):
        return 1 + sum(map(_written, value[kind]))
    return 1
