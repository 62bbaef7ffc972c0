"""Graphs as pictures: placed in layers without overlaps, the same each time, and nothing in a name gets out."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from work import Lines

from fxminify.backends.drawing.layering import APART, place
from fxminify.backends.drawing.svg import MOST_BOXES, Box, Edge, svg


def network(count: int, seed: int = 0) -> tuple[list[Box], list[Edge]]:
    """A chain with inputs on the side and connections that skip up to 60 nodes."""
    draw = random.Random(seed)
    edges = [Edge(i - 1, i) for i in range(1, count) if i % 7]
    edges += [Edge(max(0, i - draw.randint(2, 60)), i) for i in range(8, count) if i % 7 and i % 3 == 0]
    return [Box((f"node_{i}", "aten.add.Tensor"), "compute" if i % 7 else "input") for i in range(count)], edges


def test_a_diamond_has_three_layers_and_its_sides_beside_each_other() -> None:
    placed = place([(60, 30)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    top, left, right, bottom = placed.centres
    assert top[1] < left[1] == right[1] < bottom[1]
    assert top[0] == bottom[0] == pytest.approx((left[0] + right[0]) / 2)
    assert right[0] - left[0] == 60 + APART
    assert placed.width == 2 * 60 + APART


def test_an_edge_over_layers_goes_around_what_lies_between() -> None:
    placed = place([(60, 30)] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    bends = placed.routes[3][1:-1]
    assert len(bends) == 4
    assert all(abs(x - placed.centres[1][0]) >= 30 for x, _ in bends)


def test_crossings_that_need_not_be_are_not() -> None:
    placed = place([(60, 30)] * 6, [(0, 5), (1, 4), (2, 3)])
    by_column = sorted(range(3), key=lambda i: placed.centres[i][0])
    assert [5 - i for i in by_column] == sorted((3, 4, 5), key=lambda i: placed.centres[i][0])


def test_a_weight_stands_right_above_what_reads_it() -> None:
    placed = place([(60, 30)] * 5, [(0, 2), (2, 3), (3, 4), (1, 4)])
    assert placed.centres[1][1] == placed.centres[3][1]


@pytest.mark.parametrize("seed", range(5))
def test_boxes_never_overlap_and_edges_lead_down(seed: int) -> None:
    boxes, edges = network(200, seed)
    sizes = [(40.0 + 13 * (i % 9), 20.0 + 5 * (i % 4)) for i in range(len(boxes))]
    placed = place(sizes, [(e.source, e.target) for e in edges])
    rows: dict[float, list[int]] = {}
    for index, (_, y) in enumerate(placed.centres):
        rows.setdefault(round(y, 3), []).append(index)
    for row in rows.values():
        row.sort(key=lambda i: placed.centres[i][0])
        for a, b in pairwise(row):
            gap = placed.centres[b][0] - placed.centres[a][0] - (sizes[a][0] + sizes[b][0]) / 2
            assert gap >= APART - 1e-6
    for route in placed.routes:
        assert all(b[1] >= a[1] for a, b in pairwise(route))


def test_the_picture_of_one_graph_is_one_picture() -> None:
    boxes, edges = network(120)
    assert svg(boxes, edges, label="x") == svg(boxes, edges, label="x")


def test_twice_the_nodes_are_twice_the_work() -> None:
    with Lines() as small:
        svg(*network(500), label="big")
    with Lines() as large:
        svg(*network(1000), label="big")
    assert large.count < 3 * small.count


def test_a_thousand_nodes_are_drawn() -> None:
    boxes, edges = network(1000)
    text = svg(boxes, edges, label="big")
    assert text.count("<g ") == 1000
    assert len(text) < 700_000


def test_what_a_name_holds_stays_text() -> None:
    hostile = '</text><script>alert(1)</script>" onload="x\0\x1b[31m\u202e&amp;'
    box = Box((hostile, "x" * 500), kind='input" onload="x', mark='"><script>', note=hostile)
    text = svg([box], [], label=hostile, standalone=True)
    root = ET.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "style", "g", "title", "rect", "text"}
    assert {name for element in root.iter() for name in element.attrib if name.startswith("on")} == set()
    written = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert written == ['</text><script>alert(1)</script>"…', "x" * 33 + "…"]
    assert "\0" not in text
    assert "\u202e" not in text


def test_edges_that_lead_back_are_drawn_and_edges_to_nothing_are_refused() -> None:
    boxes = [Box(("a",)), Box(("b",))]
    root = ET.fromstring(svg(boxes, [Edge(0, 1), Edge(1, 0), Edge(1, 1, dashed=True)], label="loop", standalone=True))
    assert [e.get("data-e") for e in root.iter() if e.get("data-e")] == ["0 1", "1 0", "1 1"]
    with pytest.raises(ValueError, match="leads to a box that is not there"):
        svg(boxes, [Edge(0, 2)], label="x")
    with pytest.raises(ValueError, match="4,001 boxes are more than a picture holds"):
        svg([Box(("a",))] * (MOST_BOXES + 1), [], label="x")


def test_nothing_makes_an_empty_picture() -> None:
    assert ET.fromstring(svg([], [], label="nothing", standalone=True)).get("viewBox") == "-12 -12 24 24"
