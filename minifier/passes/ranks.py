"""Fewer dimensions where only some tensors can lose one, or where arguments name dimensions.

`fewer_dimensions` takes leading dimensions of size 1 from all tensors. This pass takes one dimension of size 1 from the
tensors of the highest rank, or from one tensor, and the arguments follow: numbers of dimensions (``dim=2``,
``permute(0, 2, 1)``) and lists with a size for each dimension (``expand(1, 1, 4)``). Where no dimension can go, two
neighbours become one: shape (2, 2) becomes (4,). It asks only about what eager accepts (`GraphView.valid`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from ...store.document.case import Case, Node, TensorSpec, Value, tag, target_name
from ..candidate.graph_view import GraphView
from ..candidate.rewriting import inside
from .arguments import DIMENSIONS, parameter
from .dimensions import changeable
from .together import Completed

#: The most candidates that are asked about for one case.
MOST = 4
#: With more compute nodes than this, too many arguments could follow.
MOST_NODES = 12
#: Calls whose numbers name all dimensions of a tensor, each once.
_PERMUTING = ("permute", "permute_copy")


def fewer_ranks(view: GraphView, step: int) -> Completed | None:
    """The first step takes all dimensions away that can go in eager, with the numbers that name them, each further step
    one."""
    if view.validity is None or len(view.case.graph.compute) > MOST_NODES:
        return None
    if any(tag(value) == "sym" for value in view.case.inputs) or view.case.earlier:
        return None
    found, made_by = _possible(view, _lower), _lower
    if not found:
        found, made_by = _possible(view, _joined), _joined
    if step > min(len(found), MOST) or not found:
        return None
    if step > 0:
        return Completed((found[step - 1],))
    lowest = found[0]
    while further := _possible(view.after(lowest), made_by):
        lowest = further[0]
    return Completed((lowest,), again=False)


def _possible(view: GraphView, made_by: Callable[[GraphView], Iterator[Case]]) -> list[Case]:
    """The candidates that eager accepts."""
    made = list(made_by(view))
    return [case for case, valid in zip(made, view.valid(made), strict=True) if valid]


def _lower(view: GraphView) -> Iterator[Case]:
    """Candidates with one dimension less in some tensors, the highest ranks first, leading dimensions first."""
    case = view.case
    shapes = {i: case.tensors[i].shape for i in changeable(case) if not case.tensors[i].dynamic}
    rank = max(map(len, shapes.values()), default=0)
    highest = [i for i, shape in shapes.items() if len(shape) == rank]
    groups = [highest, *([i] for i in shapes if [i] != highest)]
    seen: list[Case] = []
    for group in groups:
        length = len(shapes[group[0]]) if group else 0
        for d in range(length if length > 1 else 0):
            if any(shapes[i][d] != 1 for i in group):
                continue
            for follow in (True, False):
                lower = _without(view, group, d, length, follow=follow)
                if lower not in seen:
                    seen.append(lower)
                    yield lower


def _joined(view: GraphView) -> Iterator[Case]:
    """Candidates in which two neighbouring dimensions of all tensors of the highest rank are one."""
    case = view.case
    plain = [i for i in changeable(case) if not case.tensors[i].dynamic]
    rank = max((len(case.tensors[i].shape) for i in plain), default=0)
    highest = [i for i in plain if len(case.tensors[i].shape) == rank]
    for d in range(rank - 1):
        specs = [case.tensors[i] for i in highest]
        if any(1 in s.shape[d : d + 2] or s.stride[d] != s.stride[d + 1] * s.shape[d + 1] for s in specs):
            continue
        tensors = list(case.tensors)
        for i, s in zip(highest, specs, strict=True):
            size = s.shape[d] * s.shape[d + 1]
            tensors[i] = replace(
                s, shape=(*s.shape[:d], size, *s.shape[d + 2 :]), stride=(*s.stride[:d], *s.stride[d + 1 :])
            )
        yield _with_tensors(case, tensors)


def _without(view: GraphView, group: Collection[int], d: int, rank: int, *, follow: bool) -> Case:
    """The case without dimension ``d`` of the tensors in ``group``, which have ``rank`` dimensions."""
    case = view.case
    tensors = list(case.tensors)
    for i in group:
        spec = tensors[i]
        tensors[i] = replace(
            spec, shape=spec.shape[:d] + spec.shape[d + 1 :], stride=spec.stride[:d] + spec.stride[d + 1 :]
        )
    return _with_tensors(case, tensors, lambda node: _following(view, node, d, rank) if follow else node)


def _with_tensors(
    case: Case, tensors: Sequence[TensorSpec], follow: Callable[[Node], Node] = lambda node: node
) -> Case:
    """The case with these tensors. ``follow`` changes each compute node."""
    given = dict(zip((n.name for n in case.graph.placeholders), case.inputs, strict=True))

    def changed(node: Node) -> Node:
        made = follow(node) if node.is_compute else node
        value = given.get(node.name)
        meta = {k: v for k, v in node.meta.items() if k != "shape"}
        if isinstance(value, dict) and "tensor" in value:
            meta["shape"] = list(tensors[value["tensor"]].shape)
        return replace(made, meta=meta)

    return replace(case, tensors=tuple(tensors), graph=case.graph.map_nodes(changed))


def _following(view: GraphView, node: Node, d: int, rank: int) -> Node:
    """``node`` with arguments for a tensor that lost dimension ``d`` of ``rank``."""
    numbers = [a for a in node.args if type(a) is int]
    if node.op == "call_method" and len(numbers) == rank == len(node.args) - 1:
        return replace(node, args=(*node.args[:1], *_list(numbers, d, rank, named=target_name(node) in _PERMUTING)))

    def followed(place: int | str, value: Value) -> Value:
        named = parameter(view, node, place) in DIMENSIONS or target_name(node) in _PERMUTING
        items = inside(value)
        if items is not None and items and all(type(item) is int for item in items):
            kind = tag(value)
            if named and len(items) < rank:
                left = [_dimension(item, d, rank) for item in items]
            else:
                left = _list(items, d, rank, named=named) if len(items) == rank else items
            return left if kind is None else {kind: left}
        return _dimension(value, d, rank) if named and type(value) is int else value

    args = tuple(followed(i, value) for i, value in enumerate(node.args))
    return replace(node, args=args, kwargs={k: followed(k, v) for k, v in node.kwargs.items()})


def _list(items: Sequence[int], d: int, rank: int, *, named: bool) -> list[int]:
    """A list with an item for each dimension, without that for ``d``: one that names dimensions, or one of sizes."""
    if named:
        return [_dimension(item, d, rank) for item in items if item % rank != d]
    return [item for i, item in enumerate(items) if i != d]


def _dimension(item: int, d: int, rank: int) -> int:
    """Return the new number of the dimension ``item`` after the dimension ``d`` of ``rank`` dimensions was removed.

    For ``d`` itself, return the number of the dimension that takes its place.
    """
    if item >= 0:
        return item - 1 if item > d or item == rank - 1 else item
    return item + 1 if item + rank < d or item == -rank else item
