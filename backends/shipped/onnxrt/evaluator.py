"""The backend `fxminify_onnx_reference`: ``onnx.reference`` runs the models, to compare their values with FX graphs.

The reference evaluator implements the ONNX standard in NumPy. It is slow and independent of ONNX Runtime. If the two
disagree, ONNX Runtime is wrong; if the evaluator disagrees with the FX graph, the translation is wrong. ONNX values
have the names of FX nodes, so the first row that differs shows the culprit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import runtime
from .report import source_line
from .storage import StoredModel
from .translate import Translation


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of an FX node.

    ``difference`` is the largest one, relative to the largest number or 1; infinite for another shape.
    """

    node: str
    target: str
    source: str
    difference: float
    message: str = ""


class Evaluation:
    """A stored model, evaluated on the inputs of its graph. ``values`` has every result by its ONNX name."""

    def __init__(self, stored: StoredModel, inputs: Sequence[Any]) -> None:
        self._stored = stored
        self._inputs = list(inputs)
        self.values = evaluate(stored.onnx, feeds(stored, inputs))

    def rows(self) -> list[Comparison]:
        """Each FX node whose value the model has under its name, in order, with the difference of the two."""
        known = _Interpreter(self._stored.graph_module)
        with torch.no_grad():
            known.run(*self._inputs)
        return [_row(n, value, self.values[n.name]) for n, value in known.values.items() if n.name in self.values]

    def first_difference(self, tolerance: float = 1e-4) -> Comparison | None:
        """The first node whose difference exceeds ``tolerance``."""
        return next((row for row in self.rows() if not row.difference <= tolerance), None)


class Evaluator:
    """Replaces `runtime.Runner` in the backend ``fxminify_onnx_reference``."""

    def __init__(self, gm: torch.fx.GraphModule, model: Any, translation: Translation) -> None:
        self._model, self._translation = model, translation
        self._computed = [node.meta["val"] for node in translation.results.computed]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Evaluate; the results are on the devices, and have the dtypes, that the graph promises."""
        given = {name: _array(inputs[position]) for position, name in self._translation.inputs}
        found = evaluate(self._model, given)
        outs = [torch.from_numpy(np.array(found[value.name])) for value in self._model.graph.output]
        pairs = zip(outs, self._computed, strict=True)
        laid_out = [_like(out, expected) if isinstance(expected, torch.Tensor) else out for out, expected in pairs]
        return self._translation.results.assemble(inputs, laid_out)


def _like(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    finish = runtime.finish(expected)
    value = value.to(expected.device)
    return value if finish is None else finish(value)


class _Interpreter(torch.fx.Interpreter):
    """Runs an FX graph and keeps the tensors that its calls return."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[torch.fx.Node, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        out = super().run_node(n)
        if n.op == "call_function" and isinstance(out, torch.Tensor):
            self.values[n] = out.detach().clone()
        return out


def feeds(stored: StoredModel, inputs: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of a graph under the names of the model's."""
    holders = stored.graph_module.graph.find_nodes(op="placeholder")
    given = dict(zip([n.name for n in holders], inputs, strict=True))
    return {value.name: _array(given[value.name]) for value in stored.onnx.graph.input}


def evaluate(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of an ``onnx.ModelProto``, by name."""
    from onnx.reference import ReferenceEvaluator

    names = [name for node in model.graph.node for name in node.output if name]
    found = ReferenceEvaluator(model).run(names, dict(given))
    return {**given, **dict(zip(names, found, strict=True))}


def _row(node: torch.fx.Node, expected: torch.Tensor, actual: Any) -> Comparison:
    array = _array(expected)
    actual = np.asarray(actual)
    known = (node.name, str(node.target), source_line(node))
    if array.shape != actual.shape or array.dtype != actual.dtype:
        message = f"{actual.dtype} {list(actual.shape)} for {array.dtype} {list(array.shape)}"
        return Comparison(*known, float("inf"), message)
    if not array.size:
        return Comparison(*known, 0.0)
    one, other = array.astype(np.float64), actual.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    scale = max(1.0, float(np.abs(one[np.isfinite(one)]).max(initial=0)))
    off = np.where(same, 0.0, np.abs(one - other)) / scale
    return Comparison(*known, float(np.nan_to_num(off, nan=np.inf).max()))


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return np.asarray(value, np.int64 if isinstance(value, int) else np.float64)
