"""An SVG picture of how a graph shrank: its size over the queries, as a step line on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...backends.drawing.svg import text
from ...store.text import count

_WIDTH, _HEIGHT = 640.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 14.0, 10.0, 34.0
#: The most points that are drawn.
_MOST_POINTS = 800


def curve(points: Sequence[tuple[float, int]], *, across: str, label: str) -> str:
    """The curve through ``points``, which are (place, nodes) in order with the start. ``across`` names the places.

    It is empty for fewer than two points.
    """
    if len(points) < 2:
        return ""
    points = [*points[: -1 : -(-len(points) // _MOST_POINTS)], points[-1]]
    most, end = max(nodes for _, nodes in points), max(points[-1][0], 1e-9)

    def x(place: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(place / end, 0.0), 1.0)

    def y(nodes: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - math.log1p(max(nodes, 0)) / math.log1p(max(most, 1)))

    path = f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    path += "".join(f"H{x(place):.1f}V{y(nodes):.1f}" for place, nodes in points[1:])
    parts = [
        f'<svg class="curve" role="img" aria-label="{text(label, 300)}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">',
        *(_level(nodes, y(nodes)) for nodes in _levels(most)),
        *(_place(place, x(place)) for place in _places(end)),
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 4:g}">{text(across, 60)}</text>',
        f'<path class="line" d="{path}"/>',
    ]
    if len(points) <= 200:
        parts += [
            f'<circle cx="{x(place):.1f}" cy="{y(nodes):.1f}" r="2.5">'
            f"<title>{count(nodes, 'node')}, {place:g} {text(across, 60)}</title></circle>"
            for place, nodes in points
        ]
    return "\n".join([*parts, "</svg>"])


def _level(nodes: int, y: float) -> str:
    return (
        f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{_WIDTH - _RIGHT:g}"/>'
        f'<text class="end" x="{_LEFT - 6:g}" y="{y + 4:.1f}">{nodes:,}</text>'
    )


def _place(place: float, x: float) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15:g}">{place:,.10g}</text>'


def _levels(most: int) -> Iterator[int]:
    """The levels that are labelled: 0, 1, 10, 100... and the largest, unless labels would overlap."""
    yield 0
    level = 1
    while level * 2 < most:
        yield level
        level *= 10
    if most:
        yield most


def _places(end: float) -> Iterator[float]:
    """About five round numbers from 0 to ``end``."""
    step = 10 ** math.floor(math.log10(end / 4))
    step *= next(f for f in (1, 2, 5, 10) if end / (step * f) <= 6)
    for number in range(int(end / step + 1e-9) + 1):
        yield number * step
