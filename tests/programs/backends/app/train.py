"""A program whose backends live in the script itself."""

import argparse
import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd, fake_tensor_unsupported
from torch._dynamo.backends.debugging import boxed_nop

LEVEL = 3
NAMES = {"half": torch.float16, "pi": (math.pi, float("inf"))}
settings = argparse.Namespace(fuse=True, depth=2, data="/secret/place")


class Stage:
    """A class of the script that a backend needs."""

    def __init__(self, level) -> None:
        self.level = level

    def describe(self) -> str:
        return f"stage {self.level} of {LEVEL}"


def describe(level: int = LEVEL) -> str:
    return Stage(level).describe() + even(4)


def even(n):
    return "even" if n == 0 else odd(n - 1)


def odd(n):
    return "odd" if n == 0 else even(n - 1)


def plain(gm, inputs, **kwargs):  # a comment stays
    print("plain", describe(), NAMES, settings.depth, F.relu.__name__, kwargs)
    return gm.forward


@register_backend(name="in_script")
def registered(gm, inputs, **kwargs):
    print("in_script", describe(1), kwargs)
    return gm.forward


@fake_tensor_unsupported
def decorated(gm, inputs, **kwargs):
    print("decorated", len(inputs), kwargs)
    return gm.forward


class Compiler:
    def __init__(self, level) -> None:
        self.level = level

    def __call__(self, gm, inputs):
        print("Compiler", self.level)
        return gm.forward


@dataclass
class Settings:
    level: int

    def __call__(self, gm, inputs):
        print("Settings", self.level)
        return gm.forward


instance = Compiler(5)
named = lambda gm, inputs: print("named", LEVEL) or gm.forward  # noqa: E731
aot = aot_autograd(fw_compiler=boxed_nop)


def make(level, extra=None):
    def inner(gm, inputs):
        print("inner", level, extra, describe(2))
        return gm.forward

    return inner


class Handle:
    def __init__(self, stream) -> None:
        self.stream = stream


LOG = Handle(open(__file__))  # noqa: SIM115


def unwritable(gm, inputs):
    print(LOG.stream)
    return gm.forward


CASES = {
    "function": plain,
    "registered": "in_script",
    "registered_object": registered,
    "decorated": decorated,
    "instance": instance,
    "dataclass": Settings(4),
    "named_lambda": named,
    "lambda": lambda gm, inputs: print("anonymous", describe()) or gm.forward,
    "closure": make(6, {"a": [1, None]}),
    "partial": functools.partial(plain, flag=torch.int8),
    "class_from_script": functools.partial(make(7, Stage)),
    "aot": aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop),
    "aot_global": aot,
    "unwritable_global": unwritable,
    "unwritable_cell": make(8, Handle(None)),
    "anonymous_instance": Compiler(9),
}
KWARGS = {
    "function": {"options": {"level": 2, "dtype": torch.float32, "names": ("a", None)}, "dynamic": True},
    "registered": {"mode": "max-autotune"},
}

if __name__ == "__main__":
    import recorder

    recorder.record(CASES, KWARGS)
