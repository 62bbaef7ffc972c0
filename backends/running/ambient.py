"""Ambient state: what a compiled graph depends on besides its inputs (grad mode, autocast, default dtype, RNG ...).

A *context* is a JSON object with only what differs from a fresh process. It is usually empty, and any key can be
dropped:

    "grad": false                     "inference": true            "default_dtype": "float64"
    "autocast": {"cpu": {"dtype": "bfloat16", "cache": true}}      only the device types where it is enabled
    "deterministic": {"warn_only": false}                          "matmul_precision": "high"
    "sdp": {"flash": false}           only the attention kernels that are switched off
    "threads": 1                      "config": {"torch._dynamo.config": {"cache_size_limit": 64}}
    "rng": {"cpu": {"tensor": i}}     the generator's state, for graphs that may draw random numbers

`snapshot` reads the state, `applied` restores it inside a ``with`` block, `to_source` prints it. Only functions that
need torch import it; `to_source` does not.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...store.document.case import Blobs, Json, TensorSpec
from ...store.document.context import SDP_KERNELS, WORD, check, config_modules, is_setting
from . import devices

if TYPE_CHECKING:
    import torch

#: Names of settings that cannot affect a failure.
_NOT_SETTINGS = (
    "thread", "worker", "cache", "dir", "path", "log", "trace", "debug", "verbose", "repro", "dynamic",
    "deterministic",
)  # fmt: skip


def snapshot() -> Json:
    """The ambient state of this process as a context, without the random number generators."""
    import torch

    out: Json = {}
    if torch.is_inference_mode_enabled():
        out["inference"] = True
    elif not torch.is_grad_enabled():
        out["grad"] = False
    if torch.get_default_dtype() != torch.float32:
        out["default_dtype"] = _name(torch.get_default_dtype())
    autocast = {device: _autocast(device) for device in _devices() if torch.is_autocast_enabled(device)}
    if autocast:
        out["autocast"] = autocast
    if torch.are_deterministic_algorithms_enabled():
        out["deterministic"] = {"warn_only": torch.is_deterministic_algorithms_warn_only_enabled()}
    if torch.get_float32_matmul_precision() != "highest":
        out["matmul_precision"] = torch.get_float32_matmul_precision()
    off = {kernel: False for kernel in SDP_KERNELS if not getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")()}
    if off:
        out["sdp"] = off
    if torch.get_num_threads() == 1 and len(os.sched_getaffinity(0)) > 1:
        out["threads"] = 1
    config = {name: changed for name in config_modules() if (changed := _changed(name))}
    if config:
        out["config"] = config
    return out


@contextmanager
def applied(
    context: Mapping[str, Any], tensors: Sequence[TensorSpec] = (), blobs: Blobs | None = None
) -> Iterator[None]:
    """Apply the ambient state of ``context``, with its generators, inside the block; then restore the former one.

    Raises `ValueError` if ``context`` is not valid, or has a setting that this torch does not have.
    """
    import torch

    check(context)
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.set_default_dtype(getattr(torch, context.get("default_dtype", "float32")))
        torch.set_float32_matmul_precision(context.get("matmul_precision", "highest"))
        if "threads" in context:
            torch.set_num_threads(context["threads"])
        deterministic = context.get("deterministic")
        torch.use_deterministic_algorithms(
            deterministic is not None, warn_only=bool(deterministic and deterministic["warn_only"])
        )
        for kernel in SDP_KERNELS:
            switch = getattr(torch.backends.cuda, f"enable_{kernel}_sdp")
            stack.callback(switch, getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")())
            switch(context.get("sdp", {}).get(kernel, True))
        for name, settings in context.get("config", {}).items():
            module = import_module(name)
            if unknown := sorted(settings.keys() - module._config.keys()):
                raise ValueError(f"the installed {name} has no setting {', '.join(unknown)}")
            stack.enter_context(module.patch(settings))
        stack.enter_context(torch.inference_mode(bool(context.get("inference", False))))
        if not context.get("inference", False):
            stack.enter_context(torch.set_grad_enabled(context.get("grad", True)))
        for device, state in context.get("autocast", {}).items():
            dtype = getattr(torch, state["dtype"])
            stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=state.get("cache", True)))
        stack.enter_context(_rng(context.get("rng", {}), tensors, {} if blobs is None else blobs))
        yield


@dataclass(frozen=True)
class AmbientSource:
    """Source of a context: statements to run first, and context managers around the call, in order."""

    setup: list[str] = field(default_factory=list)
    managers: list[str] = field(default_factory=list)


def to_source(context: Mapping[str, Any]) -> AmbientSource:
    """The source of ``context``. It has no state of a generator, which a script seeds instead.

    Raises `ValueError` if ``context`` is not valid.
    """
    check(context)
    setup: list[str] = []
    if "default_dtype" in context:
        setup.append(f"torch.set_default_dtype(torch.{context['default_dtype']})")
    if "matmul_precision" in context:
        setup.append(f"torch.set_float32_matmul_precision({_printed(context['matmul_precision'])})")
    if "threads" in context:
        setup.append(f"torch.set_num_threads({context['threads']!r})")
    if "deterministic" in context:
        warn = ", warn_only=True" if context["deterministic"]["warn_only"] else ""
        setup.append(f"torch.use_deterministic_algorithms(True{warn})")
    setup += [f"torch.backends.cuda.enable_{kernel}_sdp(False)" for kernel in sorted(context.get("sdp", {}))]
    for name, settings in sorted(context.get("config", {}).items()):
        setup.append(f"import {name}")
        setup += [f"{name}.{key} = {_printed(value)}" for key, value in sorted(settings.items())]
    managers = []
    if context.get("inference"):
        managers.append("torch.inference_mode()")
    elif context.get("grad") is False:
        managers.append("torch.no_grad()")
    for device, state in sorted(context.get("autocast", {}).items()):
        cache = "" if state.get("cache", True) else ", cache_enabled=False"
        managers.append(f"torch.autocast({_printed(device)}, dtype=torch.{state['dtype']}{cache})")
    return AmbientSource(setup, managers)


def _printed(value: object) -> str:
    """The source of a word, in double quotes, or of a number."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _autocast(device: str) -> Json:
    import torch

    out: Json = {"dtype": _name(torch.get_autocast_dtype(device))}
    return out if torch.is_autocast_cache_enabled() else out | {"cache": False}


def _devices() -> list[str]:
    """Device types with autocast: the CPU and the accelerator of this process, if there is one."""
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


def _changed(name: str) -> Json:
    """The settings of a config module that somebody changed and that are plain values. Uses private API."""
    module = sys.modules.get(name)
    if module is None:
        return {}
    out: Json = {}
    for key in module._config:
        aside = any(word.startswith(_NOT_SETTINGS) for word in re.split("[._]", key))
        if module._is_default(key) or aside or not is_setting(name, key):
            continue
        value = getattr(module, key)
        plain = isinstance(value, bool | int | float) or (isinstance(value, str) and WORD.fullmatch(value) is not None)
        if plain and value != module._config[key].default:
            out[key] = value
    return out


@contextmanager
def _rng(states: Mapping[str, Any], tensors: Sequence[TensorSpec], blobs: Blobs) -> Iterator[None]:
    """Set the recorded states of generators inside the block, and restore the former ones, the CPU's in any case."""
    from ...store.live.build import build_value

    available = {device: value for device, value in states.items() if device == "cpu" or devices.present(device)}
    with devices.kept_generators(device for device in available if device != "cpu"):
        devices.set_generators({device: build_value(value, tensors, blobs) for device, value in available.items()})
        yield
