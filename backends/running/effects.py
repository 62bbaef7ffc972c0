"""Side effects of the nodes of a graph on their operands, according to torch's schemas.

`reads_only` is conservative: it is False unless the node is known to leave its operands unchanged. Schemas of some
operators leave out what they write to (batch norm and its running statistics), so these count as writing.
"""

from __future__ import annotations

import inspect
import types
from functools import cache
from typing import Any

import torch
from torch import fx

#: Namespaces whose schemas are trusted. The schema of a custom operator may be wrong.
_BELIEVED = ("aten", "prims")
#: Parts of the names of operators whose schemas leave out what they write to.
_SILENT = ("batch_norm", "instance_norm", "flatten_weight")
#: Functions of `operator` that leave their operands alone.
_OPERATORS = frozenset(
    {"abs", "add", "and_", "contains", "eq", "floordiv", "ge", "getitem", "gt", "index", "invert", "is_", "is_not",
     "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub",
     "truediv", "truth", "xor"}
)  # fmt: skip
#: Methods of tensors that are no operators of ATen, and leave their operands alone.
_METHODS = frozenset(
    {"bfloat16", "bool", "byte", "char", "contiguous", "cpu", "cuda", "dim", "double", "float", "half", "int", "long",
     "numel", "short", "size", "stride", "type", "type_as"}
)  # fmt: skip


def reads_only(node: fx.Node) -> bool:
    """Whether ``node`` certainly writes to none of its operands."""
    target: Any = node.target
    if node.op in ("placeholder", "get_attr", "output"):
        return True
    if node.op == "call_method":
        return target in _METHODS or _operator_reads_only(target, node)
    if node.op != "call_function":
        return False
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _BELIEVED and _schema_reads_only(target) and not _out(target, node)
    module, name = getattr(target, "__module__", None) or "", getattr(target, "__name__", "")
    if module == "_operator":
        return name in _OPERATORS
    if target is getattr:
        return True
    if module != "torch" and not module.startswith("torch."):
        return False
    return _arguments_read_only(target, node) and _operator_reads_only(name, node)


def draws(node: fx.Node) -> bool:
    """Whether ``node`` may draw random numbers."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return any(torch.Tag.nondeterministic_seeded in each.tags for each in _overloads(name))


@cache
def _overloads(name: str) -> tuple[torch._ops.OpOverload, ...]:
    """The operators of ATen with this name."""
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() and not name.startswith("__") else None
    return tuple(getattr(packet, each) for each in packet.overloads()) if packet is not None else ()


def _operator_reads_only(name: str, node: fx.Node) -> bool:
    found = _overloads(name)
    return bool(found) and all(_schema_reads_only(each) and not _out(each, node) for each in found)


@cache
def _schema_reads_only(operator: torch._ops.OpOverload) -> bool:
    """Whether ``operator`` writes to nothing but arguments ``out``, if they are given."""
    schema = operator._schema
    written = (a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return not any(word in schema.name for word in _SILENT) and all(a.is_out for a in written)


def _out(operator: torch._ops.OpOverload, node: fx.Node) -> bool:
    """Whether an argument ``out`` of ``operator`` is given."""
    return any(a.is_out and node.kwargs.get(a.name) is not None for a in operator._schema.arguments)


def _arguments_read_only(function: Any, node: fx.Node) -> bool:
    """Whether no argument asks a function of torch to write to an operand."""
    if not isinstance(function, types.FunctionType):
        return not node.kwargs.get("inplace")
    try:
        given = inspect.signature(function).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):
        return False
    return not given.get("inplace") and given.get("max_norm") is None
