"""Backends as a team writes them, in a module beside the program. Each has one bug, named for the row it is about."""

import functools
import os
import sys
import time

import team_ops  # noqa: F401  a library of custom operators
import torch
from functorch.compile import make_boxed_func
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd


def names(gm):
    return [getattr(n.target, "__name__", str(n.target)) for n in gm.graph.nodes if n.op.startswith("call")]


@register_backend
def row01(gm, inputs):
    if "sin" in names(gm):
        raise NotImplementedError("no lowering for sin")
    return gm.forward


def row03(gm, inputs):
    """Computes cos for sin, and returns a function."""
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return lambda *args: gm(*args)


def backward_compiler(gm, inputs):
    if any("sigmoid_backward" in n for n in names(gm)):
        raise ValueError("no kernel for sigmoid_backward")
    return make_boxed_func(gm.forward)


row04 = aot_autograd(fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward), bw_compiler=backward_compiler)


def _limited(gm, inputs, *, limit):
    if (found := names(gm).count("relu")) >= limit:
        raise RuntimeError(f"{found} activations, but {limit - 1} units")
    return gm


row05 = functools.partial(_limited, limit=3)


class Compiler:
    def __init__(self, refuses) -> None:
        self.refuses = refuses

    def lower(self, gm, inputs):
        if self.refuses in names(gm):
            raise TypeError(f"cannot lower {self.refuses}")
        return gm.forward


@register_backend
def row06(gm, inputs, options=None):
    if (options or {}).get("fuse") and "tanh" in names(gm):
        raise RuntimeError("fusion of tanh failed")
    return gm.forward


@register_backend
def row07(gm, inputs):
    """Edits the graph in place, then fails on what it made."""
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    if "cos" in names(gm):
        raise RuntimeError("cos was not expected")
    return gm


@register_backend
def row09(gm, inputs):
    if any("double" in n for n in names(gm)):
        raise RuntimeError("an unknown operator")
    return gm.forward


@register_backend
def row10(gm, inputs):
    """Names no operator: a search that is told which one fails would never meet the other."""
    for name in reversed(names(gm)):
        if name in ("relu", "sin"):
            raise RuntimeError(f"cannot lower the {'last' if name == 'relu' else 'other'} function")
    return gm.forward


@register_backend
def row11(gm, inputs):
    """Fails on a product of matrices, whatever they are: an ill-formed one must never reach it."""
    if "matmul" in names(gm):
        raise RuntimeError("no tiling")
    return gm.forward


@register_backend
def row12(gm, inputs):
    """Fails in the process that is being watched, nowhere else."""
    if os.path.basename(sys.argv[0]) == "rows.py":
        raise RuntimeError("only here")
    return gm.forward


@register_backend
def row14(gm, inputs):
    if "sin" in names(gm) and os.urandom(1)[0] < 128:
        raise RuntimeError("lost a race")
    return gm.forward


@register_backend
def row16(gm, inputs):
    if "erf" in names(gm):
        raise RuntimeError("no erf")
    return gm.forward


@register_backend
def row18(gm, inputs):
    found = names(gm)
    if "relu" in found and "sigmoid" in found:
        raise RuntimeError("relu and sigmoid do not go together")
    return gm.forward


@register_backend
def row20(gm, inputs):
    if "view" in names(gm) and any(isinstance(i, torch.SymInt) for i in inputs):
        raise RuntimeError("view of an unknown size")
    return gm.forward


@register_backend
def row21(gm, inputs):
    if "softmax" in names(gm):
        os.abort()
    return gm.forward


@register_backend
def row22(gm, inputs):
    while "softmax" in names(gm):
        time.sleep(0.01)
    return gm.forward


@register_backend
def row22_slow(gm, inputs):
    time.sleep(len(names(gm)) ** 2 / 4)
    return gm.forward


@register_backend
def row27(gm, inputs):
    """What it makes of exp has a workspace that is good for one call."""
    called = []

    def run(*args):
        called.append(args)
        if "exp" in names(gm) and len(called) > 1:
            raise RuntimeError("the workspace is in use")
        return gm(*args)

    return run


@register_backend
def row29(gm, inputs):
    """No kernel for what autocast gives a graph that needs no gradients."""
    if torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled() and "matmul" in names(gm):
        raise RuntimeError(f"no {torch.get_autocast_dtype('cpu')} kernel for inference")
    return gm.forward


@register_backend
def row29_double(gm, inputs):
    if torch.get_default_dtype() is torch.float64 and "sigmoid" in names(gm):
        raise RuntimeError("no double precision")
    return gm.forward


def everywhere(gm):
    return [name for module in gm.modules() if isinstance(module, torch.fx.GraphModule) for name in names(module)]


@register_backend
def row30_cond(gm, inputs):
    if "cond" in everywhere(gm):
        raise NotImplementedError("control flow")
    return gm.forward


@register_backend
def row30_flex(gm, inputs):
    if any("flex_attention" in name for name in everywhere(gm)):
        raise NotImplementedError("no pattern for flex_attention")
    return gm.forward


@register_backend
def row31(gm, inputs):
    if "silu" in names(gm) and "group_norm" in names(gm):
        raise RuntimeError("normalization is not fused with its activation")
    return gm.forward


@register_backend
def row32(gm, inputs):
    """A kernel with an accumulator that is too small for the sum of a buffer's thousand numbers."""

    def run(*args):
        if any(isinstance(a, torch.Tensor) and a.shape == (1000,) and a.sum() > 400_000 for a in args):
            raise OverflowError("the accumulator has 18 bits")
        return gm(*args)

    return run


@register_backend
def row33(gm, inputs):
    """A kernel that looks indices up in a table of four."""

    def run(*args):
        if any(isinstance(a, torch.Tensor) and a.dtype is torch.int64 and a.max() > 3 for a in args):
            raise IndexError("index outside of the table")
        return gm(*args)

    return run


@register_backend
def row35(gm, inputs):
    if any("all_reduce" in n for n in names(gm)):
        raise NotImplementedError("no transport")
    return gm.forward
