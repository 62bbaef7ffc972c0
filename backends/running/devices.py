"""The accelerators that tensors are on (CUDA, ROCm, XPU, MPS), in the words of `torch.accelerator`.

A device is named as in a case, such as ``cuda:0``. The CPU and ``meta`` are no accelerators, and a device of a plug-in
is one if torch has a module for it.

An accelerator computes while Python goes on, so that a fault shows in a later call. `synchronize` lets it show. After
some faults, such as an illegal access, every later call fails in that process: `dead` asks whether this has happened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_NO_ACCELERATOR = ("cpu", "meta")


def used(values: Iterable[Any]) -> list[str]:
    """The accelerators that the tensors among ``values`` are on, in order."""
    import torch

    return sorted({str(t.device) for t in values if isinstance(t, torch.Tensor)} - set(_NO_ACCELERATOR))


def present(device: str) -> bool:
    """Whether this process has the accelerator ``device``."""
    import torch

    wanted = torch.device(device)
    found = torch.accelerator.current_accelerator(check_available=True)
    return found is not None and found.type == wanted.type and (wanted.index or 0) < torch.accelerator.device_count()


def generators(devices: Iterable[str]) -> dict[str, torch.Tensor]:
    """The states of the random number generators of the CPU and of ``devices``, by device."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    for device in devices:
        module = torch.get_device_module(torch.device(device))
        if hasattr(module, "get_rng_state"):
            states[device] = module.get_rng_state(device)
    return states


def set_generators(states: Mapping[str, torch.Tensor]) -> None:
    """Set the generators of the CPU and of accelerators to ``states``."""
    import torch

    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(torch.device(device)).set_rng_state(state, device)


@contextmanager
def kept_generators(devices: Iterable[str]) -> Iterator[None]:
    """Restore the generators of the CPU and of ``devices`` after the block."""
    before = generators(devices)
    try:
        yield
    except BaseException:
        with suppress(RuntimeError):  # a device that cannot be used any more: its fault is the exception to raise
            set_generators(before)
        raise
    set_generators(before)


def synchronize(devices: Iterable[str]) -> None:
    """Wait until ``devices`` have computed all that was asked of them. Raises the fault of an earlier call."""
    import torch

    for device in devices:
        module = torch.get_device_module(torch.device(device))
        if hasattr(module, "synchronize"):
            module.synchronize(*([] if device.startswith("mps") else [device]))


def initialised() -> str:
    """The type of the accelerator that this process has begun to use, such as ``cuda``, or an empty text."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return ""
    begun = getattr(torch.get_device_module(accelerator), "is_initialized", None)
    return str(accelerator.type) if begun is not None and begun() else ""


def dead() -> str:
    """Return the reason why this process cannot use the accelerator any more; empty if it can, or did not use it."""
    kind = initialised()
    if not kind:
        return ""
    import torch

    try:
        torch.accelerator.synchronize()
        torch.zeros(1, device=kind).item()
    except Exception as exc:  # noqa: BLE001  whatever the driver raises: no later call works
        return f"{kind} cannot be used any more: {str(exc).strip().partition(chr(10))[0]}"
    return ""


def survives_a_fork() -> bool:
    """Whether a forked child of this process could use the accelerator. True without an accelerator."""
    torch = sys.modules.get("torch")
    accelerator = None if torch is None else torch.accelerator.current_accelerator()
    if torch is None or accelerator is None:
        return True
    bad = getattr(torch.get_device_module(accelerator), "_is_in_bad_fork", None)
    if bad is None:
        return True
    if (child := os.fork()) == 0:
        os._exit(int(bad()))
    return os.waitpid(child, 0)[1] == 0
