"""Backends with planted bugs: each fails at once, in one clear way."""

import os
import pathlib
import signal
import time

import torch
from torch._dynamo import register_backend


def calls(gm, name):
    return any(name in str(node.target) for node in gm.graph.nodes if node.op == "call_function")


@register_backend
def raises(gm, example_inputs):
    """Two bugs: the error depends on which operator is met."""
    if calls(gm, "relu"):
        raise RuntimeError("planted: cannot lower this")
    if calls(gm, "tanh"):
        raise ValueError("planted: this has no kernel")
    return gm.forward


def imported(gm, example_inputs):
    """Never registered."""
    if calls(gm, "relu"):
        raise RuntimeError("planted: imported cannot lower relu")
    return gm.forward


@register_backend
def fuses(gm, example_inputs, *, options=None):
    if (options or {}).get("fuse") and calls(gm, "relu"):
        raise RuntimeError("planted: cannot fuse relu")
    return gm.forward


@register_backend
def edits(gm, example_inputs):
    """Spoils the graph before it fails."""
    if calls(gm, "relu"):
        for node in gm.graph.nodes:
            if node.op == "call_function":
                node.target = torch.cos
        raise RuntimeError("planted: edited the graph and cannot lower it")
    return gm.forward


@register_backend
def no_kernel(gm, example_inputs):
    if calls(gm, "myops"):
        raise NotImplementedError("planted: no kernel for a custom operator")
    return gm.forward


@register_backend
def wrong(gm, example_inputs):
    if not calls(gm, "relu"):
        return gm.forward
    return lambda *args: tuple(out + 1 for out in gm.forward(*args))


@register_backend
def segfaults(gm, example_inputs):
    if calls(gm, "relu"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


@register_backend
def sleeps(gm, example_inputs):
    if calls(gm, "relu"):
        time.sleep(600)
    return gm.forward


@register_backend
def slow_pair(gm, example_inputs):
    """Needs both operators, and takes its time: a search with many questions that can be interrupted."""
    time.sleep(float(os.environ.get("PLANTED_PAUSE", "0")))
    if calls(gm, "relu") and calls(gm, "sigmoid"):
        raise RuntimeError("planted: cannot lower relu beside sigmoid")
    return gm.forward


@register_backend
def moody(gm, example_inputs):
    if "PLANTED_MOOD" in os.environ and calls(gm, "relu"):
        raise RuntimeError("planted: only in a bad mood")
    return gm.forward


@register_backend
def checksum(gm, example_inputs):
    """Fails for the very values of the program, which no seed gives."""

    def run(*args):
        if any(isinstance(a, torch.Tensor) and abs(float(a.sum()) - 5432.1) < 0.5 for a in args):
            raise RuntimeError("planted: bad checksum")
        return gm.forward(*args)

    return run


class Wrong(torch.autograd.Function):
    """The identity; ``wrong`` is what happens to its gradient."""

    @staticmethod
    def forward(ctx, x, wrong):
        ctx.wrong = wrong
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.wrong(gradient), None


def _wrong_gradients(gm, wrong):
    return lambda *args: [Wrong.apply(o, wrong) if o.requires_grad else o for o in gm.forward(*args)]


@register_backend
def negates(gm, example_inputs):
    return _wrong_gradients(gm, torch.neg)


@register_backend
def flips(gm, example_inputs):
    return _wrong_gradients(gm, lambda gradient: gradient.flip(0))


@register_backend
def greedy(gm, example_inputs):
    """Takes memory without end; none of it is ever written to, so that only a limit notices."""
    kept = []
    while calls(gm, "relu"):
        kept.append(torch.empty(1 << 26, dtype=torch.uint8))
    return gm.forward


def _count():
    """How often this was asked, in whatever process."""
    with pathlib.Path(__file__).with_name("count").open("ab") as file:
        file.write(b".")
        return file.tell()


@register_backend
def fades(gm, example_inputs):
    """Always fails for relu beside sigmoid, and two times of three for relu alone."""
    if calls(gm, "relu") and (calls(gm, "sigmoid") or _count() % 3):
        raise RuntimeError("planted: cannot lower relu")
    return gm.forward
