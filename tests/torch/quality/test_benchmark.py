"""What `docs/benchmarks.md` claims is what was measured, and what was measured is as good as it is meant to be."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fxminify.benchmarks import generality
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


def test_the_page_shows_what_became_of_the_architectures() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    planted = generality.outside("planted")
    rows = read(ROOT / "benchmarks" / "generality_measured.jsonl")
    assert put(page, generality.table(rows, planted.FAULTS, planted.SILENT), generality.NAME) == page
    for row in rows:
        if row["state"] != "not planted" and not generality.is_small(row, planted.FAULTS, planted.SILENT):
            assert f"`{row['architecture']}`" in page  # each miss is explained


def test_the_first_pairs_have_all_faults_equally_often() -> None:
    names = [f"a{i}" for i in range(93)]
    faults = list(generality.outside("planted").FAULTS)
    every = generality.pairs(names, faults)
    assert len(every) == len(set(every)) == 93 * 12
    first = every[:60]
    assert len({name for name, _ in first}) == 60
    assert {[fault for _, fault in first].count(fault) for fault in faults} == {5}


def test_a_wrong_result_that_the_next_operator_refuses_takes_that_one_too() -> None:
    sizes, silent = {"dtype": 1, "pair": 2}, {"dtype"}
    row = {"fault": "dtype", "state": "verified", "kind": "runtime_error", "after": 2}
    assert generality.is_small(row, sizes, silent)
    assert not generality.is_small(row | {"kind": "divergence"}, sizes, silent)
    assert not generality.is_small(row | {"fault": "pair", "after": 3}, sizes, silent)
    assert not generality.is_small(row | {"state": "unverified"}, sizes, silent)


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
