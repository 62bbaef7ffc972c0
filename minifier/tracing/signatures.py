"""The parameters of the target of a node, from a schema or a Python signature: which are optional, and the defaults.

Imports torch. A function with positional-only parameters counts as unknown, because its earlier arguments cannot be
left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

#: Parameters in order, as (name, is optional); keyword-only parameters come last.
Parameters = tuple[tuple[str, bool], ...]
#: The defaults of optional parameters, by name.
Defaults = dict[str, Any]
#: What is known of a function that is not known.
_NOTHING: tuple[Parameters, Defaults] = ((), {})


def parameters(
    target: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Parameters, Defaults]:
    """The parameters of a function, an operator or (by name) a tensor method, with defaults; empty if unknown."""
    if isinstance(target, torch._ops.OpOverload):
        return _of_schema(target._schema)
    if isinstance(target, str):
        return _of_overloads(target, args, kwargs)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a builtin function: use the operator of the same name
        return _of_overloads(getattr(target, "__name__", ""), args, kwargs)
    found, defaults = [], {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            return _NOTHING
        found.append((name, parameter.default is not parameter.empty))
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
    return tuple(found), defaults


def _of_overloads(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Parameters, Defaults]:
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return _NOTHING
    for overload in packet._overload_names:
        schema = getattr(packet, overload)._schema
        if _takes(schema, args, kwargs):
            return _of_schema(schema)
    return _NOTHING


def _of_schema(schema: Any) -> tuple[Parameters, Defaults]:
    names = tuple((_name(a), a.has_default_value()) for a in schema.arguments)
    return names, {_name(a): a.default_value for a in schema.arguments if a.has_default_value()}


def _name(argument: Any) -> str:
    return "input" if argument.name == "self" else str(argument.name)


def _takes(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an overload accepts these arguments: each has a parameter, and tensors match tensor parameters."""
    given = dict(_given(schema, args, kwargs))
    count = sum(not a.kwarg_only for a in schema.arguments)
    if len(args) > count or not kwargs.keys() <= {_name(a) for a in schema.arguments}:
        return False
    for argument in schema.arguments:
        if _name(argument) not in given:
            if not argument.has_default_value():
                return False
        elif not _fits(given[_name(argument)], str(argument.type)):
            return False
    return True


def _fits(value: Any, kind: str) -> bool:
    """Whether a value can be an argument of the type ``kind`` of a schema, as far as tensors are concerned."""
    if kind == "Optional[Tensor]" and value is None:
        return True
    return isinstance(value, torch.Tensor) == (kind in ("Tensor", "Optional[Tensor]"))


def _given(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for argument, value in zip(schema.arguments, args, strict=False):
        yield _name(argument), value
    yield from kwargs.items()
