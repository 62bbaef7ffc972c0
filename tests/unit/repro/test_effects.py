"""What a graph may write to or draw, read from its data alone."""

from __future__ import annotations

from typing import Any

import pytest

from fxminify.repro_templates.source.action import draws, mutates
from fxminify.store.document.case import Graph, Node


def graph(op: str, target: Any, *args: Any, **kwargs: Any) -> Graph:
    node = Node("y", op, target, ({"ref": "x"}, *args), kwargs)
    return Graph((Node("x", "placeholder", "x"), node, Node("output", "output", "output", (None,))))


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "writes"),
    [
        ({"fn": "torch.relu"}, (), {}, False),
        ({"fn": "torch.relu_"}, (), {}, True),
        ({"fn": "torch.nn.functional.relu"}, (), {"inplace": True}, True),
        ({"fn": "torch.nn.functional.relu"}, (), {"inplace": False}, False),
        ({"fn": "torch.nn.functional.relu"}, (True,), {}, True),
        ({"fn": "torch.add"}, (1,), {"out": {"ref": "x"}}, True),
        ({"fn": "_operator.iadd"}, (1,), {}, True),
        ({"fn": "_operator.add"}, (1,), {}, False),
        ({"fn": "_operator.setitem"}, (0, 1), {}, True),
        ({"fn": "torch.nn.functional.batch_norm"}, (), {}, True),
        ({"op": "aten::add.Tensor"}, (1,), {}, False),
        ({"op": "aten::add_.Tensor"}, (1,), {}, True),
        ({"op": "aten::add.out"}, (1,), {}, True),
        ({"op": "aten::__and__.Tensor"}, (1,), {}, False),
        ({"op": "mylib::anything.default"}, (), {}, True),
    ],
)
def test_writes(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], writes: bool) -> None:
    assert mutates(graph("call_function", target, *args, **kwargs)) is writes


def test_methods_and_sub_graphs_write_too() -> None:
    inner = graph("call_method", "add_", 1)
    assert mutates(inner)
    assert not mutates(graph("call_method", "__add__", 1))
    outer = graph("call_function", {"fn": "torch.relu"})
    assert mutates(Graph(outer.nodes, {"body": {"graph": inner}}))


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "random"),
    [
        ("torch.rand_like", (), {}, True),
        ("torch.nn.functional.dropout", (0.5, True), {}, True),
        ("torch.nn.functional.dropout", (0.5, False), {}, False),
        ("torch.nn.functional.dropout", (0.5,), {"training": False}, False),
        ("torch.nn.functional.scaled_dot_product_attention", (), {}, False),
        ("torch.nn.functional.scaled_dot_product_attention", (), {"dropout_p": 0.1}, True),
        ("torch.nn.functional.fractional_max_pool2d", (), {}, True),
        ("torch.randperm", (), {}, True),
        ("torch.lstm", ([], [], True, 1, 0.0, True, False, True), {}, False),
        ("torch.lstm", ([], [], True, 2, 0.5, True, False, True), {}, True),
        ("torch.relu", (), {}, False),
    ],
)
def test_draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], random: bool) -> None:
    assert draws(graph("call_function", {"fn": name}, *args, **kwargs)) is random
