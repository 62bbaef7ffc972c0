"""Searches for the items that a failure needs. They take few queries and work on any items, not only on nodes.

A search is a generator. It yields a set of items (ascending indices), and is sent whether the failure still occurs if
exactly these items stay. It returns a set for which the answer was yes. A search is a deterministic function of the
answers, so it can be replayed with assumed answers. The shrinker uses this to keep several workers busy without a
change of the result.

`sparse` expects that very few items are needed. Failures are mostly in rare operations, so a query splits the prior
weight, not the number of items: each needed item costs about ``log2`` of the number of *kinds* of items. `sweep`
expects nothing and removes one item after the other, in growing windows. Both do what ddmin, the search of delta
debugging (Zeller and Hildebrandt, 2002), does by halves and their complements. Neither assumes that failures are
monotone: a wrong guess costs queries and does not change the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Items = tuple[int, ...]
Search = Generator[Items, bool, Items]

#: After so many halves in a row that do not fail, the search asks about the other half instead of assuming it fails.
MOST_MISSES = 2
#: If there are at most ``TINY`` items, the last ``LEAST`` are removed one by one, so that each that stays is needed.
TINY = 16
LEAST = 5
#: Among at most so many items the search does not look for a single culprit first: with two culprits that costs more.
FEW = 8
#: If more items than this are left, two needed items that read each other count as a path, which other passes shorten.
PATH = 3
#: Prior weight, as a share of all others, that the next needed item reads a needed one or is read by it.
NEAR = 1.5
#: The cost of a cut between two items that read each other, compared with the cost of an uneven cut.
TORN = 2
#: Prior weight, as a share of all others, that the failure needs nothing that the longest step would remove.
NONE = 0.4


@dataclass(frozen=True, slots=True)
class Space:
    """Prior knowledge: ``weights`` are the chances of the items to be needed, ``reads`` the items that each reads."""

    weights: tuple[float, ...]
    reads: tuple[Items, ...] = ()

    def __len__(self) -> int:
        return len(self.weights)


def uniform(count: int) -> Space:
    """``count`` items with equal chances."""
    return Space((1.0,) * count)


def sparse(space: Space) -> Search:
    """A search that assumes that few items are needed. Single items of its result may be superfluous, see `sweep`.

    It asks about the rarest items alone, then about halves of the weight alone, because small candidates are cheap. If
    no half fails alone, it looks for the last needed item, the first one, those between the two in the data flow, then
    for the others from the end. It stops early on a path, which other passes can shorten.
    """
    return (yield from _within(space, tuple(range(len(space)))))


def guided(space: Space, hints: Sequence[Items]) -> Search:
    """`sparse`, but it first asks about each set of ``hints`` alone."""
    found = yield from guessed(space, hints)
    return found if len(found) < len(space) else (yield from sparse(space))


def guessed(space: Space, guesses: Sequence[Items]) -> Search:
    """A search that asks about each set of ``guesses`` alone, and gives up if none of them fails."""
    for items in dict.fromkeys(guesses):
        if 0 < len(items) < len(space) and (yield items):
            return items if len(items) == 1 else (yield from _within(space, items))
    return tuple(range(len(space)))


def _within(space: Space, window: Items) -> Search:
    """`sparse` among the items of ``window``, which are known to fail."""
    rare = _rarest(space, window)
    if len(rare) * 4 <= len(window) * 3 and (yield rare):
        window = rare
    if len(space) <= TINY and len(window) <= LEAST:
        return (yield from _one_by_one(window))
    if len(window) > FEW:
        window = yield from _locate(space, window)
    return window if len(window) == 1 else (yield from _apart(space, window))


def farthest(chances: Sequence[float]) -> Search:
    """Finds the longest step that keeps the failure. Steps are sorted, longest first; each includes all later ones.

    It returns the items before that step. ``chances`` has, for each step, the chance that the failure needs something
    that the next step would not remove.
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


def dense(count: int, stays: Items = ()) -> Search:
    """A search that asks whether all items, except those that certainly stay, can be removed, and otherwise does a
    `sweep` over them."""
    if (yield stays):
        return stays
    return (yield from sweep(range(count)))


def alone(count: int) -> Search:
    """A search for one item that fails alone, if all of them fail together."""
    window: Items = tuple(range(count))
    return (yield from _locate(uniform(count), window)) if (yield window) else window


def one_of(count: int) -> Search:
    """A search for one item that can be removed, if all of them fail together. It returns all others."""
    items = tuple(range(count))
    if (yield items):
        for gone in items:
            if (yield (trial := items[:gone] + items[gone + 1 :])):
                return trial
    return items


def sweep(kept: Sequence[int]) -> Search:
    """A search that removes windows of items, from the end. A window grows as long as its items can be removed.

    If a sweep removes nothing, no single item can be removed.
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
    """A search that removes single items of ``window``, which is known to fail, from the end."""
    for item in reversed(window):
        trial = tuple(i for i in window if i != item)
        window = trial if trial and (yield trial) else window
    return window


def _locate(space: Space, window: Items) -> Generator[Items, bool, Items]:
    """The smallest part found of ``window``, which is known to fail, that fails alone."""
    guess, misses = window, 0
    while len(guess) > 1:
        cut = _gap(space, guess)
        left, right = guess[:cut], guess[cut:]
        first, second = (left, right) if _weight(space, left) >= _weight(space, right) else (right, left)
        if (yield first):
            window, guess, misses = first, first, 0
            continue
        guess, misses = second, misses + 1
        if misses == MOST_MISSES or len(guess) == 1:
            if not (yield guess):
                return window
            window, misses = guess, 0
    return window


def _apart(space: Space, window: Items) -> Search:
    """A subset of ``window`` that fails, where ``window`` does and no half of it does alone."""
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
        # It is known that `needed` alone does not fail.
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
    """The least ``n`` for which ``needed`` and the first ``n`` of ``rest`` fail. Item ``n - 1`` of them is needed.

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
    """The largest ``n`` for which ``needed`` and ``rest[n:]`` fail. Item ``n`` of ``rest`` is needed."""
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
    """The index that cuts ``mass`` (two items or more) into two parts of similar weight, neither of them empty."""
    sums = list(accumulate(mass))
    half = sums[-1] / 2
    cut = bisect_left(sums, half)
    # `cut` items weigh less than half, one more at least half: take what is nearer to half.
    below = sums[cut - 1] if cut else 0.0
    cut = cut if half - below <= sums[min(cut, len(sums) - 1)] - half else cut + 1
    return min(max(cut, 1), len(mass) - 1)


def _gap(space: Space, items: Items) -> int:
    """The index that cuts ``items`` into parts of similar weight, but not between rare items that read each other."""
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
    """The heaviest items of ``window`` that together have half of its weight."""
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
    """Items of ``rest`` on one path of few, rare items in the data flow from the first to the last needed item."""
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
