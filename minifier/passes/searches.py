"""Which items must stay? Searches that ask few questions, as generators that know nothing of graphs.

A search yields a set of items (ascending indices) and is sent whether the failure is still there when exactly these
stay; what it returns is a set for which the answer was yes. Being a deterministic function of the answers, it can be
replayed with assumed ones: that is how the shrinker keeps several workers busy without changing the result.

`sparse` expects that very few items matter and spends about ``log2`` of the number of *kinds* of items on each, since
bugs sit in rare operations: questions split the prior weight, not the number of items. `sweep` expects nothing and
takes one item after the other, in growing windows. Neither believes that failures are monotone: a wrong guess costs
questions, never the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Items = tuple[int, ...]
Search = Generator[Items, bool, Items]

#: How often in a row the other half is believed to hold the culprit before that is checked.
PATIENCE = 2
#: Of no more items than ``TINY``, the last ``LEAST`` are taken away one by one: each that stays is known to be needed.
TINY = 16
LEAST = 5
#: Among so few items, to look for a single culprit first saves less than it costs where there are two.
FEW = 8
#: With more items than this left, two needed ones that read each other are taken for a path, which others shorten.
PATH = 3
#: Prior weight, as a share of all others, that the next needed item reads a needed one or is read by it.
NEAR = 1.5
#: How bad it is to part two items that read each other, against an uneven cut.
TORN = 2
#: Prior weight, likewise, that nothing in the way of the longest step is needed.
NONE = 0.4


@dataclass(frozen=True, slots=True)
class Space:
    """What is known beforehand. ``weights`` are prior chances to matter, ``reads`` the items each item depends on."""

    weights: tuple[float, ...]
    reads: tuple[Items, ...] = ()

    def __len__(self) -> int:
        return len(self.weights)


def uniform(count: int) -> Space:
    return Space((1.0,) * count)


def sparse(space: Space) -> Search:
    """A set found from the assumption that few items matter. That no single one can go is for `sweep` to see.

    First the rarest items alone, then halves of the weight alone (small candidates are cheap to ask about). When
    the needed items turn out to lie apart: the last one, the first one, what lies between them in the data flow,
    then the others from the end. It stops early on a path, which other passes can shorten.
    """
    return (yield from _within(space, tuple(range(len(space)))))


def guided(space: Space, hints: Sequence[Items]) -> Search:
    """`sparse`, but sets of items that something names are asked about first, each alone."""
    for items in dict.fromkeys(hints):
        if 0 < len(items) < len(space) and (yield items):
            return items if len(items) == 1 else (yield from _within(space, items))
    return (yield from sparse(space))


def _within(space: Space, window: Items) -> Search:
    """`sparse` among the items of ``window``, which fails."""
    rare = _rarest(space, window)
    if len(rare) * 4 <= len(window) * 3 and (yield rare):
        window = rare
    if len(space) <= TINY and len(window) <= LEAST:
        return (yield from _one_by_one(window))
    if len(window) > FEW:
        window = yield from _locate(space, window)
    return window if len(window) == 1 else (yield from _apart(space, window))


def farthest(chances: Sequence[float]) -> Search:
    """Items are steps of which taking one implies those behind it: as few of the first ones as possible stay.

    ``chances`` says for each item how likely the failure needs what only this step would take.
    """
    count = len(chances)
    mass = [NONE * sum(chances), *chances]
    low, high = 0, count
    while low < high:
        middle = low + _middle(mass[low : high + 1]) - 1
        if (yield tuple(range(middle))):
            high = middle
        else:
            low = middle + 1
    return tuple(range(high))


def dense(count: int) -> Search:
    """What is left of all items by taking them all away at once, or by a `sweep`."""
    if (yield ()):
        return ()
    return (yield from sweep(range(count)))


def alone(count: int) -> Search:
    """One item that fails alone, if all of them fail together."""
    window: Items = tuple(range(count))
    return (yield from _locate(uniform(count), window)) if (yield window) else window


def one_of(count: int) -> Search:
    """One item that may go, if the failure is there with all of them: the first one found."""
    items = tuple(range(count))
    if (yield items):
        for gone in items:
            if (yield (trial := items[:gone] + items[gone + 1 :])):
                return trial
    return items


def sweep(kept: Sequence[int]) -> Search:
    """Take windows of items away, from the end, windows that grow as long as they may go.

    A sweep that takes nothing has shown that no single item can go.
    """
    items = tuple(kept)
    end, width = len(items), 1
    while end > 0:
        width = min(width, end)
        trial = items[: end - width] + items[end:]
        if (yield trial):
            items = trial
            end -= width
            width *= 2
        elif width > 1:
            width = max(1, width // 4)
        else:
            end -= 1
    return items


def _one_by_one(window: Items) -> Search:
    """What is left of ``window``, which fails, when each item goes that may."""
    for item in reversed(window):
        trial = tuple(i for i in window if i != item)
        window = trial if trial and (yield trial) else window
    return window


def _locate(space: Space, window: Items) -> Generator[Items, bool, Items]:
    """The smallest window found that fails on its own, starting from one that does."""
    guess, misses = window, 0
    while len(guess) > 1:
        cut = _gap(space, guess)
        left, right = guess[:cut], guess[cut:]
        first, second = (left, right) if _weight(space, left) >= _weight(space, right) else (right, left)
        if (yield first):
            window, guess, misses = first, first, 0
            continue
        guess, misses = second, misses + 1
        if misses == PATIENCE or len(guess) == 1:
            if not (yield guess):
                return window
            window, misses = guess, 0
    return window


def _apart(space: Space, window: Items) -> Search:
    """A subset of ``window`` (which fails) when no half of it fails alone."""
    needed: list[int] = []
    rest = list(window)
    near = _neighbours(space)

    last = yield from _last(space, needed, rest, near)
    needed, rest = [rest[last - 1]], rest[: last - 1]
    if not rest or (yield _union(needed)):
        return _union(needed)
    start = yield from _first(space, needed, rest)
    needed, rest = [rest[start], *needed], rest[start + 1 :]
    if not rest or (yield _union(needed)):
        return _union(needed)
    for part in (_path(space, needed, rest), _between(space, needed, rest)):
        if len(part) < len(rest) and (yield _union(needed, part)):
            rest = part
            break
    while rest:
        # What is there so far does not suffice: that was asked.
        last = yield from _last(space, needed, rest, near)
        found = rest[last - 1]
        path = not near[found].isdisjoint(needed)
        needed, rest = [*needed, found], rest[: last - 1]
        if path and len(rest) > PATH:
            return _union(needed, rest)
        if rest and (yield _union(needed)):
            return _union(needed)
    return _union(needed)


def _last(
    space: Space, needed: Sequence[int], rest: Sequence[int], near: Sequence[set[int]]
) -> Generator[Items, bool, int]:
    """The least ``n`` for which ``needed`` and the first ``n`` of ``rest`` fail: item ``n - 1`` is needed.

    ``needed`` alone is known not to fail.
    """
    total = sum(space.weights[i] for i in rest)
    around: set[int] = set().union(*(near[i] for i in needed)) if needed else set()
    close = [i for i in rest if i in around]
    share = NEAR * total / len(close) if close else 0.0
    mass = [0.0, *(space.weights[i] + (share if i in around else 0.0) for i in rest)]
    low, high = 1, len(rest)
    while low < high:
        middle = low + _middle(mass[low : high + 1]) - 1
        if (yield _union(needed, rest[:middle])):
            high = middle
        else:
            low = middle + 1
    return high


def _first(space: Space, needed: Sequence[int], rest: Sequence[int]) -> Generator[Items, bool, int]:
    """The largest ``n`` for which ``needed`` and ``rest[n:]`` fail: item ``n`` is needed. Without any they do not."""
    mass = [space.weights[i] for i in rest]
    low, high = 0, len(rest) - 1
    while low < high:
        middle = low + _middle(mass[low : high + 1])
        if (yield _union(needed, rest[middle:])):
            low = middle
        else:
            high = middle - 1
    return low


def _middle(mass: Sequence[float]) -> int:
    """Where to cut ``mass`` (two items or more) into halves that weigh about the same; neither is empty."""
    sums = list(accumulate(mass))
    half = sums[-1] / 2
    cut = bisect_left(sums, half)
    # `cut` items weigh less than half, one more at least half: take the better.
    below = sums[cut - 1] if cut else 0.0
    cut = cut if half - below <= sums[min(cut, len(sums) - 1)] - half else cut + 1
    return min(max(cut, 1), len(mass) - 1)


def _gap(space: Space, items: Items) -> int:
    """Where to cut ``items`` into halves of similar weight without parting rare items that read each other."""
    total = _weight(space, items)
    best, left = (9.0, 1), 0.0
    for cut in range(1, len(items)):
        one, other = items[cut - 1], items[cut]
        left += space.weights[one]
        linked = bool(space.reads) and one in space.reads[other]
        torn = (space.weights[one] + space.weights[other]) * TORN if linked and len(items) > 4 else 0.0
        best = min(best, ((abs(2 * left - total) + torn) / total, cut))
    return best[1]


def _rarest(space: Space, window: Items) -> Items:
    """The heaviest items of ``window``, as many as make up half of its weight."""
    order = sorted(window, key=lambda i: (-space.weights[i], i))
    half, taken, weight = _weight(space, window) / 2, 0, 0.0
    while taken < len(order) and weight < half:
        weight += space.weights[order[taken]]
        taken += 1
    return tuple(sorted(order[:taken]))


def _weight(space: Space, items: Iterable[int]) -> float:
    return sum(space.weights[i] for i in items)


def _union(*parts: Iterable[int]) -> Items:
    return tuple(sorted({i for part in parts for i in part}))


def _neighbours(space: Space) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in range(len(space))]
    for item, read in enumerate(space.reads):
        for other in read:
            near[item].add(other)
            near[other].add(item)
    return near


def _between(space: Space, needed: Sequence[int], rest: Sequence[int]) -> list[int]:
    """Items of ``rest`` that depend on the first needed item and that the last one depends on."""
    first, last = min(needed), max(needed)
    if not space.reads:
        return list(rest)
    below, above = {first}, {last}
    for item in range(first + 1, last + 1):
        if any(r in below for r in space.reads[item]):
            below.add(item)
    for item in range(last, first, -1):
        if item in above:
            above.update(space.reads[item])
    return [i for i in rest if i in below and i in above]


def _path(space: Space, needed: Sequence[int], rest: Sequence[int]) -> list[int]:
    """Items of ``rest`` on one path in the data flow from the first to the last needed item: few, but rare ones."""
    first, last = min(needed), max(needed)
    price = _weight(space, rest) / max(len(rest), 1)
    best: dict[int, tuple[float, int]] = {first: (0.0, first)}
    for item in (*rest, last) if space.reads else ():
        reached = [(best[r][0], r) for r in space.reads[item] if r in best]
        if reached:
            value, before = max(reached)
            best[item] = (value + space.weights[item] - price, before)
    path = []
    while last in best and last != first:
        last = best[last][1]
        path.append(last)
    return path[-2::-1]
