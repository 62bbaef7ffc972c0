"""Checks of the context of a case. Its names are looked up and printed, so each is checked when it is read.

A setting is a name in a module of settings, or in one of the groups of that module: never another path, because other
modules can be reached through a module of settings. Whether this torch has the setting is known where the case is
built. `fxminify.backends.running.ambient` reads the context from a live process and applies it.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from .. import extensions
from .recreation import LEADS_OUT
from .tolerance import DTYPES

#: Modules of torch whose settings can change what any backend does.
_CONFIG_MODULES = ("torch._dynamo.config", "torch._functorch.config")
#: A text of one word names a choice ("compile_error", "default"). Other texts may be paths and are not stored.
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
#: The kernels for attention that can be switched off.
SDP_KERNELS = ("flash", "mem_efficient", "math", "cudnn")


@cache
def config_groups() -> frozenset[str]:
    """The groups of settings in these modules, as installed adapters name them (``acme.config.tiling``)."""
    found = [getattr(adapter, "config_groups", ()) for adapter in extensions.load(extensions.BACKENDS).values()]
    return frozenset(name for names in found for name in names)


def is_setting(module: str, key: str) -> bool:
    """Whether ``key`` may be the name of a setting in ``module``, which is one of `config_modules`."""
    group, dot, name = key.rpartition(".")
    known = f"{module}.{group}" in config_groups() if dot else True
    return known and _SETTING.fullmatch(name) is not None and not keyword.iskeyword(name) and name not in LEADS_OUT


@cache
def config_modules() -> tuple[str, ...]:
    """Modules whose settings can change what a backend does: torch's own, and those that installed adapters name."""
    found = [getattr(adapter, "config_modules", ()) for adapter in extensions.load(extensions.BACKENDS).values()]
    return tuple(dict.fromkeys([*_CONFIG_MODULES, *(name for names in found for name in names)]))


def check(context: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless ``context`` holds what `fxminify.backends.running.ambient.snapshot` writes."""
    for key, value in context.items():
        if key not in _FORMS or not _FORMS[key](value):
            raise ValueError(f"the context holds no valid {key!r:.40}")


def _all(found: Any, valid: Callable[[str, Any], bool]) -> bool:
    return isinstance(found, Mapping) and all(isinstance(k, str) and valid(k, v) for k, v in found.items())


def _is_dtype(name: Any) -> bool:
    return isinstance(name, str) and name in DTYPES


def _is_autocast(device: str, state: Any) -> bool:
    return (
        _DEVICE.fullmatch(device) is not None and isinstance(state, Mapping) and {"dtype"} <= set(state) <= _AUTOCAST
        and _is_dtype(state["dtype"]) and type(state.get("cache", True)) is bool
    )  # fmt: skip


def _is_generator(device: str, state: Any) -> bool:
    return _GENERATOR.fullmatch(device) is not None and isinstance(state, Mapping) and set(state) == {"tensor"}


def _has_settings(module: str, settings: Any) -> bool:
    return module in config_modules() and _all(settings, lambda key, value: is_setting(module, key) and _plain(value))


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return WORD.fullmatch(value) is not None
    return type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


_DEVICE = re.compile(r"[a-z]{1,20}", re.ASCII)
_AUTOCAST = {"dtype", "cache"}
_SETTING = re.compile(r"[a-z][A-Za-z0-9_]{0,99}", re.ASCII)
_GENERATOR = re.compile(r"[a-z]{1,20}(:\d{1,4})?", re.ASCII)
_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "inference": lambda v: type(v) is bool,
    "grad": lambda v: type(v) is bool,
    "default_dtype": _is_dtype,
    "autocast": lambda v: _all(v, _is_autocast),
    "deterministic": lambda v: isinstance(v, Mapping) and set(v) == {"warn_only"} and type(v["warn_only"]) is bool,
    "matmul_precision": lambda v: v in ("highest", "high", "medium"),
    "sdp": lambda v: _all(v, lambda kernel, on: kernel in SDP_KERNELS and type(on) is bool),
    "threads": lambda v: type(v) is int and 0 < v <= 4096,
    "config": lambda v: _all(v, _has_settings),
    "rng": lambda v: _all(v, _is_generator),
}
