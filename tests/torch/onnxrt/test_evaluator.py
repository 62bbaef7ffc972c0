"""The reference evaluator: an oracle beside ONNX Runtime, and the node at which a model goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import onnx.helper
import pytest
import torch
import torch.nn.functional as F

from fxminify.backends.shipped.onnxrt import Storage, compile_reference
from fxminify.backends.shipped.onnxrt.evaluator import Evaluation

r = torch.randn


def stored(function: Callable[..., Any], *inputs: torch.Tensor) -> Storage:
    storage = Storage()
    with torch.no_grad():
        out = torch.compile(function, backend=compile_reference, options=cast(Any, {"storage": storage}))(*inputs)
        torch.testing.assert_close(out, function(*inputs), rtol=1e-4, atol=1e-5)
    return storage


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.softmax(F.relu(x @ w).t() + 1, -1)


@pytest.mark.process
def test_the_evaluator_agrees_with_eager_in_training() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    x = r(5, 4)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    torch.compile(model, backend=compile_reference, dynamic=True)(x).sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_every_fx_node_has_its_value() -> None:
    x, w = r(3, 4), r(4, 5)
    (model,) = stored(chain, x, w)
    rows = Evaluation(model, [x, w]).rows()
    called = [str(n.target) for n in model.graph_module.graph.nodes if n.op == "call_function"]
    assert [row.target for row in rows] == called
    assert "aten.relu.default" in called
    assert max(row.difference for row in rows) < 1e-5
    assert Evaluation(model, [x, w]).first_difference() is None


def test_the_first_wrong_node_is_named() -> None:
    x, w = r(3, 4), r(4, 5)
    (model,) = stored(chain, x, w)
    (relu,) = [node for node in model.onnx.graph.node if node.op_type == "Relu"]
    relu.CopyFrom(onnx.helper.make_node("Abs", list(relu.input), list(relu.output), name=relu.name))
    row = Evaluation(model, [x, w]).first_difference()
    assert row is not None
    assert (row.node, row.target) == ("relu", "aten.relu.default")
    assert row.source.endswith("return F.softmax(F.relu(x @ w).t() + 1, -1)")
    assert row.difference > 0.1
