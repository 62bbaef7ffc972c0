"""ONNX Runtime as a backend of `torch.compile`: ``torch.compile(model, backend="fxminify_ort", options={...})``.

AOTAutograd turns the graph into functional ATen operators, forward and backward. A torchlib function translates each
node, without tracing again. ONNX Runtime runs the model on the tensors' own memory. What ONNX Runtime cannot run, or
runs wrongly, stays in PyTorch as an *island*; with ``strict`` it is an error.

An entry point registers the name ``fxminify_ort``. torch loads this module when it looks the name up, so it imports
nothing large; ONNX and ONNX Runtime are imported when a graph arrives. Options: `options.OnnxrtOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .storage import Storage

__all__ = ["Storage", "compile_fx", "compile_reference"]


def compile_fx(gm: Any, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a graph of Dynamo's, a ``torch.fx.GraphModule``, for inference or training.

    Raises `options.MissingPackage`, `options_reader.InvalidOption`, and with ``strict`` `report.UnsupportedOperator`.
    """
    return _compile(gm, example_inputs, options, reference=False)


def compile_reference(
    gm: Any, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """`compile_fx` with ONNX's reference evaluator, which is slow and follows the standard.

    To find the value of a model that differs from its FX node, use `evaluator.Evaluation` on a model in ``storage``.
    """
    return _compile(gm, example_inputs, options, reference=True)


def _compile(gm: Any, inputs: list[Any], options: Mapping[str, Any] | None, reference: bool) -> Callable[..., Any]:
    from .options import OnnxrtOptions, require

    settings = OnnxrtOptions.parse(options)
    require()
    from .compiler import compile_graph

    return compile_graph(gm, inputs, settings, reference)
