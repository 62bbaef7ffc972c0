"""A picture of boxes and edges as SVG, for FX, ONNX and any other graph.

`svg` places the boxes in layers (`fxminify.backends.drawing.layering`) and returns one ``<svg>`` element. Texts of
boxes are escaped, and characters that XML does not allow become ``?``, so no name can add markup. Colours are CSS
variables of `STYLE`, light and dark. ``standalone`` includes the style, for a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ...store.text import printable
from .layering import Placement, Point, place

#: The most boxes of a picture, and the most edges.
MOST_BOXES, MOST_EDGES = 4000, 24_000
#: The most characters of a line, and the width of a character and the height of a line in pixels.
MOST_CHARACTERS, CHARACTER, LINE = 34, 7.3, 16.0
_PAD, _MARGIN = 9.0, 12.0

STYLE = """\
.graph{--box:#fff;--ink:#1f2328;--line:#8b949e;--in:#e7f1fb;--const:#f1ecf9;--out:#e9f6ec;--kept:#fff4d6;--bad:#ffe1de;\
--bad-line:#c4240f;--kept-line:#9a6700}
@media(prefers-color-scheme:dark){.graph{--box:#1c2128;--ink:#e6edf3;--line:#6e7681;--in:#12273d;--const:#261f38;\
--out:#12301b;--kept:#3a2d08;--bad:#4d1613;--bad-line:#ff7b72;--kept-line:#d8a43a}}
.graph text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);\
text-anchor:middle}
.graph .t{font-weight:600}
.graph rect{fill:var(--box);stroke:var(--line);vector-effect:non-scaling-stroke}
.graph .input rect{fill:var(--in)}.graph .constant rect{fill:var(--const);stroke-dasharray:4 2}\
.graph .output rect{fill:var(--out)}
.graph .kept rect{fill:var(--kept);stroke:var(--kept-line);stroke-width:2}
.graph .culprit rect{fill:var(--bad);stroke:var(--bad-line);stroke-width:4}
.graph path{fill:none;stroke:var(--line)}.graph path.dashed{stroke-dasharray:5 3}
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A drawn node. It shows ``lines``, the first in bold. ``note`` appears when the pointer is over it.

    ``kind`` is ``compute``, ``input``, ``constant`` or ``output``; ``mark`` is empty, ``kept`` or ``culprit``.
    """

    lines: tuple[str, ...]
    kind: str = "compute"
    mark: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A value from box ``source`` to box ``target``, both by index; ``dashed`` if it is not a value."""

    source: int
    target: int
    dashed: bool = False


def svg(boxes: Sequence[Box], edges: Sequence[Edge], *, label: str, standalone: bool = False) -> str:
    """The picture of ``boxes``, which are in execution order. ``label`` describes it in words.

    Each box is a ``<g class="KIND MARK" data-n="INDEX">``, each edge a ``<path data-e="SOURCE TARGET">``. Raises
    `ValueError` for more than `MOST_BOXES` boxes or `MOST_EDGES` edges, and for an edge to a box that does not exist.
    """
    if len(boxes) > MOST_BOXES:
        raise ValueError(f"{len(boxes):,} boxes are more than a picture holds ({MOST_BOXES:,})")
    if len(edges) > MOST_EDGES:
        raise ValueError(f"{len(edges):,} edges are more than a picture holds ({MOST_EDGES:,})")
    if not all(0 <= end < len(boxes) for edge in edges for end in (edge.source, edge.target)):
        raise ValueError("an edge leads to a box that is not there")
    sizes = [_size(box) for box in boxes]
    placed = place(sizes, [(edge.source, edge.target) for edge in edges])
    width, height = placed.width + 2 * _MARGIN, placed.height + 2 * _MARGIN
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    view = f'viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [f'<svg{namespace} class="graph" role="img" aria-label="{text(label, 300)}" {view}>']
    if standalone:
        parts.append(f"<style>{STYLE}</style>")
    ports = _ports(placed, sizes, edges)
    for edge, route, port in zip(edges, placed.routes, ports, strict=True):
        forward = edge.source <= edge.target
        parts.append(_path(edge, route if forward else route[::-1], port, sizes))
    parts += [_group(index, box, placed.centres[index], sizes[index]) for index, box in enumerate(boxes)]
    return "\n".join([*parts, "</svg>"])


def text(value: str, limit: int = 10_000) -> str:
    """``value`` for the content or an attribute of an element: escaped, printable, of at most ``limit`` characters."""
    cut = value if len(value) <= limit else f"{value[: limit - 1]}…"
    return escape(printable(cut, "\n"), quote=True)


def _size(box: Box) -> Point:
    longest = max((min(len(line), MOST_CHARACTERS) for line in box.lines), default=1)
    return max(longest * CHARACTER, 30.0) + 2 * _PAD, max(len(box.lines), 1) * LINE + _PAD


def _ports(placed: Placement, sizes: Sequence[Point], edges: Sequence[Edge]) -> list[float]:
    """For each edge the point on the upper side of its target, so that arrows do not overlap."""
    arriving: dict[int, list[int]] = {}
    for index, edge in enumerate(edges):
        arriving.setdefault(edge.target, []).append(index)
    out = [0.0] * len(edges)
    for target, found in arriving.items():
        found.sort(key=lambda i: placed.routes[i][-2][0])
        room = sizes[target][0] * 0.7
        for position, index in enumerate(found):
            out[index] = placed.centres[target][0] + room * ((position + 0.5) / len(found) - 0.5)
    return out


def _path(edge: Edge, route: Sequence[Point], port: float, sizes: Sequence[Point]) -> str:
    (x, y), *middle, (_, end) = route
    down = 1 if end >= y else -1
    y += down * sizes[edge.source][1] / 2
    points = [*middle, (port, end - down * sizes[edge.target][1] / 2)]
    out = [f"M{x:.0f} {y:.0f}"]
    for to_x, to_y in points:
        half = (y + to_y) / 2
        straight = abs(to_x - x) < 1
        out.append(f"V{to_y:.0f}" if straight else f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = (x if straight else to_x), to_y
    out.append(f"M{x - 3.5:.1f} {y - 6 * down:.0f}L{x:.0f} {y:.0f}L{x + 3.5:.1f} {y - 6 * down:.0f}")
    dashed = ' class="dashed"' if edge.dashed else ""
    return f'<path d="{"".join(out)}"{dashed} data-e="{edge.source} {edge.target}"/>'


def _group(index: int, box: Box, centre: Point, size: Point) -> str:
    (x, y), (width, height) = centre, size
    names = " ".join(name for name in (box.kind, box.mark) if name.isidentifier())
    out = [f'<g class="{names}" data-n="{index}" transform="translate({x:.0f} {y:.0f})">']
    if box.note:
        out.append(f"<title>{text(box.note, 2000)}</title>")
    out.append(f'<rect x="{-width / 2:.0f}" y="{-height / 2:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5"/>')
    top = -len(box.lines) * LINE / 2 + 12
    for number, line in enumerate(box.lines):
        bold = ' class="t"' if number == 0 else ""
        out.append(f'<text y="{top + number * LINE:.0f}"{bold}>{text(line, MOST_CHARACTERS)}</text>')
    return "".join([*out, "</g>"])
