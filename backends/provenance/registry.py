"""Access to torch's private registry of backends, and to the wrappers that `torch.compile` puts around a backend.

This module uses ``torch._dynamo.backends.registry``, ``torch._TorchCompileWrapper`` and
``torch._dynamo.backends.common.AotAutograd``. ``tests/torch/backends/test_registry.py`` fails if they change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from types import FunctionType
from typing import Any

from ..adapters import adapter_of, adapters
from . import modules, syntax

GROUP = "torch_dynamo_backends"


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The arguments of `torch.compile`: the backend object or its name, options, mode and ``dynamic``."""

    backend: Any
    name: str = ""
    options: Mapping[str, Any] | None = None
    mode: str | None = None
    dynamic: bool | None = None


def unwrap(obj: Any) -> Unwrapped:
    """``obj`` without the wrappers of Dynamo and `torch.compile`, and the arguments that these have."""
    import torch

    for _ in range(20):
        inner = vars(obj).get("_torchdynamo_orig_backend") if hasattr(obj, "__dict__") else None
        if inner is None:
            break
        obj = inner
    for adapter in adapters().values():
        if (arguments := adapter.unwrap(obj)) is not None:
            return Unwrapped(adapter.backends[0], adapter.backends[0], *arguments)
    if isinstance(obj, torch._TorchCompileWrapper):
        name = obj.compiler_name if is_registered(obj.compiler_name, obj.compiler_fn) else ""
        return Unwrapped(name or obj.compiler_fn, name, obj.kwargs.get("options"), obj.kwargs.get("mode"), obj.dynamic)
    return Unwrapped(obj)


def wrap(
    backend: Any, options: dict[str, Any] | None, mode: str | None, dynamic: bool | None
) -> Callable[[Any, Any], Any]:
    """The callable ``(gm, inputs)`` that `torch.compile` would call for these arguments."""
    import torch

    special = adapter_of(backend).wrapper(options, mode, dynamic) if isinstance(backend, str) else None
    return special or torch._TorchCompileWrapper(backend, mode, options, dynamic)


def is_aot_autograd(obj: Any) -> bool:
    """Whether ``obj`` was made by `torch._dynamo.backends.common.aot_autograd`."""
    from torch._dynamo.backends.common import AotAutograd

    return type(obj) is AotAutograd


def aot_arguments(obj: Any) -> dict[str, Any]:
    """The keyword arguments of an ``aot_autograd`` object, as they were before its first call replaced some."""
    out = dict(obj.kwargs)
    bw = out.get("bw_compiler")
    if getattr(bw, "_is_wrapped_bw_compiler", False) and isinstance(bw, FunctionType):
        cells = dict(zip(bw.__code__.co_freevars, bw.__closure__ or (), strict=True))
        out["bw_compiler"] = cells["bw_compiler_fn"].cell_contents
    for key in ("bw_compiler", "inference_compiler"):
        if out.get(key) is out.get("fw_compiler") or out.get(key) is None:
            out.pop(key, None)
    return out


def boxed_compiler(obj: Any) -> Any:
    """The compiler that ``functorch.compile.make_boxed_compiler`` wrapped as ``obj``, None if it did not."""
    from torch._functorch._aot_autograd.utils import make_boxed_compiler

    inner = make_boxed_compiler.__code__.co_consts
    return vars(obj).get("__wrapped__") if isinstance(obj, FunctionType) and obj.__code__ in inner else None


def registered() -> dict[str, Any]:
    """Every registered backend by name: the function, or the `EntryPoint` that was not loaded yet."""
    from torch._dynamo.backends import registry

    registry._lazy_import()
    return {n: registry._COMPILER_FNS.get(n, e) for n, e in registry._BACKENDS.items()}


def is_registered(name: object, obj: Any) -> bool:
    """Whether ``obj`` is registered as ``name``."""
    from torch._dynamo.backends import registry

    return isinstance(name, str) and registry._COMPILER_FNS.get(name) is obj


def name_of(obj: Any) -> str:
    """Return the registered name of ``obj``, or an empty text."""
    from torch._dynamo.backends import registry

    return next((n for n, fn in registry._COMPILER_FNS.items() if fn is obj), "")


def entry_point(name: str) -> EntryPoint | None:
    """Return the entry point ``name`` of the group ``torch_dynamo_backends``, or None if it does not exist."""
    return next(iter(entry_points(group=GROUP, name=name)), None)


def leaves_to(point: EntryPoint, module: str, obj: Any) -> bool:
    """Whether ``module``, which can register ``obj``, leaves that to the entry point ``point`` of the same name.

    It does if it registers only under a condition such as ``if "x" not in list_backends()``. If it always registers,
    torch's look-up through the entry point fails on a duplicate name, so the module must be imported first.
    """
    tree = modules.tree_of(module)
    always = tree is None or point.name in syntax.registered_names(tree, conditional=False)
    return not always and modules.holds(point.module, point.attr, obj)


def registering_module(name: str, obj: Any) -> str | None:
    """Return the loaded module whose import registers ``name``, or None. It may be torch's own, or the running
    script.

    Another module than the module of the function may register the name, so this reads sources: first of the
    function's module, then of all modules that mention ``register_backend``. A registration inside a function does
    not count, because an import does not run it.
    """
    hint = getattr(obj, "__module__", None)
    torch_own = [n for n in list(sys.modules) if n.startswith(("torch._dynamo.backends.", "torch._dynamo.repro."))]
    for module in chain([hint] if isinstance(hint, str) else [], modules.mentioning("register_", "backend")):
        if module != __name__ and _registers(module, name):
            return module
    return next((m for m in torch_own if _registers(m, name)), None)


def _registers(module: str, name: str) -> bool:
    tree = modules.tree_of(module)
    return tree is not None and name in syntax.registered_names(tree)
