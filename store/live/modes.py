"""Standing aside from whatever is active around a backend. Leans on torch's private mode stacks.

A backend is called with fake-tensor, functional or proxy modes on the stack, inside functorch levels, under a
default device, with gradients on or off. Reading a tensor's bytes or making a new one must see none of that, and
must leave all of it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch._C._functorch import (
    get_interpreter_stack,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
    peek_interpreter_stack,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def undisturbed(*, inference: bool = False) -> Iterator[None]:
    """Plain eager tensors: no autograd, no dispatch or function mode, no functorch level; inference mode on demand."""
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(_disable_current_modes())
        if peek_interpreter_stack() is not None:
            stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.no_grad())  # after inference mode, which turns gradients on where it is left
        yield


@contextmanager
def as_it_was() -> Iterator[None]:
    """What a graph switches on and, where it raises or is but a part of one, never off again ends with the block:
    functorch and forward-mode levels, autocast, gradients off.
    """
    depth, level, grad = functorch_depth(), forward_ad._current_level, torch.is_grad_enabled()
    autocast, nesting = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST], _nesting()
    try:
        yield
    finally:
        if functorch_depth() > depth:
            pop_dynamic_layer_stack_and_undo_to_depth(depth)
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]
        if _nesting() > nesting:
            for device, enabled, dtype in autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            while _nesting() > nesting:
                if torch.autocast_decrement_nesting() == 0:
                    torch.clear_autocast_cache()
        torch.set_grad_enabled(grad)


def functorch_depth() -> int:
    """How many levels of ``vmap``, ``grad``, ``jvp``... are active."""
    return len(get_interpreter_stack() or ())


def _nesting() -> int:
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return int(nesting)


_AUTOCAST = ("cpu", "cuda")


def is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def is_plain(tensor: torch.Tensor) -> bool:
    """A tensor of torch's own class with a storage of its own, and no transform's wrapper."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not is_functorch_wrapped_tensor(tensor)


def one_of_batch(tensor: torch.Tensor) -> torch.Tensor:
    """What is inside the wrappers of ``vmap`` (its first element) and of ``grad``, ``jvp``..., or ``tensor`` itself.

    Raises ``RuntimeError`` where a batch is empty.
    """
    if not is_functorch_wrapped_tensor(tensor):
        return tensor
    batch = maybe_get_bdim(tensor) if is_batchedtensor(tensor) else -1
    with undisturbed():
        inside = one_of_batch(get_unwrapped(tensor))
        if batch < 0:
            return inside
        if not inside.shape[batch]:
            raise RuntimeError("an empty batch has no first element")
        return inside.select(batch, 0).clone()
