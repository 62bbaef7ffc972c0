"""A layered placement of a directed graph (Sugiyama): layers, an order within each, coordinates; deterministic.

Nodes are given in execution order, so every edge leads forward. The layer of a node is its longest path from a source;
the node is moved down if that shortens more edges than it lengthens. An edge over several layers passes through
*bends*, which are ordered like nodes. Edges from one node share their bends. Barycentre sweeps order the layers, and
the order with the fewest crossings is kept. The coordinate of a node is close to the mean of its neighbours, and nodes
do not overlap: this is an isotonic regression, which pooling of adjacent violators solves exactly.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures" (1981), and
Gansner et al., "A technique for drawing directed graphs" (1993).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

#: Pixels between neighbours in a layer, and on both sides of a bend.
APART, BEND = 24.0, 8.0
#: The least and the most pixels between two layers, and the ratio of the distance to the widest horizontal step.
GAP, MOST_GAP, SLOPE = 34.0, 160.0, 0.12
#: The most bends of a drawing for each node. Further edges are straight.
MOST_BENDS = 12
_ORDERINGS, _ALIGNMENTS = 12, 12

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Placement:
    """Centres of the nodes, and the points of each edge with its source and target, in pixels."""

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def place(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Placement:
    """A placement of nodes of ``sizes`` (width, height), in execution order. ``edges`` are pairs of indices."""
    forward = [(min(edge), max(edge)) for edge in edges]
    layers = _layers(len(sizes), forward)
    work = _Work(sizes, layers, forward)
    work.order()
    return work.placement(forward)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for source, target in edges:
        if source != target:
            before[target].add(source)
            after[source].add(target)
    layer = [0] * count
    for node in range(count):
        layer[node] = max((layer[b] + 1 for b in before[node]), default=0)
    for node in reversed(range(count)):
        if after[node] and len(before[node]) <= len(after[node]):
            layer[node] = min(layer[a] for a in after[node]) - 1
    return layer


class _Work:
    """Nodes and bends in layers. Items below ``count`` are nodes, the others are bends."""

    def __init__(self, sizes: Sequence[Point], layers: Sequence[int], edges: Sequence[tuple[int, int]]) -> None:
        self.sizes = sizes
        self.count = len(sizes)
        self.layer = list(layers)
        self.chains: dict[int, list[int]] = {}
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        self._bend(edges)
        self.rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for item in sorted(range(len(self.layer)), key=self._first):
            self.rows[self.layer[item]].append(item)
        self.place_in = [0] * len(self.layer)
        self._number()

    def _bend(self, edges: Sequence[tuple[int, int]]) -> None:
        far: dict[int, int] = {}
        for source, target in edges:
            far[source] = max(far.get(source, 0), self.layer[target])
        left = MOST_BENDS * self.count
        for source in sorted(far, key=lambda s: (far[s] - self.layer[s], s)):
            bends = far[source] - self.layer[source] - 1
            if bends > left:
                break
            left -= max(bends, 0)
            self.chains[source] = []
            last = source
            for layer in range(self.layer[source] + 1, far[source]):
                bend = len(self.layer)
                self.layer.append(layer)
                self.above.append([last])
                self.below.append([])
                self.below[last].append(bend)
                self.chains[source].append(bend)
                last = bend
        for source, target in dict.fromkeys(edges):
            if source != target and source in self.chains:
                last = self._last(source, target)
                self.below[last].append(target)
                self.above[target].append(last)

    def _last(self, source: int, target: int) -> int:
        """The item above ``target`` on the edge from ``source``."""
        return [source, *self.chains[source]][self.layer[target] - self.layer[source] - 1]

    def _first(self, item: int) -> tuple[int, int]:
        """Return the key of the initial order: execution order, with a bend next to its source."""
        while item >= self.count:
            item = self.above[item][0]
        return item, 0

    def _number(self) -> None:
        for row in self.rows:
            for position, item in enumerate(row):
                self.place_in[item] = position

    def order(self) -> None:
        """Sort the layers by the barycentres of neighbours, down and up, and keep the best order."""
        best, fewest = [list(row) for row in self.rows], self.crossings()
        for turn in range(_ORDERINGS):
            if not fewest:
                break
            rows, near = (self.rows, self.above) if turn % 2 == 0 else (self.rows[::-1], self.below)
            for row in rows:
                means = {i: self._mean(near[i], self.place_in[i]) for i in row}
                row.sort(key=means.__getitem__)
                for position, item in enumerate(row):
                    self.place_in[item] = position
            found = self.crossings()
            if found < fewest:
                best, fewest = [list(row) for row in self.rows], found
        self.rows = best
        self._number()

    def _mean(self, near: Sequence[int], default: float) -> float:
        return sum(self.place_in[n] for n in near) / len(near) if near else default

    def crossings(self) -> int:
        """The number of crossings of edges between adjacent layers."""
        total = 0
        for row in self.rows:
            seen: list[int] = []
            for item in row:
                ends = sorted(self.place_in[b] for b in self.below[item])
                for end in ends:
                    total += len(seen) - bisect_left(seen, end + 1)
                for end in ends:
                    insort(seen, end)
        return total

    def placement(self, edges: Sequence[tuple[int, int]]) -> Placement:
        x = self._columns()
        left = min((x[i] - self._width(i) / 2 for i in range(len(x))), default=0.0)
        x = [value - left for value in x]
        width = max((x[i] + self._width(i) / 2 for i in range(len(x))), default=0.0)
        tops, heights, height = self._levels(x)
        middle = [top + tall / 2 for top, tall in zip(tops, heights, strict=True)]
        centres = [(x[i], middle[self.layer[i]]) for i in range(self.count)]
        routes = []
        for source, target in edges:
            points = [centres[source]]
            if source in self.chains:
                for bend in self.chains[source][: max(self.layer[target] - self.layer[source] - 1, 0)]:
                    level = self.layer[bend]
                    points += [(x[bend], tops[level]), (x[bend], tops[level] + heights[level])]
            routes.append((*points, centres[target]))
        return Placement(tuple(centres), tuple(routes), width, height)

    def _width(self, item: int) -> float:
        return self.sizes[item][0] if item < self.count else 2 * BEND

    def _columns(self) -> list[float]:
        x = [0.0] * len(self.layer)
        for row in self.rows:
            for item, start in zip(row, self._starts(row), strict=True):
                x[item] = start
        for turn in range(_ALIGNMENTS):
            down = turn % 2 == 0
            last = turn >= _ALIGNMENTS - 2
            for row in self.rows if down else self.rows[::-1]:
                wanted, weights = [], []
                for item in row:
                    near = self.above[item] + self.below[item] if last else (self.above if down else self.below)[item]
                    bend = item >= self.count
                    wanted.append(sum(x[n] for n in near) / len(near) if near else x[item])
                    weights.append(0.1 if not near else 4.0 if bend else 1.0)
                for item, value in zip(row, _apart(wanted, weights, self._starts(row)), strict=True):
                    x[item] = value
        return x

    def _starts(self, row: Sequence[int]) -> list[float]:
        """The centres of a row of items without free space."""
        out, edge = [], 0.0
        for item in row:
            half = self._width(item) / 2
            out.append(edge + half)
            edge += 2 * half + (APART if item < self.count else 0.0)
        return out

    def _levels(self, x: Sequence[float]) -> tuple[list[float], list[float], float]:
        """The top and height of each layer, and the total height."""
        heights = [max((self.sizes[i][1] for i in row if i < self.count), default=0.0) for row in self.rows]
        tops, y = [], 0.0
        for row, height in zip(self.rows, heights, strict=True):
            tops.append(y)
            step = max((abs(x[i] - x[b]) for i in row for b in self.below[i]), default=0.0)
            y += height + min(GAP + SLOPE * step, MOST_GAP)
        return tops, heights, (tops[-1] + heights[-1]) if tops else 0.0


def _apart(wanted: Sequence[float], weights: Sequence[float], starts: Sequence[float]) -> list[float]:
    """Return the positions nearest to ``wanted`` whose distances are at least the distances of ``starts``."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for want, weight, start in zip(wanted, weights, starts, strict=True):
        mean, total, count = want - start, weight, 1
        while pools and pools[-1][0] > mean:
            before, other, more = pools.pop()
            mean = (before * other + mean * total) / (other + total)
            total, count = total + other, count + more
        pools.append((mean, total, count))
    shifts = [mean for mean, _, count in pools for _ in range(count)]
    return [start + shift for start, shift in zip(starts, shifts, strict=True)]
