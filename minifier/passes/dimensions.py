"""Smaller dimensions, and fewer. The result for a failure that does not depend on sizes has sizes of 1.

Dimensions of one size count as one dimension, so all of them change together. The numbers of that value in the graph
change with them: first those in lists (``view(x, [2, 12, 32])``), then all, then none, then all together with the sizes
that are multiples of it, or products of it and others (4096 of ``view(x, [1, 16, 16, 16])``). If several dimensions
have the same size, those that had another size in common before are tried together, then those at one position in all
tensors, then single ones. The eager run of a candidate shows whether it still is a valid program.

A recorded tensor keeps the order of its strides and a window of its elements, the first window that is not all zeros.
If the failure needs a size, the smallest one that fails is searched for in leaps, then by bisection, so that the result
shows vector widths, block sizes and thresholds (``17``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...store.document.case import Case, Node, TensorSpec, Value, tag
from ..candidate.graph_view import Storages
from .candidates import Candidates
from .layouts import elements, gapless, recorded, sharers

if TYPE_CHECKING:
    from ...repro_templates.source.elements import Array

#: The most candidates for one case.
MOST = 48
#: The factor from a size that is too small to the next one: needed sizes are mostly small, such as 2, 8 or 17.
LEAP = 4
#: Methods whose arguments are sizes.
_RESHAPING = ("view", "reshape", "expand")
#: Which numbers of the graph follow a size.
_FOLLOW = ("lists", "all", "none")
#: Dimensions, each as ``(tensor, dimension)``.
Places = frozenset[tuple[int, int]]


def smaller_dimensions(case: Case, storages: Storages) -> Candidates:
    """Make dimensions smaller. Dimensions of equal size change together. Most failures do not depend on sizes."""
    left, once, known = MOST, case, made(case)
    # torch specializes the sizes 0 and 1, so the smallest symbolic size is 2.
    least = 2 if any(tag(value) == "sym" for value in case.inputs) else 1

    def ask(
        sizes: Mapping[int, int], only: Places | None = None, follow: tuple[str, ...] = _FOLLOW
    ) -> Generator[Case, bool, Case | None]:
        nonlocal left
        asked: list[Case] = []
        ways = [(sizes, way) for way in (follow if only is None else ("none",))]
        if only is None and (whole := multiples(case, sizes)) != sizes:
            ways.append((whole, "all"))
        if only is None and (whole := products(case, sizes)) != sizes:
            ways += [(whole, way) for way in _FOLLOW[:2]]
        for changed, way in ways:
            candidate = resized(case, changed, way, storages, only)
            if candidate not in (case, *asked) and left > 0:
                left -= 1
                asked.append(candidate)
                if (yield candidate):
                    return candidate
        return None

    for size in range(least, 3):
        case = (yield from ask({s: size for s in sizes_of(case) | made(case, known) if s > size})) or case
    for size in factors(case):
        case = (yield from ask({size: least}, follow=())) or case
    present = sizes_of(case) | made(case, known)
    # Multiples of other sizes come last: they mostly change with those.
    for size in sorted(present, key=lambda s: (any(o > 2 and o != s and s % o == 0 for o in present), -s)):
        low, best, smaller = least - 1, size, case
        # A size stays if the failure occurs neither with the least size, nor with half of it (and half of it that is
        # even or odd as the size is), nor with one less.
        half = size // 2
        first = [least, half, *([half + 1] if (half - size) % 2 else []), size - 1]
        while best - low > 1 and (best < size or first):
            trial = first.pop(0) if best == size else LEAP * low if LEAP * low < best else (low + best) // 2
            if not low < trial < best:
                continue
            found = yield from ask({size: trial}, follow=_FOLLOW if trial == least else _FOLLOW[:2])
            if found is None:
                low = trial
            else:
                smaller, best = found, trial
        case = smaller
        for group in groups(case, best, once) if best > least else ():
            case = (yield from ask({best: least}, group)) or case
    return case


def fewer_dimensions(case: Case, storages: Storages) -> Candidates:
    """Leave out dimensions of size 1, in all tensors together: leading ones, all or else one after another, and
    then trailing ones behind a larger dimension."""
    if any(tag(value) == "sym" for value in case.inputs):
        return case
    rank = max((len(case.tensors[i].shape) for i in changeable(case)), default=0)
    for least in (1, *range(rank - 1, 1, -1)):
        candidate = of_rank(case, least)
        if candidate != case and (yield candidate):
            case = candidate
        elif least > 1:
            break
    while (candidate := without_last(case)) != case and (yield candidate):
        case = candidate
    return case


def without_last(case: Case) -> Case:
    """``case`` without the last dimension of its tensors, where that is 1 and one of them has a larger dimension."""
    tensors, larger = list(case.tensors), False
    for i in changeable(case):
        spec = tensors[i]
        if len(spec.shape) > 1 and spec.shape[-1] == 1 and not spec.dynamic:
            tensors[i] = replace(spec, shape=spec.shape[:-1], stride=spec.stride[:-1])
            larger = larger or spec.numel > 1
    return _with(case, tensors, {}, "none") if larger else case


def of_rank(case: Case, rank: int) -> Case:
    """``case`` without leading dimensions of size 1 in tensors of more than ``rank`` dimensions."""
    tensors = list(case.tensors)
    for i in changeable(case):
        spec, left = tensors[i], 0
        while len(spec.shape) - left > rank and spec.shape[left] == 1:
            left += 1
        if left and not spec.dynamic:
            tensors[i] = replace(spec, shape=spec.shape[left:], stride=spec.stride[left:])
    return case if tuple(tensors) == case.tensors else _with(case, tensors, {}, "none")


def factors(case: Case) -> list[int]:
    """Sizes that the graph names and of which tensors have only multiples, such as heads: ``view(2, 16, 3, 4, 8)``."""
    sizes = sizes_of(case)
    found: set[int] = set()
    for node in case.graph.compute:
        found.update(n for value in (*node.args, *node.kwargs.values()) for n in _listed(value))
        found.update(a for a in node.args if node.target in _RESHAPING and type(a) is int)
    return sorted((n for n in found - sizes if n > 2 and any(s % n == 0 for s in sizes)), reverse=True)


def sizes_of(case: Case) -> set[int]:
    """The sizes above 1 of the tensors in `changeable`."""
    return {size for i in changeable(case) for size in case.tensors[i].shape if size > 1}


def made(case: Case, known: frozenset[int] = frozenset()) -> frozenset[int]:
    """The sizes above 1 that the graph itself names: of tensors that it makes of nothing, in ``zeros([2, 4])`` and
    ``arange(9)``, and of results, in ``interpolate(x, size=(16, 16))``.

    The shape of a result is unknown once its call has changed. Then a number in a list counts if it is above 2, which
    strides and the like seldom are, and once dimensions have changed if it is among ``known``.
    """
    found: set[int] = set()
    for node in case.graph.compute:
        shape = node.meta.get("shape")
        named = _named(node)
        if not node.inputs:
            found.update(named)
        elif isinstance(shape, list):
            found.update(n for n in named if n in shape)
        else:
            found.update(n for n in named if (n in known if known else n > 2))
    return frozenset(n for n in found if n > 1)


def _named(node: Node) -> list[int]:
    """Return the integers in list arguments of ``node``.

    Without such lists, return the integer arguments of a reshaping call or of a call without inputs.
    """
    listed = [n for value in (*node.args, *node.kwargs.values()) for n in _listed(value)]
    alone = not node.inputs or node.target in _RESHAPING
    return listed or [a for a in node.args if type(a) is int and alone]


def multiples(case: Case, sizes: Mapping[int, int]) -> dict[int, int]:
    """``sizes``; if it has one size, also the multiples of that, such as three projections in one matrix."""
    if len(sizes) != 1:
        return dict(sizes)
    ((old, new),) = sizes.items()
    return {size: size // old * new for size in sizes_of(case) if size % old == 0} | dict(sizes)


def products(case: Case, sizes: Mapping[int, int]) -> dict[int, int]:
    """Return ``sizes`` with consistent products.

    A size that is the product of neighbours in some shape becomes the product of their new sizes. The shapes are read
    from tensors, from results, and from lists of numbers in the graph.
    """
    shapes = [list(case.tensors[i].shape) for i in changeable(case)]
    for node in case.graph.nodes:
        shapes += [shape for value in (*node.args, *node.kwargs.values()) for shape in _lists(value)]
        if node.target in _RESHAPING:
            shapes.append([a if type(a) is int else -1 for a in node.args[1:]])
        if isinstance(shape := node.meta.get("shape"), list):
            shapes.append(shape)
    present = sizes_of(case) | made(case) | {n for shape in shapes for n in shape if type(n) is int}
    found = dict(sizes)
    for shape in shapes:
        larger = [n if type(n) is int and n > 0 else 0 for n in shape]
        for start in range(len(larger)):
            old, new = larger[start], sizes.get(larger[start], larger[start])
            for size in larger[start + 1 :]:
                whole = old * size
                if min(old, size) > 1 and whole in present and new * sizes.get(size, size) != sizes.get(whole, whole):
                    found[whole] = new * sizes.get(size, size)
                old, new = whole, new * sizes.get(size, size)
    return found


def _lists(value: Value) -> Iterator[list[Any]]:
    """The lists of integers in a value."""
    items = value if type(value) is list else value[kind] if (kind := tag(value)) in ("tuple", "size") else ()
    if items and any(type(item) is int for item in items):
        yield [item if type(item) is int else -1 for item in items]


def changeable(case: Case) -> list[int]:
    """Indices of the plain tensors that are inputs of a call or attributes of the graph."""
    given = [*case.inputs, *(value for call in case.earlier for value in call.values())]
    used = [v["tensor"] for v in given if tag(v) == "tensor"]
    used += [attr["tensor"] for attr in case.graph.attrs.values() if "tensor" in attr]
    plain = (i for i in dict.fromkeys(used) if case.tensors[i].layout == "strided")
    return [i for i in plain if not case.tensors[i].parts and not case.tensors[i].extra]


def groups(case: Case, size: int, once: Case) -> list[Places]:
    """Group the dimensions that have ``size``.

    The groups come in this order: equal sizes in ``once``, the case that had larger tensors; equal positions from the
    front; equal positions from the end; each dimension alone.
    """
    found = [(i, d) for i in changeable(case) for d, s in enumerate(case.tensors[i].shape) if s == size]
    were = {(i, d): once.tensors[i].shape[d] for i, d in found}
    alike = [frozenset(p for p in found if were[p] == s) for s in sorted(set(were.values()))]
    front = [frozenset((i, d) for i, d in found if d == place) for place in sorted({d for _, d in found})]
    behind = {(i, d): d - len(case.tensors[i].shape) for i, d in found}
    end = [frozenset(p for p in found if behind[p] == place) for place in sorted(set(behind.values()))]
    single = [frozenset({place}) for place in found]
    several = [group for group in alike if len(group) > 1]
    return [group for group in dict.fromkeys([*several, *front, *end, *single]) if len(group) < len(found)]


def resized(case: Case, sizes: Mapping[int, int], follow: str, storages: Storages, only: Places | None = None) -> Case:
    """``case`` with dimensions of size ``s`` made ``sizes[s]``, all of them or ``only`` some.

    ``follow`` says which numbers of the graph change too: those in ``lists``, ``all`` or ``none``.
    """
    tensors = list(case.tensors)
    for i in changeable(case):
        shape = tuple(sizes.get(s, s) if only is None or (i, d) in only else s for d, s in enumerate(tensors[i].shape))
        if shape != tensors[i].shape:
            tensors[i] = _cut(case, i, shape, storages)
    if tuple(tensors) == case.tensors and all(sizes.keys().isdisjoint(_named(node)) for node in case.graph.compute):
        return case
    if only is None:
        inputs = tuple(hinted(value, sizes) for value in case.inputs)
        earlier = tuple({name: hinted(value, sizes) for name, value in call.items()} for call in case.earlier)
        case = replace(case, inputs=inputs, earlier=earlier)
    return _with(case, tensors, sizes, follow)


def _with(case: Case, tensors: list[TensorSpec], sizes: Mapping[int, int], follow: str) -> Case:
    """``case`` with other tensors, and a graph whose numbers follow ``sizes``."""
    given = dict(zip((n.name for n in case.graph.placeholders), case.inputs, strict=True))
    graph = case.graph.map_nodes(lambda node: _resized(node, sizes, follow, given.get(node.name), tensors))
    return replace(case, tensors=tuple(tensors), graph=graph)


def hinted(value: Value, sizes: Mapping[int, int]) -> Value:
    """A symbolic size with its new number as hint. An expression of other sizes, or another value, stays."""
    if tag(value) != "sym" or not str(value["sym"].get("expr")).isidentifier():
        return value
    hint = value["sym"].get("hint")
    return {"sym": {**value["sym"], "hint": sizes[hint]}} if hint in sizes else value


def _cut(case: Case, index: int, shape: tuple[int, ...], storages: Storages) -> TensorSpec:
    """A tensor of the smaller ``shape``, in a new storage unless other tensors share its storage."""
    spec = case.tensors[index]
    packed = spec.stride == gapless(spec.shape, spec.stride)
    stride = gapless(shape, spec.stride) if packed else spec.stride
    if spec.storage is None:
        return replace(spec, shape=shape, stride=stride)
    if len(sharers(case, spec.storage)) > 1:
        return replace(spec, shape=shape)
    cells = elements(spec, storages)
    window = tuple(slice(start, start + size) for start, size in zip(_start(cells, shape), shape, strict=True))
    return recorded(spec, cells[window], stride, index, storages)


def _start(cells: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The start of a window of ``shape`` that holds the first element that is not zero."""
    import numpy as np

    raw = np.ascontiguousarray(cells).view("u1").reshape(*cells.shape, cells.itemsize)
    found = raw.any(axis=-1).reshape(-1)
    if not found.any() or found.all():
        return (0,) * len(shape)
    first = np.unravel_index(int(found.argmax()), cells.shape)
    return tuple(min(int(at), size - kept) for at, size, kept in zip(first, cells.shape, shape, strict=True))


def _resized(node: Node, sizes: Mapping[int, int], follow: str, given: Value, tensors: list[TensorSpec]) -> Node:
    """``node`` with its numbers changed as `resized` says, and with the new shape in its metadata or none."""
    if follow != "none" and node.is_compute:
        node = node.map_values(lambda value: renumbered(value, sizes, inside=follow == "all"))
    if tag(given) == "tensor":
        return replace(node, meta={**node.meta, "shape": list(tensors[given["tensor"]].shape)})
    return replace(node, meta={k: v for k, v in node.meta.items() if k != "shape"})


def _listed(value: Value) -> Iterator[int]:
    """The integers in lists."""
    items = value if type(value) is list else value[kind] if (kind := tag(value)) in ("tuple", "size") else ()
    for item in items:
        if type(item) is int:
            yield item
        else:
            yield from _listed(item)


def renumbered(value: Value, sizes: Mapping[int, int], *, inside: bool) -> Value:
    """``value`` with integers replaced by ``sizes``: those in lists, and with ``inside`` those outside of lists too."""
    if type(value) is int:
        return sizes.get(value, value) if inside else value
    if type(value) is list:
        return [renumbered(item, sizes, inside=True) for item in value]
    kind = tag(value)
    if kind in ("tuple", "size", "slice"):
        return {kind: [renumbered(item, sizes, inside=True) for item in value[kind]]}
    return value
