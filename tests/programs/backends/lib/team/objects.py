"""Backends that are no plain functions."""

import dataclasses
import functools

from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from .impl import compile_graph


class Compiler:
    def __init__(self, level=0) -> None:
        self.level = level

    def __call__(self, gm, inputs, **kwargs):
        print("Compiler", self.level, kwargs)
        return gm.forward

    def method(self, gm, inputs, **kwargs):
        print("method", self.level, kwargs)
        return gm.forward


class Stateless:
    def __call__(self, gm, inputs, **kwargs):
        print("Stateless", kwargs)
        return gm.forward


@dataclasses.dataclass
class Settings:
    level: int = 0
    names: tuple = ()

    def __call__(self, gm, inputs, **kwargs):
        print("Settings", self.level, self.names, kwargs)
        return gm.forward


class AsClass:
    """Used as a backend itself: calling the class compiles, calling the instance runs."""

    def __init__(self, gm, inputs) -> None:
        print("AsClass")
        self.gm = gm

    def __call__(self, *args):
        return self.gm(*args)


def forward_compiler(gm, inputs):
    print("forward_compiler")
    return make_boxed_func(gm.forward)


def backward_compiler(gm, inputs):
    print("backward_compiler")
    return make_boxed_func(gm.forward)


shared = Compiler(7)
part = functools.partial(compile_graph, level=2)
aot = aot_autograd(fw_compiler=forward_compiler)
