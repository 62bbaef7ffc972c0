"""Run a captured graph aside, in the user's program, where its backend has just failed.

The run has private inputs and the state of the program's call, and a compilation in flight is not touched. Uses private
API of torch: the stack of dispatch modes, tracing and metrics contexts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...store.live import modes
from ...store.live.snapshot import hint
from ..running import ambient
from ..running.execution import copy_inputs

#: The classes of tensors that have a storage and no functions of their own.
PLAIN = (torch.Tensor, torch.nn.Parameter)


def fresh(values: Sequence[Any], whole: bool) -> list[Any]:
    """Return private copies of the inputs, however they are nested."""
    flat, structure = pytree.tree_flatten(list(values))
    flat = [_traced_through(v) for v in flat]
    plain = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor) and type(v) in PLAIN]
    with modes.undisturbed():
        copies = dict(zip(plain, copy_inputs([flat[i] for i in plain], whole=whole), strict=True))
    made: list[Any] = pytree.tree_unflatten([copies.get(i, _cloned(v)) for i, v in enumerate(flat)], structure)
    return made


def _cloned(value: Any) -> Any:
    """A copy of a tensor subclass by its own ``clone``: it has no storage to copy."""
    if not isinstance(value, torch.Tensor) or type(value) in PLAIN:
        return value
    with torch.no_grad():
        return value.detach().clone().requires_grad_(value.requires_grad)


def _traced_through(value: Any) -> Any:
    """A plain tensor in place of one whose class only overrides functions: Dynamo's graph has no trace of the class."""
    if not isinstance(value, torch.Tensor) or type(value) in PLAIN:
        return value
    if type(value).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor)


def static(module: fx.GraphModule, values: list[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """Put numbers in place of the symbols of ``module``. Returns it and the remaining inputs.

    Raises `store.live.snapshot.CannotSnapshot` for a symbol without a value.
    """
    left = []
    for node, value in zip(list(module.graph.find_nodes(op="placeholder")), values, strict=True):
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float):
            left.append(value)
            continue
        number = _number(value) if node.users else None
        for user in list(node.users):
            swap = functools.partial(_swapped, node, number)
            user.args, user.kwargs = fx.node.map_arg(user.args, swap), fx.node.map_arg(user.kwargs, swap)
        module.graph.erase_node(node)
    module.recompile()
    return module, left


def _number(value: Any) -> Any:
    """Return the value of a symbol in the call."""
    return value if isinstance(value, int | float) else hint(value)


def _swapped(node: fx.Node, number: Any, each: fx.Node) -> Any:
    return number if each is node else each


@contextmanager
def aside(context: Mapping[str, Any], rng: Mapping[str, torch.Tensor], *, nested: bool = False) -> Iterator[None]:
    """Set the state ``context`` in which the program called a graph, with its generators, apart from a compilation in
    flight. ``nested``: the graph has inputs whose sizes are symbols of nested tensors."""
    from torch._dynamo import utils
    from torch._dynamo.metrics_context import MetricsContext
    from torch._functorch import config
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils._python_dispatch import _disable_current_modes

    devices = [torch.device(device).index or 0 for device in rng if device != "cpu"]
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)  # sizes of nested tensors need symbols
        stack.enter_context(tracing(TracingContext(mode) if nested else None))
        stack.enter_context(ambient.applied({k: v for k, v in context.items() if k != "rng"}))
        # All compilers at once: the backward graph's, called later, would report to the compilation in flight.
        stack.enter_context(config.patch(force_non_lazy_backward_lowering=True, enable_autograd_cache=False))
        thread = utils._metrics_context_tls
        utils.get_metrics_context()
        stack.callback(setattr, thread, "metrics_context", thread.metrics_context)
        thread.metrics_context = MetricsContext(on_exit=lambda *_: None)
        stack.enter_context(torch.random.fork_rng(devices=devices))
        if "cpu" in rng:
            torch.set_rng_state(rng["cpu"])
        yield
