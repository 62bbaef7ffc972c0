"""The use of torch's ONNX exporter: the only module here that depends on the exporter's private API.

The fast way calls the exporter's own translation of single nodes, without tracing and ``torch.export``. If a private
name is missing, `PRIVATE` is None, and `translate` calls the public ``torch.onnx.export`` on an ``ExportedProgram``.
The models are the same; each takes a second or two longer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from .options import TORCHLIB_OPSET

#: The dtypes that can travel in a batch of OrtValues: bfloat16 has no NumPy type.
NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.float32, torch.uint8: np.uint8, torch.int8: np.int8, torch.int16: np.int16,
    torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_, torch.float16: np.float16,
    torch.float64: np.float64,
}  # fmt: skip
#: The dtypes for which ONNX Runtime has kernels.
DTYPES = frozenset({*NUMPY, torch.bfloat16})


def dtype_of(value: Any) -> torch.dtype:
    """The element type of an FX node's value: a tensor, or a number that becomes a tensor without dimensions."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(value, int | torch.SymInt) else torch.float64


def _probe() -> SimpleNamespace | None:
    """The private names, or None if one is missing."""
    try:
        from torch.onnx._internal.exporter import _constants, _core, _decomp, _fx_passes, _ir_passes, _registration

        return SimpleNamespace(
            registry=_registration.ONNXRegistry.from_torchlib,
            translate=_core._translate_fx_graph,
            overloads=_decomp.get_onnx_implemented_overloads,
            friendly=_decomp.create_onnx_friendly_decomposition_table,
            promote=_fx_passes.insert_type_promotion_nodes,
            add_opset_imports=_ir_passes.add_opset_imports,
            domain=_constants.LOCAL_FUNCTION_DOMAIN,
            ir_version=_constants.ONNX_IR_VERSION,
        )
    except (ImportError, AttributeError):
        return None


PRIVATE: SimpleNamespace | None = _probe()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about what this backend handles itself."""
    logger = logging.getLogger("torch.onnx._internal.exporter")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@functools.cache
def _registry() -> Any:
    assert PRIVATE is not None
    with _quiet():
        return PRIVATE.registry(opset_version=TORCHLIB_OPSET)


def is_registered(target: Any) -> bool:
    """Whether a torchlib function exists. Without the private registry every ATen operator is tried."""
    if PRIVATE is not None:
        return bool(_registry().is_registered(target))
    return not isinstance(target, torch._ops.OpOverload) or target.namespace in ("aten", "prims")


def implemented() -> set[Any]:
    """The operators with a torchlib function; core ATen where the registry cannot be read."""
    if PRIVATE is not None:
        return set(PRIVATE.overloads(_registry()))
    core = set()
    for name in dir(torch.ops.aten):
        packet: Any = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            overloads = (getattr(packet, overload) for overload in packet.overloads())
            core |= {op for op in overloads if torch.Tag.core in op.tags}
    return core


def friendly_table(kept: set[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions of everything but ``kept``."""
    if PRIVATE is not None:
        return dict(PRIVATE.friendly(kept))
    tables = (torch._decomp.decomposition_table, torch.export.default_decompositions())
    return {op: fn for table in tables for op, fn in table.items() if op not in kept and hasattr(op, "_schema")}


def translate(gm: torch.fx.GraphModule, promote: bool) -> ir.Model:
    """An ONNX model of a graph whose nodes are ATen calls and whose outputs are results of nodes.

    Inputs of the model are the placeholders, in their order; ``get_attr`` nodes are graph modules. Changes ``gm``.
    """
    if PRIVATE is None:
        return _public(gm)
    with _quiet():
        if promote:
            PRIVATE.promote(gm)
        model = ir.Model(
            ir.Graph([], [], nodes=[], name="main_graph"),
            ir_version=PRIVATE.ir_version,
            producer_name="fxminify",
        )
        owned: dict[str, dict[str, ir.Function]] = {}
        for name, module in reversed(list(gm.named_modules(remove_duplicate=False))):
            if not isinstance(module, torch.fx.GraphModule):
                continue
            into: Any = model.graph
            if name:
                into = ir.Function(
                    PRIVATE.domain, name.replace(".", "__"), graph=ir.Graph((), (), nodes=()), attributes=()
                )
                scope, _, leaf = name.rpartition(".")
                owned.setdefault(scope, {})[leaf] = into
                model.functions[into.identifier()] = into
            PRIVATE.translate(
                module.graph,
                model,
                graph_like=into,
                owned_graphs=owned.get(name, {}),
                lower="at_conversion",
                registry=_registry(),
            )
        PRIVATE.add_opset_imports(model)
        model.opset_imports.setdefault("", TORCHLIB_OPSET)  # a model of constants alone calls no operator
    return model


def _public(gm: torch.fx.GraphModule) -> ir.Model:
    """`translate` by public API alone."""
    from torch.export import ExportedProgram
    from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        SymIntArgument,
        TensorArgument,
    )
    from torch.utils import _pytree as pytree

    def argument(node: torch.fx.Node) -> Any:
        tensor = isinstance(node.meta["val"], torch.Tensor)
        return TensorArgument(node.name) if tensor else SymIntArgument(node.name)

    holders = gm.graph.find_nodes(op="placeholder")
    emitted = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    inputs = [InputSpec(InputKind.USER_INPUT, argument(n), None) for n in holders]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in emitted]
    example = tuple(n.meta["val"] for n in holders)
    signature = ModuleCallSignature(
        [s.arg for s in inputs],
        [s.arg for s in outputs],
        pytree.tree_structure((example, {})),
        pytree.tree_structure(tuple(range(len(emitted)))),
    )
    program = ExportedProgram(
        gm,
        gm.graph,
        ExportGraphSignature(inputs, outputs),
        {},
        {},
        [ModuleCallEntry("", signature)],
        (example, {}),
    )
    program._guards_code = []  # guards of Dynamo's shape environment name variables that do not exist here
    with _quiet(), torch._guards.tracing(None):
        exported = torch.onnx.export(program, (), dynamo=True, optimize=False, verify=False, verbose=False)
    assert exported is not None
    model: ir.Model = exported.model
    return model
