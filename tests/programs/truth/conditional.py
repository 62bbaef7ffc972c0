"""Backends that fail under one known condition each. What they call and how they fail is otherwise ordinary."""

import os

import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd


def calls(gm, name):
    """The nodes that call ``name``: a function of torch, an operator of ATen, or a method."""
    return [n for n in gm.graph.nodes if n.op in ("call_function", "call_method") and called(n) == name]


def called(node):
    target = node.target
    return (target if isinstance(target, str) else getattr(target, "__name__", str(target))).partition(".")[0]


def argument(node, place, name, default=None):
    return node.kwargs.get(name, node.args[place] if len(node.args) > place else default)


def value(node):
    return node.meta.get("example_value", node.meta.get("val"))


def tensor(node, place=0):
    return value(node.args[place])


def refusing(name, when, message):
    """A backend that does not compile a call of ``name`` where ``when(node)`` holds."""

    def backend(gm, inputs, **kwargs):
        for node in calls(gm, name):
            if when(node):
                raise RuntimeError(message(node) if callable(message) else message)
        return gm.forward

    backend.__name__ = f"refusing_{name}"
    return backend


class Wrong(fx.Interpreter):
    """Computes a call of ``name`` wrongly where ``when(arguments)`` holds."""

    def __init__(self, gm, name, when, wrong):
        super().__init__(gm)
        self.nodes, self.when, self.wrong = set(calls(gm, name)), when, wrong

    def run_node(self, n):
        result = super().run_node(n)
        if n in self.nodes:
            args, _ = self.fetch_args_kwargs_from_env(n)
            if self.when(*args):
                return self.wrong(result)
        return result


def computing_wrongly(name, when, wrong=lambda result: result + 1):
    def backend(gm, inputs, **kwargs):
        return lambda *args: Wrong(gm, name, when, wrong).run(*args)

    backend.__name__ = f"wrong_{name}"
    return backend


register = torch._dynamo.register_backend

wide_matmul = register(
    refusing("matmul", lambda n: tensor(n).shape[-1] >= 17, "the tile is too small"), name="wide_matmul"
)
eighths = register(computing_wrongly("cumsum", lambda x, *rest: x.shape[-1] % 8 == 0), name="eighths")
half_softmax = register(
    refusing("softmax", lambda n: tensor(n).dtype in (torch.float16, torch.bfloat16), "no accumulator"),
    name="half_softmax",
)
names_the_dtype = register(
    refusing("erf", lambda n: tensor(n).is_floating_point(), lambda n: f"no kernel 'erf' for {tensor(n).type()}"),
    name="names_the_dtype",
)
needs_rows = register(
    computing_wrongly("mul", lambda a, *rest: isinstance(a, torch.Tensor) and not a.is_contiguous()), name="needs_rows"
)
no_keepdim = register(
    refusing("sum", lambda n: argument(n, 2, "keepdim", False) is True, "cannot keep the dimension"), name="no_keepdim"
)
large_only = register(computing_wrongly("log1p", lambda x: bool((x.abs() > 3000.0).any())), name="large_only")
loses_nan = register(
    computing_wrongly("clamp", lambda x, *rest, **more: bool(x.isnan().any()), lambda r: torch.nan_to_num(r)),
    name="loses_nan",
)
no_alpha = register(refusing("add", lambda n: n.kwargs.get("alpha", 1) != 1, "alpha is not supported"), name="no_alpha")
default_stride = register(
    refusing("avg_pool1d", lambda n: not argument(n, 2, "stride"), "no pooling without a stride"),
    name="default_stride",
)


@register
def fusing(gm, inputs, *, options=None):
    """Fails with its option ``fuse``, whatever ``level`` is."""
    if (options or {}).get("fuse") and calls(gm, "relu"):
        raise RuntimeError("cannot fuse")
    return gm.forward


@register
def under_no_grad(gm, inputs):
    if not torch.is_grad_enabled() and calls(gm, "sigmoid"):
        raise RuntimeError("no plan for inference")
    return gm.forward


@register
def from_the_second_call(gm, inputs):
    """What it compiled raises when it is called for the second time."""
    called = []

    def compiled(*args):
        called.append(1)
        if len(called) > 1 and calls(gm, "exp"):
            raise RuntimeError("the buffer was given back")
        return gm.forward(*args)

    return compiled


@register
def needs_two(gm, inputs):
    """Fails where a ``relu`` reads an ``add``."""
    if any(getattr(n.args[0], "target", None) in (torch.add, torch.ops.aten.add.Tensor) for n in calls(gm, "relu")):
        raise RuntimeError("add and relu do not fuse")
    return gm.forward


@register
def asks_the_environment(gm, inputs):
    if os.environ.get("VECTOR_WIDTH") == "512" and calls(gm, "tan"):
        raise RuntimeError("no vector of this width")
    return gm.forward


@register
def aborts(gm, inputs):
    """The process dies where a ``roll`` shifts by 3."""
    if any(argument(n, 1, "shifts") in (3, (3,), [3]) for n in calls(gm, "roll")):
        os.abort()
    return gm.forward


@register
def every_other_time(gm, inputs):
    if calls(gm, "cosh") and os.urandom(1)[0] % 2:
        raise RuntimeError("the device is busy")
    return gm.forward


def _wrong_gradient(gm, inputs):
    return make_boxed_func(lambda *args: Wrong(gm, "mul", lambda *rest: True, lambda r: r * 2).run(*args))


wrong_gradient = register(
    aot_autograd(fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward), bw_compiler=_wrong_gradient),
    name="wrong_gradient",
)


def _sin_is_cos(graph):
    """A pass of Inductor that puts another operator in the place of one, for sizes above 4."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sinh.default):
        if node.args[0].meta["val"].shape[-1] > 4:
            node.target = torch.ops.aten.tanh.default


@register
def inductor_with_a_pass(gm, inputs):
    import torch._inductor.compile_fx
    import torch._inductor.config

    with torch._inductor.config.patch(post_grad_custom_pre_pass=_sin_is_cos, fx_graph_cache=False):
        return torch._inductor.compile_fx.compile_fx(gm, inputs)
