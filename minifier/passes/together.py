"""Arguments and sizes that only change together: a convolution without ``groups`` needs fewer channels.

The other passes change one thing at a time. This pass completes a change that eager refuses: it changes one or two
further sizes or numbers of the case, so that eager accepts all of them together. It finds them by asking eager
(`GraphView.valid`), not by knowledge about operators, so it works for unknown operators too. Only completed changes
are queries, and only changes that could not be queried alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ...store.document.case import Case, Node, Value
from ..candidate.graph_view import GraphView, Storages
from ..candidate.patch import Patch, apply
from ..candidate.rewriting import Omit, Place, Put, get, put
from ..candidate.validity import zeros
from .arguments import counts, lists, omissions
from .dimensions import Places, changeable, resized
from .proposal import Problem

#: With more compute nodes than this, too many things could change.
MOST_NODES = 12
#: The most single changes, and pairs of them, with which one edit is completed.
MOST_CHANGES, MOST_PAIRS = 80, 160
#: The most edits that are completed for one case.
MOST_EDITS = 24

#: A change of a case, which leaves the order of its tensors as it is.
Change = Callable[[Case, Storages], Case]


@dataclass(frozen=True, slots=True)
class Completed:
    """Candidates of one step, the one that changes least first. The first that fails is kept."""

    cases: tuple[Case, ...]
    again: bool = True
    may_grow: bool = True

    def start(self, problem: Problem) -> Generator[Case, bool, None]:
        for case in self.cases:
            if (yield case):
                return

    def candidate(self, view: GraphView, choice: Case) -> Case:
        return choice


def with_arguments(view: GraphView, step: int) -> Completed | None:
    """The first step leaves out all arguments that can only go with sizes, each further step one of them. Then numbers
    become 1 or 2."""
    if _is_large(view):
        return None
    left_out = _refused(view, [*omissions(view), *lists(view)])
    smaller = _refused(view, list(_smaller_numbers(view)))
    edits = [*left_out, *smaller][:MOST_EDITS]
    if step == 0 and len(left_out) > 1:
        case = view.case
        for patch, by in left_out[:MOST_EDITS]:
            inner = view.after(case)
            made = apply(inner, patch)
            completed = () if made is None else _complete(inner, made, by)
            case = completed[0] if completed else case
        return Completed((case,) if case != view.case else ())
    at = step - (len(left_out) > 1)
    if at >= len(edits):
        return None
    patch, by = edits[at]
    made = apply(view, patch)
    return Completed(() if made is None else _complete(view, made, by))


def with_sizes(view: GraphView, step: int) -> Completed | None:
    """Each step makes one size smaller that eager requires to change with others."""
    assert view.storages is not None
    if _is_large(view) or any(isinstance(v, dict) and "sym" in v for v in view.case.inputs):
        return None
    wanted = list(_smaller_sizes(view.case))[: 2 * MOST_EDITS]
    bare = _bare(view.case)
    alone = [resized(bare, {old: new}, "none", view.storages, only) for only, old, new in wanted]
    edits = [edit for edit, valid in zip(wanted, view.valid(alone), strict=True) if not valid][:MOST_EDITS]
    if step >= len(edits):
        return None
    only, old, new = edits[step]
    made = resized(view.case, {old: new}, "none", view.storages, only)
    smaller = [c for c in _complete(view, made, ((old, new),), only) if _elements(c) < _elements(view.case)]
    return Completed(tuple(smaller))


def _is_large(view: GraphView) -> bool:
    return view.validity is None or view.storages is None or len(view.case.graph.compute) > MOST_NODES


#: A patch, and the numbers that it makes smaller, each as ``(old, new)``.
_Edit = tuple[Patch, tuple[tuple[int, int], ...]]


def _refused(view: GraphView, patches: Sequence[Patch]) -> list[_Edit]:
    """The edits that eager refuses alone."""
    made = [(patch, case) for patch in patches if (case := apply(view, patch)) is not None and case != view.case]
    valid = view.valid([case for _, case in made])
    return [(patch, _numbers_of(view, patch)) for (patch, _), ok in zip(made, valid, strict=True) if not ok]


def _numbers_of(view: GraphView, patch: Patch) -> tuple[tuple[int, int], ...]:
    """The numbers above 1 that ``patch`` replaces or leaves out; what is left out mostly has the default 1."""
    found: list[tuple[int, int]] = []
    for edit in patch.edits:
        node = view.nodes.get(getattr(edit, "node", ""))
        if node is None:
            continue
        if isinstance(edit, Put):
            old = get(node, edit.place)
            found += [(old, edit.value)] if type(old) is int and type(edit.value) is int else []
        elif isinstance(edit, Omit):
            value = get(node, (edit.argument,))
            found += [(value, 1)] if type(value) is int and value > 1 else []
    return tuple(found)


def _smaller_numbers(view: GraphView) -> Iterator[Patch]:
    for path, node, place, value in counts(view):
        for number in (1, 2):
            if type(value) is int and value > number:
                yield Patch(edits=(Put(path, node.name, place, number),))


def _smaller_sizes(case: Case) -> Iterator[tuple[Places, int, int]]:
    """Each dimension with its size and a smaller one, the largest first."""
    found = [(size, i, d) for i in changeable(case) for d, size in enumerate(case.tensors[i].shape) if size > 1]
    for size, i, d in sorted(found, key=lambda f: -f[0]):
        for new in dict.fromkeys((1, 2, size // 2)):
            if new < size:
                yield frozenset({(i, d)}), size, new


def _complete(
    view: GraphView, case: Case, by: tuple[tuple[int, int], ...], fixed: Places = frozenset()
) -> tuple[Case, ...]:
    """``case`` with the first further change that makes it valid, and with the one that makes it smallest.

    ``by`` are the numbers that became smaller in it, and ``fixed`` the dimensions.
    """
    assert view.storages is not None
    storages, bare = view.storages, _bare(case)
    if all(view.valid([bare])):
        return (case,)
    changes = list(_changes(case, by, fixed))[:MOST_CHANGES]
    ways: list[tuple[Change, ...]] = [(change,) for change in changes]
    for some in (ways, list(combinations(changes, 2))[:MOST_PAIRS]):
        made = [_changed(bare, way, storages) for way in some]
        told = view.valid(made)
        found = [(way, small) for way, small, valid in zip(some, made, told, strict=True) if valid and small != bare]
        if found:
            smallest = min(found, key=lambda f: _elements(f[1]))
            chosen = [found[0][0], *([smallest[0]] if _elements(smallest[1]) < _elements(found[0][1]) else [])]
            return tuple(_changed(case, way, storages) for way in chosen)
    return ()


def _changes(case: Case, by: tuple[tuple[int, int], ...], fixed: Places) -> Iterator[Change]:
    """Changes of single sizes and numbers, those that leave most as it is first."""
    places = [(i, d, s) for i in changeable(case) for d, s in enumerate(case.tensors[i].shape) if (i, d) not in fixed]
    sizes = sorted({s for _, _, s in places if s > 1}, reverse=True)
    ratios = [old // new for old, new in by if new and old % new == 0]
    for old, new in by:
        for i, d, s in places:
            if s == old:
                yield _resizing({s: new}, "none", frozenset({(i, d)}))
        yield from (_numbering(node.name, place, new) for node, place, value in _integers(case) if value == old)
    for n in ratios:
        for i, d, s in places:
            if s % n == 0:
                yield _resizing({s: s // n}, "none", frozenset({(i, d)}))
        yield from (_resizing({s: s // n}, "lists") for s in sizes if s % n == 0)
        yield from (_numbering(node.name, p, value // n) for node, p, value in _integers(case) if value % n == 0)
    for new in (2, 1):
        for follow in ("lists", "all", "none"):
            yield from (_resizing({s: new}, follow) for s in sizes if s > new)
        yield from (_resizing({s: new}, "none", frozenset({(i, d)})) for i, d, s in places if s > new)
        yield from (_numbering(node.name, place, new) for node, place, value in _integers(case) if value > new)
    for n in ratios:
        for i, d, s in places:
            if case.tensors[i].storage is None:
                yield _resizing({s: s * n}, "none", frozenset({(i, d)}))


def _integers(case: Case) -> Iterator[tuple[Node, Place, int]]:
    """The integers above 1 that are arguments by themselves."""
    for node in case.graph.compute:
        values: list[tuple[int | str, Value]] = [*enumerate(node.args), *node.kwargs.items()]
        for place, value in values:
            if type(value) is int and value > 1:
                yield node, (place,), value


def _resizing(sizes: dict[int, int], follow: str, only: Places | None = None) -> Change:
    return lambda case, storages: resized(case, sizes, follow, storages, only)


def _numbering(name: str, place: Place, value: Value) -> Change:
    def change(case: Case, storages: Storages) -> Case:
        nodes = tuple((put(n, place, value) or n) if n.name == name else n for n in case.graph.nodes)
        return replace(case, graph=replace(case.graph, nodes=nodes))

    return change


def _changed(case: Case, way: Sequence[Change], storages: Storages) -> Case:
    for change in way:
        case = change(case, storages)
    return case


def _bare(case: Case) -> Case:
    """``case`` without recorded values: whether it is valid does not depend on them, and they take time to cut."""

    tensors = (spec if spec.storage is None else zeros(spec) for spec in case.tensors)
    return replace(case, tensors=tuple(tensors))


def _elements(case: Case) -> int:
    return sum(spec.numel for spec in case.tensors)
