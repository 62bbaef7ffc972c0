"""Backends that this module does not register itself."""

import functools

LEVELS = {"low": 1, "high": 3}


def compile_graph(gm, inputs, *, level=0, dtype=None, **kwargs):
    print("compile_graph", level, dtype, kwargs)
    return gm.forward


def logged(fn):
    @functools.wraps(fn)
    def wrapper(gm, inputs, **kwargs):
        print("logged")
        return fn(gm, inputs, **kwargs)

    return wrapper


@logged
def decorated(gm, inputs, **kwargs):
    print("decorated", kwargs)
    return gm.forward


def tuned(value):
    """An option value that is a function."""
    return value * 2


def with_option(gm, inputs, options=None):
    print("with_option", options["tune"](21), sorted(options))
    return gm.forward


def make(level):
    def inner(gm, inputs):
        print("made", level, LEVELS["high"])
        return gm.forward

    return inner


made = make(5)
