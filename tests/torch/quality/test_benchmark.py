"""What `docs/benchmarks.md` claims is what was measured, and what was measured is as good as it is meant to be."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fxminify.benchmarks.page import put
from fxminify.benchmarks.plants import plant
from fxminify.benchmarks.reduce import bound, read, table
from fxminify.benchmarks.tools import TOOLS, measure

ROOT = Path(__file__).parents[3]
ROWS = read(ROOT / "benchmarks" / "measured.jsonl")


def ours(*plants: str) -> list[dict[str, Any]]:
    return [r for r in ROWS if r["tool"] == "fxminify" and r["plant"] in plants and "queries" in r]


def test_the_page_shows_what_was_measured() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert put(page, table(ROWS)) == page


def test_every_result_has_the_fewest_nodes_there_can_be() -> None:
    assert [(r["case"], r["plant"]) for r in ours("a", "b", "c1", "d", "e", "f") if r["nodes"] != r["optimum"]] == []
    assert median(r["nodes"] for r in ours("c2")) <= 6
    assert all(r["fails"] and r["repeats"] == 0 for r in ours(*"abdef", "c1", "c2"))


def test_queries_stay_within_the_bound() -> None:
    rows = ours(*"abdef", "c1")
    assert len(rows) > 100
    assert [r for r in rows if r["queries"] > round(bound(r["start_nodes"], r["optimum"]))] == []


@pytest.mark.parametrize("kind", ["a", "b"])
def test_the_benchmark_runs(kind: str) -> None:
    """Both reducers on a graph made here: PyTorch's asks more and leaves more."""
    import torch
    from torch import fx

    graph, aten = fx.Graph(), torch.ops.aten
    value, weights = graph.placeholder("x"), [graph.placeholder(f"w{i}") for i in range(4)]
    for i in range(40):
        value = graph.call_function([aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor][i % 3], (value, weights[i % 4]))
        if i % 10 == 0:
            value = graph.call_function(aten.tanh.default, (value,))
    graph.output((value,))
    planted = plant(fx.GraphModule({}, graph), [torch.ones(4, 8) / 2 for _ in range(5)], kind, "bw")
    found = {tool: measure(tool, planted) for tool in TOOLS}
    assert found["fxminify"].nodes == planted.optimum
    assert found["fxminify"].queries <= bound(44 + planted.optimum, planted.optimum)
    assert found["fxminify"].queries < found["pytorch"].queries
    assert found["fxminify"].nodes <= found["pytorch"].nodes
