"""Backends with one fault each, registered when this module is imported. They look for an operator of the graph."""

import ctypes
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Never, cast

import torch
from torch import fx
from torch._dynamo import register_backend

Inputs = list[torch.Tensor]
Compiled = Callable[..., Any]


def has(gm: fx.GraphModule, *names: str) -> bool:
    """Does the graph call an operator of one of these names?"""
    found = {getattr(n.target, "__name__", str(n.target)).split(".")[0] for n in gm.graph.nodes}
    return any(n in found for n in names)


@register_backend
def healthy(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    return gm.forward


@register_backend
def scripted(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """As torch's own ``ts`` before torch 2.14: `torch.jit.script` cannot read the graph modules that Dynamo makes."""
    return cast("Compiled", torch.jit.script(gm))


@register_backend
def cannot_lower(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    for name in ("relu", "sin"):
        if has(gm, name):
            raise NotImplementedError(f"cannot lower {name}")
    return gm.forward


@register_backend
def refuses_names(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if any("relu" in f"{node.name} {node.target}" for node in gm.graph.nodes):
        raise NotImplementedError("relu, or what has its name")
    return gm.forward


@register_backend
def differentiates_wrongly(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    h = torch.ones(4, requires_grad=True).sigmoid()
    y = h * h
    h.mul_(2)
    y.sum().backward()  # what it multiplied was overwritten
    return gm.forward


@register_backend
def counts_threads(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    raise RuntimeError(f"{torch.get_num_threads()} threads")


@register_backend
def with_context(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    for node in gm.graph.nodes:
        if has(gm, "relu") and node.op == "call_function":
            raise RuntimeError(f"cannot lower relu\n\nWhile executing {node.format_node()}")
    return gm.forward


@register_backend
def generic(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """As IREE and OpenVINO do: one message for every bug, the diagnosis goes to file descriptor 2."""
    os.write(2, b"warning: ignoring an error in the cache\n")
    for name in ("relu", "sin"):
        if has(gm, name):
            os.write(2, f"<unknown>:0: error: failed to legalize operation 'torch.aten.{name}'\n".encode())
            raise RuntimeError("compilation failed")
    return gm.forward


@register_backend
def fails_at_run(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    def run(*args: Any) -> Any:
        if has(gm, "relu"):
            raise RuntimeError(f"no kernel for relu of {list(args[0].shape)}")
        return gm.forward(*args)

    return run


@register_backend
def value_dependent(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    def run(*args: Any) -> Any:
        if any(float(a.max()) > 100 for a in args if isinstance(a, torch.Tensor)):
            raise RuntimeError("overflow")
        return gm.forward(*args)

    return run


@register_backend
def bad_guards(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Specialises a shape by asking Dynamo for a guard that cannot be printed: fails after it has returned."""
    if has(gm, "relu"):
        shape_env: Any = cast(Any, torch._guards.TracingContext.get().fake_mode).shape_env
        shape_env.produce_guards_verbose = _raise_index_error
        shape_env.produce_guards = _raise_index_error
    return gm.forward


def _raise_index_error(*args: Any, **kwargs: Any) -> Never:
    raise IndexError("list index out of range")


@register_backend
def fails_in_backward(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Never:
            raise RuntimeError("no gradient for relu")

    def run(*args: Any) -> Any:
        return tuple(Identity.apply(o) if has(gm, "relu") else o for o in gm.forward(*args))  # type: ignore[no-untyped-call]

    return run


@register_backend
def diverges(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    def run(*args: Any) -> Any:
        outputs = gm.forward(*args)
        return tuple(o + 1 for o in outputs) if has(gm, "relu") else outputs

    return run


@register_backend
def inexact(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Is off by three times what `torch.testing.assert_close` allows of large numbers in float32."""
    return lambda *args: tuple(out * (1 + 4e-6) for out in gm(*args))


@register_backend
def segfaults(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if has(gm, "relu"):
        os.write(2, b"error: lowering relu\n")
        ctypes.string_at(0)
    return gm.forward


@register_backend
def aborts_at_run(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    def run(*args: Any) -> Any:
        if has(gm, "relu"):
            os.kill(os.getpid(), signal.SIGFPE)
        return gm.forward(*args)

    return run


@register_backend
def leaves(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if has(gm, "relu"):
        os._exit(3)
    return gm.forward


@register_backend
def exits(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if has(gm, "relu"):
        sys.exit(4)
    return gm.forward


@register_backend
def hangs(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if has(gm, "relu"):
        while True:
            time.sleep(60)
    return gm.forward


@register_backend
def hogs(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    held = []
    while has(gm, "relu"):
        held.append(torch.ones(4 << 20))
        time.sleep(0.01)
    return gm.forward


@register_backend
def allocates(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if has(gm, "relu"):
        torch.empty(1 << 40, dtype=torch.uint8)
    return gm.forward


@register_backend
def litters(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Leaves the process in another state than it found."""
    torch.set_default_dtype(torch.float64)
    os.environ["LITTER"] = "1"
    return gm.forward


@register_backend
def edits_the_graph(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.cos
    gm.recompile()
    inputs[0].zero_()
    return gm.forward


@register_backend
def draws(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Uses up random numbers while compiling."""
    torch.rand(7)
    return gm.forward


@register_backend
def chatters(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    print("compiling")
    print("a warning about an error", file=sys.stderr)
    return gm.forward


_count = itertools.count()


@register_backend
def every_other(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Fails every other time it is asked in one process."""
    if has(gm, "relu") and next(_count) % 2:
        raise RuntimeError("now and then")
    return gm.forward


@register_backend
def with_options(gm: fx.GraphModule, inputs: Inputs, *, options: dict[str, Any] | None = None) -> Compiled:
    if (options or {}).get("fuse"):
        raise RuntimeError("cannot fuse")
    return gm.forward


@register_backend
def parts(gm: fx.GraphModule, inputs: Inputs, **given: dict[str, Any]) -> Compiled:
    """A compiler of parts that can be turned off: the option ``needs`` says which of them a failure takes."""
    options = given["options"]
    on = {name: options.get(name, True) for name in ("fuse", "tile")}
    if not options.get("fast", True):
        raise ValueError("this compiler is always fast")
    if has(gm, "relu") and {"always": True, "tile": on["tile"], "fuse or tile": any(on.values())}[options["needs"]]:
        raise NotImplementedError("cannot lower relu")
    return gm.forward
