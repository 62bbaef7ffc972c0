"""The lines of a program that a graph comes from, as a sentence and in a listing."""

from __future__ import annotations

import io
from pathlib import Path

import index_tasks
import pytest
from rich.console import Console

from fxminify.minifier.commands.terminal import listings
from fxminify.store.document.case import Graph, Json, Node
from fxminify.store.document.program_lines import ProgramLine, comes_from, place_of, program_lines
from fxminify.store.index import Index, State
from fxminify.store.index.bugs import COMES_FROM


def graph(*metas: Json, inner: Graph | None = None) -> Graph:
    nodes = [Node(f"n{i}", "call_function", {"fn": "torch.relu"}, (), meta=meta) for i, meta in enumerate(metas)]
    attrs: dict[str, Json] = {} if inner is None else {"body": {"graph": inner}}
    return Graph(
        (Node("x", "placeholder", "x", meta={"stack": "not.py:1 this"}), *nodes, Node("o", "output", "output")), attrs
    )


def test_nodes_of_one_line_are_one_place_with_all_modules_that_ran_it() -> None:
    line = "model.py:16 forward"
    found = graph({"stack": line, "module": "up"}, {"stack": line, "module": "down"}, {"stack": line, "module": "up"})
    assert program_lines(found) == (ProgramLine(line, ("up", "down")),)
    assert comes_from(found) == "model.py:16 forward (modules up, down)"


@pytest.mark.parametrize(
    ("metas", "expected"),
    [
        ([{"stack": "a.py:1 f"}], "a.py:1 f"),
        ([{"module": "layer.0"}], "module layer.0"),
        ([{"stack": "a.py:1 f", "module": "m"}, {"stack": "b.py:2 g"}], "a.py:1 f (module m), b.py:2 g"),
        ([{"stack": f"a.py:{i} f"} for i in range(5)], "a.py:0 f, a.py:1 f, a.py:2 f and 2 more"),
        ([{"stack": "torch/_functorch/vmap.py:503 f"}, {"stack": "a.py:1 f"}], "a.py:1 f"),
        ([{"stack": "torch/_functorch/vmap.py:503 f", "shape": [2]}], "torch/_functorch/vmap.py:503 f"),
        ([{"shape": [2]}], ""),
    ],
)
def test_a_sentence_has_three_places_at_most(metas: list[Json], expected: str) -> None:
    assert comes_from(graph(*metas)) == expected


def test_subgraphs_come_after_their_graph() -> None:
    assert comes_from(graph({"stack": "a.py:1 f"}, inner=graph({"stack": "b.py:2 g"}))) == "a.py:1 f, b.py:2 g"


def test_of_a_node_only_the_place_is_kept() -> None:
    node = Node("n", "call_function", {"fn": "torch.relu"}, (), meta={"stack": "a.py:1 f", "shape": [2]})
    assert place_of(node) == {"stack": "a.py:1 f"}


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("model.py:16 forward (module up), b.py:2 g", "RuntimeError: planted (model.py:16 forward)"),
        ("", "RuntimeError: planted"),
        ({"not": "text"}, "RuntimeError: planted"),
        ("a.py:1 f\x1b[31m", "RuntimeError: planted (a.py:1 f?[31m)"),
    ],
)
def test_a_listing_says_the_error_and_then_the_place(tmp_path: Path, stored: object, shown: str) -> None:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True) as index:
        id = index_tasks.add(index, *index_tasks.small_case(), text="planted")
        index.artifacts.save(id, COMES_FROM, stored)
        index.captures.set_state(id, State.VERIFIED)
        rows = index.bugs.page()
    out = Console(width=80, file=io.StringIO())
    listings.table(rows, path, console=out)
    assert out.file.getvalue().splitlines()[2].strip() == shown  # type: ignore[attr-defined]
