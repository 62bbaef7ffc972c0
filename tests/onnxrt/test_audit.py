"""The audit: no operator gives other numbers than eager in silence, outside `support.WRONG`.

Calls come from torch's operator database. Each becomes a graph of one node, decomposed as AOTAutograd would, and runs
the way a graph of a user does: on ONNX Runtime where it may, else as an island. An operator that fails here belongs in
``WRONG`` or ``WRONG_WHEN``; one that `test_what_is_listed_as_wrong_is_wrong` names can leave it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fxminify.backends.onnxrt import decompositions, exporter, support
from fxminify.backends.onnxrt.compiler import Compilation
from fxminify.backends.onnxrt.options import Options

from .operators import Call, recorded

pytest.importorskip("expecttest", reason="torch's operator database imports it")

#: Entries of the database whose operators are audited by default: where mistakes were found, or would hurt most.
SAMPLED = (
    "addmm", "nn.functional.layer_norm", "nn.functional.nll_loss", "index_select", "scatter_add", "var_mean", "nonzero",
    "floor_divide",
)  # fmt: skip


def graph_of(op: Any, args: Any, kwargs: Any, table: dict[Any, Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """One call as an ATen graph of its tensors, and these."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*given: torch.Tensor) -> list[Any]:
        rest = iter(given)
        again = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(again, spec)
        return list(pytree.tree_leaves(op(*args, **kwargs)))

    return make_fx(call, decomposition_table=table, tracing_mode="fake")(*tensors), tensors


def difference(actual: Any, expected: Any) -> str:
    """How a result differs from eager's; nothing where it does not. None stands for what nobody asked for."""
    if not isinstance(expected, torch.Tensor):
        return "" if actual is None or actual == expected else f"{actual} for {expected}"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} {list(actual.shape)} for {expected.dtype} {list(expected.shape)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    same = torch.allclose(actual.to(wide), expected.to(wide), rtol=2e-3, atol=2e-4, equal_nan=True)
    return "" if same else "other numbers"


def audit(calls: dict[Any, list[Call]], table: dict[Any, Any]) -> dict[str, str]:
    """Operators with a wrong result, and how it is wrong."""
    wrong = {}
    for op, several in calls.items():
        for args, kwargs, expected in several:
            graph, tensors = graph_of(op, args, kwargs, table)
            run: Callable[..., Any] = Compilation(graph, "inference", Options(), {}).run()
            actual = run([t.clone() for t in tensors])
            said = [difference(a, e) for a, e in zip(actual, pytree.tree_leaves(expected), strict=True)]
            if any(said):
                wrong[support.name(op)] = "; ".join(filter(None, said))
    return wrong


def test_sampled_operators_agree_with_eager() -> None:
    calls = recorded(SAMPLED)
    assert {op for op in calls if torch.ops.aten.nll_loss_forward in (op, op.overloadpacket)}
    assert len(calls) > 15
    assert audit(calls, decompositions.table("default")) == {}


@pytest.mark.slow
def test_every_operator_agrees_with_eager() -> None:
    calls = {op: c for op, c in recorded().items() if exporter.is_registered(op) or torch.Tag.core in op.tags}
    assert len(calls) > 150
    assert audit(calls, decompositions.table("default")) == {}


@pytest.mark.slow
def test_what_is_listed_as_wrong_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the list, operators on it go wrong: a list that has outlived its reasons is pruned."""
    listed = dict(support.WRONG)
    calls = {op: c for op, c in recorded().items() if support.name(op) in listed}
    monkeypatch.setattr(support, "WRONG", {})
    wrong = set(audit(calls, {}))
    assert "aten::nll_loss_forward" in wrong
    assert wrong <= set(listed)
