"""Conversion between live callables and their names. The one module that uses torch's private operator registries.

`describe` gives a callable a name only if `resolve` turns that name back into the same object. So what was written can
be read, and a function that only claims to be ``torch.relu`` is not stored as ``torch.relu``. Modules are imported only
by names in the table, never by text from a document.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections import defaultdict
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket, _higher_order_ops

from ..document.case import Json, tag
from ..document.names import ANNOTATIONS, TENSOR, UnknownName, check_target, table, without_name

_PLAIN = {"_operator": operator, "math": math, "builtins": builtins}


def resolve(target: Json) -> Any:
    """The callable that a target names. Raises `UnknownName` if it is not listed, or this torch lacks it."""
    kind = tag(target)
    check_target(target, custom=True)
    assert kind is not None
    name = target[kind]
    look_up: dict[str, Any] = {"fn": _function, "op": _overload, "packet": _packet, "hop": _higher_order}
    found = look_up[kind](name)
    if found is None:
        raise UnknownName(f"torch {torch.__version__} here has no {kind} {name!r}")
    return found


def describe(obj: Any) -> Json:
    """Return the target that names ``obj``. Raises `UnknownName` for an object without a name."""
    target: Json
    if isinstance(obj, OpOverload):
        target = {"op": f"{obj._schema.name}.{obj._overloadname}"}
    elif isinstance(obj, OpOverloadPacket):
        target = {"packet": obj._qualified_op_name}
    elif isinstance(obj, HigherOrderOperator):
        target = {"hop": obj._name}
    else:
        name = _function_names().find(obj)
        if name is None:
            raise UnknownName(f"{_title(obj)} {without_name()}")
        return {"fn": name}
    if resolve(target) is not obj:
        raise UnknownName(f"{_title(obj)} is another object than the one registered under that name")
    return target


def triton_kernel(node: fx.Node) -> str | None:
    """The name of the Triton kernel that ``node`` launches, None for any other node."""
    if node.op != "call_function" or not str(getattr(node.target, "_name", "")).startswith("triton_kernel_wrapper"):
        return None
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    number: Any = node.kwargs.get("kernel_idx")
    kernel: Any = kernel_side_table.id_to_kernel.get(number)
    while kernel is not None and not isinstance(getattr(kernel, "__name__", None), str):
        kernel = getattr(kernel, "fn", None)  # an autotuner or a heuristic around it
    return f"number {number}" if kernel is None else str(kernel.__name__)


def _title(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(name, str):
        return f"an object of type {type(obj).__module__}.{type(obj).__qualname__}"
    module = getattr(obj, "__module__", None)
    return f"{type(obj).__name__} {module}.{name}" if module else f"{type(obj).__name__} {name}"


def _function(name: str) -> Any:
    if name.startswith(TENSOR):
        return getattr(torch.Tensor, name[len(TENSOR) :], None)
    for spelling in (name, *table().aliases.get(name, ())):
        module, _, leaf = spelling.rpartition(".")
        found = _module(module, load=True)
        obj = getattr(found, leaf, None) if found is not None else None
        if callable(obj) and not isinstance(obj, ModuleType):
            return obj
    return None


def _module(name: str, *, load: bool) -> ModuleType | None:
    """The module of a listed name. ``torch._C._nn`` and others are attributes, not files."""
    found = _PLAIN.get(name) or sys.modules.get(name)
    if found is not None:
        return found
    parent, _, leaf = name.rpartition(".")
    holder = _module(parent, load=load) if parent else None
    inner = getattr(holder, leaf, None)
    if isinstance(inner, ModuleType):
        return inner
    if not load:
        return None
    try:
        return import_module(name)
    except ImportError:
        return None


def _packet(name: str) -> OpOverloadPacket | None:
    if name in table().libraries:
        _module(table().libraries[name], load=True)
    space, _, op = name.partition("::")
    if torch._C._jit_get_operation(name)[0] is None:
        return None
    found = getattr(getattr(torch.ops, space), op, None)
    return found if isinstance(found, OpOverloadPacket) else None


@cache
def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.rpartition(".")
    holder = _packet(packet)
    # Attributes of a packet are more than its overloads: `aten::add.__class__` is not an overload.
    if holder is None or overload not in holder.overloads():
        return None
    found = getattr(holder, overload)
    return found if isinstance(found, OpOverload) else None


def _higher_order(name: str) -> HigherOrderOperator | None:
    if name not in _higher_order_ops:
        _module(table().hops[name], load=True)
    found = _higher_order_ops.get(name)
    return found if isinstance(found, HigherOrderOperator) else None


class _FunctionNames:
    """Listed functions by identity.

    If a look-up misses, modules that were imported since are searched, and so are names whose object was replaced since
    (importing Dynamo wraps ``torch.manual_seed``).
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, Any]] = {}
        self._waiting = sorted(table().functions, key=_publicity)
        self._leaves: dict[str, list[str]] = defaultdict(list)
        for name in self._waiting:
            self._leaves[name.rpartition(".")[2]].append(name)
        for name in sorted(table().methods):
            self._add(TENSOR + name, getattr(torch.Tensor, name, None))

    def find(self, obj: Any) -> str | None:
        found = self._names.get(id(obj))
        if found is None and self._waiting:
            self._look()
            found = self._names.get(id(obj))
        if found is None:
            same = self._leaves.get(getattr(obj, "__name__", ""), ())
            return next((name for name in same if _function(name) is obj), None)
        return found[0] if found[1] is obj else None

    def _look(self) -> None:
        waiting, loaded = [], {}
        for name in self._waiting:
            module, _, leaf = name.rpartition(".")
            if module not in loaded:
                loaded[module] = _module(module, load=False)
            holder = loaded[module]
            if holder is None:
                waiting.append(name)
            else:
                self._add(name, getattr(holder, leaf, None))
        self._waiting = waiting

    def _add(self, name: str, obj: Any) -> None:
        if callable(obj) and not isinstance(obj, ModuleType):
            self._names.setdefault(id(obj), (name, obj))


def _publicity(name: str) -> tuple[bool, int, str]:
    """Sort key: public names first, so that an object with two names gets the better known one."""
    return "._" in name, name.count("."), name


@cache
def _function_names() -> _FunctionNames:
    return _FunctionNames()


def annotation(kind: Any) -> str | None:
    """The name of a node's annotation, None for one that FX can do without."""
    return _ANNOTATION_NAMES.get(kind) if isinstance(kind, type) else None


#: Annotation -> class.
ANNOTATION_CLASSES: dict[str, type] = {
    name: getattr({"": builtins, "torch": torch, "torch.nn": torch.nn}[holder], leaf)
    for name in ANNOTATIONS
    for holder, _, leaf in [name.rpartition(".")]
}
_ANNOTATION_NAMES = {cls: name for name, cls in ANNOTATION_CLASSES.items()}


def enumeration(name: str) -> Any:
    """A listed class of named constants, None for any other. pybind11's are no `enum.Enum`."""
    if name != "SDPBackend":
        return None
    from torch.nn.attention import SDPBackend

    return SDPBackend


def forget() -> None:
    """Drop what was looked up: the table has grown, or a test registers operators anew."""
    _overload.cache_clear()
    _function_names.cache_clear()
