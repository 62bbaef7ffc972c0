"""Plainer values: generators instead of recorded numbers, otherwise few and short numbers.

Few recorded numbers are plainer than random ones, which need a seed and show nothing: a small tensor gets no random
numbers in their place, and a large one that has them loses them once it is small, if one number or a sequence will do.
If no generator (`fxminify.repro_templates.source.recipes`) can replace a tensor, the failure mostly needs a few of its
elements. The search `sparse` finds them: blocks of elements become zeros, or ones, then smaller blocks do. The other
elements become one round number, and NaN and infinities are replaced, if the failure does not need them. So a script
can hold the tensor as a readable literal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...repro_templates.source.elements import COMPLEX, FLOATS, INTEGERS, is_numeric, numbers, raw, strided
from ...repro_templates.source.recipes import recipes, zeros_and_ones
from ...store.document.case import Case, Json, TensorSpec
from ...store.document.names import table
from ..candidate.graph_view import Storages
from .candidates import Candidates, data_tensors, first_of, given_before, own_key, together, with_tensor
from .layouts import elements, recorded, sharers
from .searches import sparse, uniform

if TYPE_CHECKING:
    from ...repro_templates.source.elements import Array

#: The number of blocks into which the elements are divided at a time.
BLOCKS = 16
#: The most queries about the elements of one tensor.
MOST = 40
#: The most elements of a tensor that is made sparse: each candidate is a file of its size.
MOST_ELEMENTS = 1 << 20
#: The most elements of a tensor whose numbers are made round: a script shows no larger one.
READABLE = 64
#: The most elements of a tensor that is no plainer if random numbers replace its own.
FEW = 8
#: The largest integer that is taken for an index.
LARGEST_INDEX = 1 << 20
_RANDOM = ("randn", "rand", "randint")
#: Numbers besides 0 and 1 that many failures need: another magnitude, another sign, a rounding.
_TEST_NUMBERS: tuple[Any, ...] = (2.0, -1.0, 0.1, 10.0)
_TEST_NUMBERS_COMPLEX: tuple[Any, ...] = ({"complex": [0.0, 1.0]}, {"complex": [1.0, 1.0]})
#: Numbers of everyday size, which replace larger or smaller ones: people take a failure with 1e30 for no bug.
_LARGE, _SMALL = (10, 100, 1000), (0.1, 0.01, 0.001)


def plain_values(case: Case, storages: Storages) -> Candidates:
    """Replace recorded values by zeros, ones, another constant, a sequence or seeded random numbers that will do."""
    # The values of a capture without data are generated ones.
    start = case.tensors
    drawn_first = given_before(case)
    ranked = {i: list(_ranked(start[i], storages, i in drawn_first)) for i in data_tensors(case)}
    for level in range(max(map(len, ranked.values()), default=0)):
        edits = []
        for i, ways in ranked.items():
            spec = case.tensors[i]
            if level < len(ways) and (spec.storage, spec.init) == (start[i].storage, start[i].init):
                edits.append(partial(with_tensor, index=i, spec=_as(spec, ways[level])))
        case = yield from together(case, edits)
    for which in range(2):
        edits = []
        for i in ranked:
            if len(found := _constants_for(case.tensors[i], start[i], storages)) > which:
                edits.append(partial(with_tensor, index=i, spec=_filled(case.tensors[i], found[which])))
        case = yield from together(case, edits)
    for i in ranked:
        case = yield from _smallest(case, i)
    return case


def fewer_values(case: Case, storages: Storages) -> Candidates:
    """Make elements of recorded tensors zeros or ones, all but the few that the failure needs."""
    for i in data_tensors(case):
        for neutral in (0, 1):
            if _can_thin(case, i):
                smaller = yield from _thinned(case, i, neutral, storages)
                if smaller != case:
                    case = smaller
                    break
    return case


def plain_numbers(case: Case, storages: Storages) -> Candidates:
    """Make the numbers of small tensors one and the same, finite, of everyday size and round."""
    for i in data_tensors(case):
        spec = case.tensors[i]
        if not is_numeric(spec.dtype) or spec.dtype == "bool" or spec.numel == 0:
            continue
        if spec.init is not None:
            ways = [*_constants(spec), *_without_seed(spec)]
            made = [with_tensor(case, i, replace(spec, init=init)) for init in ways]
            case = yield from first_of(case, made)
        elif spec.storage is not None and spec.numel <= READABLE and len(sharers(case, spec.storage)) == 1:
            simpler = [_like(spec, storages, number) for number in (0, 1)]
            case = yield from first_of(case, [with_tensor(case, i, made) for made in simpler if made is not None])
            for change in (_one_number, _finite, *_EVERYDAY, _whole, _short(1), _short(2), _short(3)):
                candidate = _changed(case, i, change, storages)
                if candidate != case and (yield candidate):
                    case = candidate
    return case


def _as(spec: TensorSpec, way: TensorSpec) -> TensorSpec:
    return replace(way, requires_grad=spec.requires_grad)


def _ranked(spec: TensorSpec, storages: Storages, drawn_first: bool) -> Iterator[TensorSpec]:
    """``spec`` with each generator to try, the simplest first; with no random ones if it is ``drawn_first``, or small.

    Random numbers are drawn for the last call only, so earlier calls cannot have them.
    """
    drawn_first = drawn_first or spec.numel <= FEW
    if spec.storage is None:
        init = spec.init or {}
        if init.get("fn") in (*_RANDOM, "arange"):
            yield from zeros_and_ones(spec)
        if "std" in init:
            yield replace(spec, init={"fn": "randn"})
        return
    for made in recipes(spec, storages[str(spec.storage)]):
        if not drawn_first or (made.init or {}).get("fn") not in _RANDOM:
            yield replace(made, conj=False, neg=False)


def _constants_for(spec: TensorSpec, was: TensorSpec, storages: Storages) -> list[int | float]:
    """Numbers to try instead of a sequence or random numbers: the largest and the smallest integer that there ``was``,
    or 2, because many operations leave 0 and 1 as they are, and 10, because many a bound is near."""
    init = spec.init or {}
    if init.get("fn") not in (*_RANDOM, "arange") or not spec.numel or spec.dtype == "bool":
        return []
    if spec.dtype not in INTEGERS:
        return [2.0, 10.0] if spec.dtype in FLOATS else []
    if was.storage is not None:
        values = strided(numbers(was.dtype, storages[was.storage]), was.shape, was.stride, was.offset)
        ends = [int(values.max()), int(values.min())]
    else:
        ends = [int(init.get("high", spec.numel)) - 1, int(init.get("low", 0))]
    return [n for n in ends if n not in (0, 1)]


def _filled(spec: TensorSpec, value: float) -> TensorSpec:
    return replace(spec, init={"fn": "full", "value": value})


def _smallest(case: Case, index: int) -> Candidates:
    """The integer nearest to 0 that will do where one fills a tensor: it is mostly an index, and a bound of a size."""
    spec = case.tensors[index]
    value = (spec.init or {}).get("value")
    if spec.dtype not in INTEGERS or not isinstance(value, int) or not 1 < abs(value) <= LARGEST_INDEX:
        return case
    sign, fails, passes = (-1, -value, 0) if value < 0 else (1, value, 1)
    plainest = yield from first_of(case, [with_tensor(case, index, _filled(spec, number)) for number in (0, 1)])
    if plainest != case:
        return plainest
    while fails - passes > 1:
        middle = (passes + fails) // 2
        candidate = with_tensor(case, index, _filled(spec, sign * middle))
        if (yield candidate):
            case, fails = candidate, middle
        else:
            passes = middle
    return case


def _can_thin(case: Case, index: int) -> bool:
    spec = case.tensors[index]
    return spec.storage is not None and 1 < spec.numel <= MOST_ELEMENTS and len(sharers(case, spec.storage)) == 1


def _thinned(case: Case, index: int, neutral: int, storages: Storages) -> Candidates:
    """Candidates in which few elements of one tensor differ from ``neutral``."""
    import numpy as np

    spec = case.tensors[index]
    size = table().dtypes[spec.dtype]
    try:
        filler = raw(spec.dtype, np.array([neutral])) if neutral else bytes(size)
    except ValueError:
        return case
    data = np.frombuffer(storages[str(spec.storage)], dtype="u1")
    cells = data[: len(data) // size * size].reshape(-1, size)
    reached = np.zeros(len(cells), dtype=bool)
    reached[np.unique(strided(np.arange(len(cells)), spec.shape, spec.stride, spec.offset))] = True
    blank = np.frombuffer(filler, dtype="u1")
    live = np.flatnonzero(reached & (cells != blank).any(axis=1))

    def candidate(kept: Array) -> Case:
        made = np.where(reached[:, None], blank, cells)
        made[kept] = cells[kept]
        key = own_key(made.tobytes(), index)
        storages.put({key: made.tobytes()})
        return with_tensor(case, index, replace(spec, storage=key))

    best, left = case, MOST
    while len(live) > 1:
        blocks = np.array_split(live, min(BLOCKS, len(live)))
        search = sparse(uniform(len(blocks)))
        before = len(live)
        try:
            chosen = next(search)
            while True:
                kept = np.concatenate([blocks[b] for b in chosen])
                same = len(kept) == len(live)
                if not same and left:
                    left -= 1
                    same = yield candidate(kept)
                    if same:
                        best, live = candidate(kept), kept
                chosen = search.send(same)
        except StopIteration:
            pass
        if len(live) * 2 > before or not left:
            break
    return best


def _like(spec: TensorSpec, storages: Storages, number: int) -> TensorSpec | None:
    """``spec`` with every element 0 or 1, as ``number`` says; None if no generator makes that."""
    ways = recipes(spec, storages[str(spec.storage)])
    wanted = (number, float(number), {"complex": [float(number), 0.0]})
    return next((replace(w, conj=False, neg=False) for w in ways if (w.init or {}).get("value", "") in wanted), None)


def _constants(spec: TensorSpec) -> Iterator[Json]:
    """Yield generators of a constant that are simpler than the generator of ``spec``."""
    init = spec.init or {}
    value = init.get("value")
    if init.get("fn") != "full" or not isinstance(value, int | float) or isinstance(value, bool) or value in (0, 1):
        return
    whole = spec.dtype in INTEGERS
    sizes = _LARGE if abs(value) > max(_LARGE) else _SMALL if 0 < abs(value) < min(_SMALL) else ()
    everyday = [math.copysign(size, value) for size in sizes]
    found = [0, 1, *everyday, *(_rounded(float(value), digits) for digits in (1, 2, 3))]
    for number in dict.fromkeys(int(n) if whole else float(n) for n in found):
        if number != value:
            yield {"fn": "full", "value": number}


def _without_seed(spec: TensorSpec) -> Iterator[Json]:
    """Yield replacements for random numbers or a sequence in a small tensor: constants first, then a sequence."""
    fn = (spec.init or {}).get("fn")
    if fn not in (*_RANDOM, "arange") or spec.numel > READABLE:
        return
    yield from (made.init or {} for made in zeros_and_ones(spec))
    telling = _TEST_NUMBERS if spec.dtype in FLOATS else _TEST_NUMBERS_COMPLEX if spec.dtype in COMPLEX else ()
    yield from ({"fn": "full", "value": number} for number in telling)
    if fn != "arange":
        if spec.dtype in FLOATS or (spec.dtype in INTEGERS and spec.numel < (spec.init or {}).get("high", 0) + 1):
            yield {"fn": "arange"}
    elif spec.numel > 2:
        last = spec.numel - 1
        yield {"fn": "full", "value": last if spec.dtype in INTEGERS else float(last)}


def _changed(case: Case, index: int, change: Callable[[Array], Array | None], storages: Storages) -> Case:
    """``case`` with the numbers of one tensor changed; the same case if that is not possible or changes nothing."""
    import numpy as np

    spec = case.tensors[index]
    if spec.storage is None:
        return case
    cells = np.ascontiguousarray(elements(spec, storages))
    with np.errstate(all="ignore"):
        values = change(numbers(spec.dtype, cells.tobytes()))
    try:
        data = cells.tobytes() if values is None else raw(spec.dtype, values)
    except ValueError:
        return case
    if data == cells.tobytes():
        return case
    fresh = np.frombuffer(data, dtype=cells.dtype).reshape(cells.shape)
    return with_tensor(case, index, recorded(spec, fresh, spec.stride, index, storages))


def _one_number(values: Array) -> Array | None:
    """``values`` with the largest one instead of any that is not 0 or 1."""
    import numpy as np

    odd = (values != 0) & (values != 1) & np.isfinite(values)
    if not odd.any():
        return None
    chosen = values[odd][np.abs(values[odd].astype("c16" if np.iscomplexobj(values) else "f8")).argmax()]
    return np.where(odd, chosen, values)


def _finite(values: Array) -> Array | None:
    """``values`` with 1 instead of NaN and infinities."""
    import numpy as np

    return np.where(np.isfinite(values), values, np.ones_like(values))


def _at_most(size: float) -> Callable[[Array], Array | None]:
    """Numbers beyond the everyday become ``size``, with their sign."""

    def change(values: Array) -> Array | None:
        import numpy as np

        if values.dtype.kind == "c" or not (large := np.abs(values.astype("f8")) > max(_LARGE)).any():
            return None
        return np.where(large, np.copysign(size, values.astype("f8")), values).astype(values.dtype)

    return change


def _at_least(size: float) -> Callable[[Array], Array | None]:
    """Numbers between 0 and the everyday become ``size``, with their sign."""

    def change(values: Array) -> Array | None:
        import numpy as np

        if values.dtype.kind != "f" or not (small := (values != 0) & (np.abs(values) < min(_SMALL))).any():
            return None
        return np.where(small, np.copysign(size, values), values).astype(values.dtype)

    return change


#: Changes of numbers to everyday ones, the plainest first. The first that will do leaves the later ones nothing.
_EVERYDAY = (*map(_at_most, _LARGE), *map(_at_least, _SMALL))


def _whole(values: Array) -> Array | None:
    """``values`` rounded away from zero, because failures mostly need values that are large enough."""
    import numpy as np

    if values.dtype.kind != "f":
        return None
    return np.where(np.isfinite(values), np.copysign(np.ceil(np.abs(values)), values), values)


def _short(digits: int) -> Callable[[Array], Array | None]:
    def change(values: Array) -> Array | None:
        import numpy as np

        if values.dtype.kind == "c":
            return None
        rounded: list[Any] = [_rounded(v, digits) for v in values.reshape(-1).tolist()]
        if values.dtype.kind in "iu":
            return np.array([int(v) for v in rounded]).astype(values.dtype)
        return np.array(rounded, dtype=values.dtype)

    return change


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else value
