"""Leaf modules of `torch.nn`, which graphs of `torch.fx.symbolic_trace` call: class, plain attributes, tensors.

The class must be in the table of names. An instance is made without running its ``__init__``. Only attributes that the
class's own code assigns are kept, so no attribute can replace a method.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch

from ..document.names import table

_OWN = frozenset(vars(torch.nn.Module()))
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})


class NotALeaf(Exception):
    """The module is more than its class and attributes; the message says why."""


def class_of(module: torch.nn.Module) -> str:
    """The listed name of the module's class. Raises `NotALeaf`."""
    cls = type(module)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if name not in table().modules or getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not cls:
        raise NotALeaf(f"module of class {name}")
    return name


def contents(module: torch.nn.Module) -> dict[str, Any]:
    """The plain attributes of the module. Raises `NotALeaf` if it has hooks or was patched."""
    own = vars(module)
    if any(own.get(hooks) for hooks in _OWN if "hooks" in hooks):
        raise NotALeaf(f"module of class {type(module).__qualname__} with hooks")
    known = table().modules[class_of(module)] - _DERIVED
    patched = [k for k in own if k not in known and k not in _OWN and callable(getattr(type(module), k, None))]
    if patched:
        raise NotALeaf(f"module of class {type(module).__qualname__} with its own {patched[0]!r}")
    return {k: v for k, v in own.items() if k in known}


def construct(
    name: str,
    attrs: Mapping[str, Any],
    parameters: Mapping[str, torch.Tensor | None],
    buffers: Mapping[str, torch.Tensor | None],
    modules: Mapping[str, torch.nn.Module | None],
    training: bool,
) -> torch.nn.Module:
    """An instance of the listed class ``name``; inverse of `class_of` and `contents`."""
    if name not in table().modules:
        raise NotALeaf(f"module of class {name}")
    module_name, _, leaf = name.rpartition(".")
    cls = getattr(import_module(module_name), leaf)
    module: torch.nn.Module = cls.__new__(cls)
    torch.nn.Module.__init__(module)
    vars(module).update({k: v for k, v in attrs.items() if k in table().modules[name]})
    module._parameters.update(parameters)  # type: ignore[arg-type]
    module._buffers.update(buffers)
    module._modules.update(modules)
    module.training = training
    if isinstance(module, torch.nn.RNNBase):
        weights = [module._parameters[n] for n in module._flat_weights_names]
        vars(module)["_flat_weights"] = weights
        vars(module)["_flat_weight_refs"] = [None if w is None else weakref.ref(w) for w in weights]
    return module
