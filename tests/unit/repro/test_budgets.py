"""Graphs that mean harm are printed and drawn with work that grows as they do, and in a shorter form that says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bombs import X, alike, bodies, call, case, chain, dense, in_place, returning, shared_bodies, wide
from work import Lines

from fxminify.backends.drawing.svg import MOST_EDGES as MOST_ARROWS
from fxminify.backends.drawing.svg import Box, Edge, svg
from fxminify.minifier.reducer.history import describe
from fxminify.repro_templates.report import text_graph as drawing
from fxminify.repro_templates.report.picture import MOST_EDGES, MOST_NODES, picture
from fxminify.repro_templates.report.text_graph import text_graph
from fxminify.repro_templates.source import function
from fxminify.repro_templates.source.expressions import Unprintable
from fxminify.repro_templates.source.function import print_graph
from fxminify.store.document.case import Graph, Node

WAYS: dict[str, Callable[[Graph], object]] = {
    "source": lambda graph: print_graph(case(graph)), "text": text_graph, "lines": lambda graph: describe(case(graph)),
    "picture": lambda graph: picture(graph, label="x"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [chain, wide, in_place, bodies, shared_bodies, alike], ids=lambda make: make.__name__)
def test_twice_the_graph_is_twice_the_work(make: Callable[[int], Graph], way: str) -> None:
    WAYS[way](make(20))  # what is loaded once
    graphs = make(100), make(200)
    with Lines() as small:
        WAYS[way](graphs[0])
    with Lines() as large:
        WAYS[way](graphs[1])
    assert large.count < (3 if way == "picture" else 2.1) * small.count  # the bends of edges grow up to a limit


@pytest.mark.parametrize("way", WAYS)
def test_the_work_grows_with_the_edges(way: str) -> None:
    """Twice the nodes have four times the edges here. The picture shows a part of either graph."""
    WAYS[way](dense(10))
    graphs = dense(70), dense(140)
    with Lines() as small:
        WAYS[way](graphs[0])
    with Lines() as large:
        WAYS[way](graphs[1])
    assert large.count < 4.4 * small.count


def test_a_graph_that_is_too_dense_for_a_script_is_refused_before_it_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = dense(60)
    monkeypatch.setattr(function, "MOST_READS", 1_800)
    with Lines() as refused, pytest.raises(Unprintable, match=r"read values 1,832 times, and at most 1,800 are"):
        print_graph(case(returning([X, Node("held", "get_attr", "body")], "x", body=graph)))
    monkeypatch.setattr(function, "MOST_READS", 1_831)
    with Lines() as printed:
        print_graph(case(graph))
    assert refused.count < printed.count / 10


def test_a_dense_graph_is_drawn_in_part() -> None:
    drawn = picture(dense(300), label="x", culprits=["s150"])
    assert (drawn.total, drawn.marked) == (302, 1)
    assert 20 < drawn.shown < 100
    assert drawn.svg.count("data-e=") <= max(MOST_EDGES * drawn.shown, 1000)


def test_a_graph_as_programs_have_is_drawn_whole() -> None:
    nodes = [X, *(call(f"s{i}", "torch.cat", *{f"s{max(i - step, 0)}" for step in (1, 7)} if i else "x")
                  for i in range(400))]  # fmt: skip
    drawn = picture(returning(nodes, "s399"), label="x")
    assert (drawn.shown, drawn.total) == (402, 402)


def test_nodes_are_counted_before_they_are_drawn() -> None:
    graph = chain(2 * MOST_NODES)
    with Lines() as work:
        drawn = picture(graph, label="x")
    with Lines() as part:
        picture(chain(MOST_NODES - 2), label="x")
    assert (drawn.shown, drawn.total) == (MOST_NODES, 2 * MOST_NODES + 2)
    assert work.count < 2 * part.count


def test_a_drawing_in_text_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = [line for line in text_graph(wide(600)) if "return" in line]
    assert line.endswith("further characters")
    assert len(line) < drawing.MOST_LINE + 100
    monkeypatch.setattr(drawing, "MOST_TEXT", 1000)
    lines = text_graph(chain(100))
    assert lines[-1] == f"... and {103 - len(lines)} further lines"
    assert 900 < sum(map(len, lines[:-1])) <= 1000


def test_a_picture_with_too_many_edges_is_refused() -> None:
    with pytest.raises(ValueError, match="24,001 edges are more than a picture holds"):
        svg([Box(("a",))] * 2, [Edge(0, 1)] * (MOST_ARROWS + 1), label="x")
