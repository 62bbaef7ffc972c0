"""Working outside the modes that are active around a backend. Uses torch's private mode stacks.

A backend is called under fake-tensor, functional or proxy modes, inside functorch levels, with a default device, with
gradients on or off. Code that reads a tensor's bytes or makes a tensor must not be affected by any of them, and must
not change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

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
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def undisturbed(*, inference: bool = False) -> Iterator[None]:
    """Plain eager tensors in the block: no autograd, no dispatch or function mode, no functorch level."""
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
    """On leaving the block, end every state that a graph entered and did not leave, because it raised or lost that
    node.

    These are functorch and forward-mode levels, function and dispatch modes, autocast, gradients, inference mode,
    saved-tensor hooks and deterministic algorithms. All are read from torch's own stacks, because graphs of Dynamo
    change those and not the copies in torch's Python modules.
    """
    grad, forward_grad = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
    depth, nesting, dual = functorch_depth(), eager_transforms.JVP_NESTING, in_dual_level()
    functions, dispatchers = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    function_state, hooks = torch._C._get_torch_function_state(), saved_tensor_hooks()  # type: ignore[attr-defined]
    refusal = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    autocast, casts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST], _nesting()
    deterministic = torch.get_deterministic_debug_mode()
    try:
        # The guard of inference mode restores what it found, whatever was entered within and not left.
        with torch.inference_mode(torch.is_inference_mode_enabled()):
            torch.set_grad_enabled(grad)
            yield
    finally:
        while torch._C._len_torch_dispatch_stack() > dispatchers:
            torch._C._pop_torch_dispatch_stack(None)
        while torch._C._len_torch_function_stack() > functions:
            torch._C._pop_torch_function_stack()
        torch._C._set_torch_function_state(function_state)  # type: ignore[attr-defined]
        if functorch_depth() > depth:
            pop_dynamic_layer_stack_and_undo_to_depth(depth)
        eager_transforms.JVP_NESTING = nesting
        if in_dual_level() and not dual:
            torch._C._exit_dual_level(level=0)
            forward_ad._current_level = -1
        while len(saved_tensor_hooks()) > len(hooks):
            torch._C._autograd._pop_saved_tensors_default_hooks()
        if refusal is None:
            torch._C._autograd._saved_tensors_hooks_enable()
        else:
            torch._C._autograd._saved_tensors_hooks_disable(refusal)
        if _nesting() > casts:
            for device, enabled, dtype in autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            while _nesting() > casts:
                if torch.autocast_decrement_nesting() == 0:
                    torch.clear_autocast_cache()
        if torch.get_deterministic_debug_mode() != deterministic:
            torch.set_deterministic_debug_mode(deterministic)
        torch._C._set_fwd_grad_enabled(forward_grad)
        torch.set_grad_enabled(grad)


def active() -> dict[str, str]:
    """Return the active modes of this thread, by name. They must be the same before and after a request."""
    return {
        "grad mode": str(torch.is_grad_enabled()),
        "forward grad mode": str(torch._C._is_fwd_grad_enabled()),
        "inference mode": str(torch.is_inference_mode_enabled()),
        "autocast": str([torch.is_autocast_enabled(d) for d in _AUTOCAST]),
        "autocast dtype": str([torch.get_autocast_dtype(d) for d in _AUTOCAST]),
        "autocast nesting": str(_nesting()),
        "forward AD level": str(in_dual_level()),
        "functorch levels": str(functorch_depth()),
        "function modes": str(torch._C._len_torch_function_stack()),
        "function overrides": str(torch._C._get_torch_function_state()),  # type: ignore[attr-defined]
        "dispatch modes": str(torch._C._len_torch_dispatch_stack()),
        "saved-tensor hooks": str(len(saved_tensor_hooks())),
        "saved-tensor hooks refused": str(torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()),
        "determinism": str(torch.get_deterministic_debug_mode()),
    }


def functorch_depth() -> int:
    """Return the number of active levels of ``vmap``, ``grad``, ``jvp``..."""
    return len(get_interpreter_stack() or ())


def in_dual_level() -> bool:
    """Whether a forward-mode AD level is active. torch allows one only, and shows it by refusing a second one."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False


def saved_tensor_hooks() -> list[tuple[Any, Any]]:
    """The pairs of default hooks for saved tensors, innermost first."""
    found: list[tuple[Any, Any]] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        found.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    for pack, unpack in reversed(found):
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
    return found


def _nesting() -> int:
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return int(nesting)


_AUTOCAST = ("cpu", "cuda")


def is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor of torch's own class with a storage of its own, and no wrapper of a transform."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not is_functorch_wrapped_tensor(tensor)


def one_of_batch(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside the wrappers of ``vmap`` (its first element), ``grad``, ``jvp``..., or ``tensor``.

    Raises ``RuntimeError`` for an empty batch.
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
