"""The captured graph without what its failure needs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import index_tasks
import made
import pytest
from rich.console import Console

from fxminify.minifier.commands.terminal import detail
from fxminify.minifier.oracle import rest
from fxminify.minifier.oracle.rest import Rest
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting.gathering import gather
from fxminify.store.document.case import Graph, Node
from fxminify.store.index import Index

CASE, TRACE = made.make(
    ["x"], [("a", "sin", "x"), ("b", "relu", "a"), ("c", "cos", "b"), ("d", "relu", "c"), ("e", "exp", "d")], ["e"]
)


def minimal(*names: str) -> Graph:
    nodes = {node.name: node for node in CASE.graph.nodes}
    kept = [replace(nodes.get(name.partition("__")[0], nodes["a"]), name=name) for name in names]
    return Graph((*kept, CASE.graph.nodes[-1]))


@pytest.mark.parametrize(
    ("names", "code", "called"),
    [
        (["b"], "x, b, d -> a = sin(x) -> c = cos(b) -> e = exp(d) -> a, c, e", ("torch.relu",)),
        (["b", "c"], "x, d -> a = sin(x) -> e = exp(d) -> a, e", ("torch.relu", "torch.cos")),
        (["d__part1_maximum"], "x, b, d -> a = sin(x) -> c = cos(b) -> e = exp(d) -> a, c, e", ("torch.relu",)),
        (["c__copy1"], "x, c -> a = sin(x) -> b = relu(a) -> d = relu(c) -> e = exp(d) -> b, e", ("torch.cos",)),
    ],
)
def test_every_node_that_calls_the_same_is_gone(names: list[str], code: str, called: tuple[str, ...]) -> None:
    found = rest.without(CASE, TRACE, minimal(*names))
    assert found is not None
    assert (made.code(found[0]), found[1]) == (code, called)


@pytest.mark.parametrize("names", [["of_another_graph"], ["a", "b", "c", "e"]])
def test_where_nothing_or_all_would_be_gone_nobody_is_asked(names: list[str]) -> None:
    assert rest.without(CASE, TRACE, minimal(*names)) is None


def test_a_method_is_named_with_its_dot() -> None:
    case, trace = made.make(["x"], [("a", "sin", "x"), ("b", "cos", "a")], ["b"])
    nodes = tuple(Node("a", "call_method", "view", n.args) if n.name == "a" else n for n in case.graph.nodes)
    found = rest.without(replace(case, graph=Graph(nodes)), trace, Graph((nodes[1],)))
    assert found is not None
    assert found[1] == (".view",)


LSTM = Graph(
    (
        Node("lstm", "call_function", {"fn": "torch.lstm"}),
        Node("item", "call_function", {"fn": "_operator.getitem"}),
        Node("out", "call_function", {"fn": "_operator.matmul"}),
        Node("view", "call_method", "view"),
        Node("relu", "call_function", {"op": "aten::relu.default"}),
    )
)


@pytest.mark.parametrize(
    ("without", "words"),
    [
        (("torch.lstm", "_operator.getitem"), "passes without torch.lstm"),
        (("_operator.getitem",), "passes without operator.getitem"),
        (("_operator.matmul", ".view"), "passes without operator.matmul and .view"),
        (
            ("torch.lstm", "_operator.matmul", "aten::relu.default"),
            "passes without torch.lstm, operator.matmul and torch.ops.aten.relu.default",
        ),
        (
            ("torch.lstm", "_operator.add"),
            "passes without torch.lstm and operator.add (the minimal graph has operator.add in another form)",
        ),
        (
            ("torch.lstm", "_operator.matmul", ".view", "torch.relu"),
            "passes without the operators of the minimal graph",
        ),
    ],
)
def test_operators_are_named_as_the_minimal_graph_shows_them(without: tuple[str, ...], words: str) -> None:
    assert Rest(without, 9, Outcome.PASS).words(LSTM) == words


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.PASS, "passes without torch.relu"),
        (Outcome.OTHER, "fails in another way without torch.relu: RuntimeError: no sin"),
        (Outcome.SAME, "still fails in this way without torch.relu"),
        (Outcome.INVALID, ""),
    ],
)
def test_the_answer_is_kept(tmp_path: Path, outcome: Outcome, words: str) -> None:
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        id = index_tasks.add(index, *index_tasks.small_case())
        assert rest.stored(index, id) is None
        rest.keep(index, id, Rest(("torch.relu",), 3, outcome, "RuntimeError: no sin"))
        found = rest.stored(index, id)
        assert found is not None
        assert found.words(minimal("b")) == words
        console = Console(file=io.StringIO(), width=200)
        detail.show(replace(gather(index, id), rest=words), "repro.db", console=console)
        shown = [line for line in console.file.getvalue().splitlines() if "the rest" in line]  # type: ignore[attr-defined]
        assert shown == ([f"  the rest  of the captured graph {words}"] if words else [])
        index.artifacts.save(id, rest.ARTIFACT, {"without": 3})
        assert rest.stored(index, id) is None
