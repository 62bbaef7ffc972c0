"""Factories of backends as packages have them. Each backend raises a sentence that says how it was made."""

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_compiler

Backend = Callable[[Any, Any], Any]


def plain(level: int = 1) -> Backend:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"plain at {level}")

    return backend


def keywords(level: int, *, fuse: bool = False, name: str = "x") -> Backend:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"keywords {level} {fuse} {name}")

    return backend


def settles(level: int | None = None, names: Any = ()) -> Backend:
    if level is None:
        level = 3
    names = list(names)

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"settles {level} {names}")

    return backend


def doubles(level: int) -> Backend:
    level = level * 2

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"doubles {level}")

    return backend


def derives(level: int) -> Backend:
    twice = level * 2

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"derives {twice}")

    return backend


def derives_optional(level: int = 1) -> Backend:
    twice = level * 2

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"derives {twice}")

    return backend


def collects(*passes: str, **options: int) -> Backend:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"collects {passes} {options}")

    return backend


def nested(level: int) -> Backend:
    def outer(name: str) -> Backend:
        def inner(gm: Any, inputs: Any) -> Any:
            raise RuntimeError(f"nested {level} {name}")

        return inner

    return outer("fixed")


def curried(level: int) -> Callable[[str], Backend]:
    def with_name(name: str) -> Backend:
        return lambda gm, inputs: _fail(f"curried {level} {name}")

    return with_name


def by_helper(level: int) -> Backend:
    def above(number: int) -> bool:
        return number > level

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"helper {above(2)}")

    return backend


def aot(level: int) -> Any:
    def compiler(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"aot {level}")

    return aot_autograd(fw_compiler=compiler)


def boxed(level: int) -> Any:
    @make_boxed_compiler
    def compiler(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"boxed {level}")

    return compiler


def wrapping(function: Backend) -> Backend:
    @functools.wraps(function)
    def wrapper(gm: Any, inputs: Any) -> Any:
        return function(gm, inputs)

    return wrapper


@functools.cache
def cached(level: int) -> Backend:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"cached {level}")

    return backend


class Compiler:
    def __init__(self, level: int) -> None:
        self.level = level

    def backend(self, name: str = "y") -> Backend:
        def run(gm: Any, inputs: Any) -> Any:
            raise RuntimeError(f"method {self.level} {name}")

        return run

    @classmethod
    def of_class(cls, name: str) -> Backend:
        def run(gm: Any, inputs: Any) -> Any:
            raise RuntimeError(f"{cls.__name__} {name}")

        return run

    @staticmethod
    def static(level: int) -> Backend:
        def run(gm: Any, inputs: Any) -> Any:
            raise RuntimeError(f"static {level}")

        return run

    def __call__(self, gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"called {self.level}")


class Handle:
    """An object that cannot be written down."""

    def __init__(self, level: int) -> None:
        self.twice = level * 2


def with_handle(handle: Handle | None = None, level: int = 1) -> Backend:
    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"handle {handle is None} {level}")

    return backend


def own_handle(level: int) -> Backend:
    handle = Handle(level)

    def backend(gm: Any, inputs: Any) -> Any:
        raise RuntimeError(f"own handle {handle.twice} {level}")

    return backend


def _fail(text: str) -> Any:
    raise RuntimeError(text)
