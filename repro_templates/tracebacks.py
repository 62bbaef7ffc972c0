"""The phase of a failure, read from a stack: the one module here that knows torch's file and function names.

A worker knows in which phase it called the backend. A script in a fresh process leaves only a stack. Its frames are
read from the outermost on, and the first known one decides: the autograd engine was running (``backward``), Dynamo was
calling the backend (``compile``) or building guards (``guards``), or the compiled function ran (``forward``).
`fxminify.minifier.oracle.observe` must give the same answer; a test compares the two on real failures.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ..backends.adapters import adapters
from ..backends.running.exceptions import failure_of, portable, text_of, type_name, unwrap
from ..store.failure import ILL_CONDITIONED, PRECISION, Failure, FailureKind, Phase
from ..store.measured import MEASURED
from .source.action import (
    ALIAS_PREFIX,
    GRADS,
    ILL_CONDITIONED_PREFIX,
    INPUTS,
    MISSING_PREFIX,
    PRECISION_PREFIX,
)

#: ``(file, function)`` of one frame.
Place = tuple[str, str]

_BACKWARD = {
    ("torch/autograd/__init__.py", "backward"),
    ("torch/autograd/__init__.py", "grad"),
    ("torch/autograd/graph.py", "_engine_run_backward"),
    ("torch/_tensor.py", "backward"),
}
_COMPILE = {
    ("torch/_dynamo/output_graph.py", "_call_user_compiler"),
    ("torch/_dynamo/output_graph.py", "call_user_compiler"),
}
_DYNAMO = "torch/_dynamo/convert_frame.py"
_GUARDS = "torch/_dynamo/guards.py"
_RUNTIME = {("torch/_dynamo/eval_frame.py", "_fn")}
_ENTRY = "torch/_dynamo/eval_frame.py"
#: Directories whose code runs only during a compilation, for stacks that lack their outer frames.
_COMPILERS = ("torch/_dynamo/", "torch/_functorch/_aot_autograd/", "torch/fx/")
_CALLED_BY_DYNAMO = ("torch/_functorch/", "torch/fx/")
_COMPARISON = "torch/testing/_comparison.py"
_FAULT_FRAME = re.compile(r'  File "([^"]*)", line \S+ in (.*)')
_PRECISION = re.compile(PRECISION_PREFIX + r"(\w+) as ([\w ]+): ")
_ATTRIBUTE = re.compile(r"The values for attribute '(\w+)(?:\(\))?' do not match")


def phase_of(exc: BaseException) -> Phase:
    """The phase in which the compiler, or the compiled code, raised ``exc`` in a script."""
    phase = phase_of_places(places(exc))
    wrapped = unwrap(exc) is not exc
    return Phase.COMPILE if wrapped and phase is Phase.FORWARD else phase


def phase_of_places(frames: Iterable[Place], *, complete: bool = True) -> Phase:
    """The phase of a stack, outermost frame first. ``complete`` is False if outer frames are missing."""
    frames = list(frames)
    own = [directory for adapter in adapters().values() for directory in adapter.source_directories]
    in_dynamo = False
    for (file, function), (following, _) in pairwise([*frames, ("", "")]):
        if (file, function) in _BACKWARD and not in_dynamo:
            return Phase.BACKWARD
        if (file, function) in _COMPILE:
            return Phase.COMPILE
        if file == _GUARDS:
            return Phase.GUARDS
        if (file, function) in _RUNTIME and not in_dynamo:
            return Phase.FORWARD
        if file == _ENTRY and following.startswith((*_CALLED_BY_DYNAMO, *own)) and not in_dynamo:
            return Phase.COMPILE  # Dynamo takes its own frames out of the stacks of some compilers' exceptions
        in_dynamo = in_dynamo or file == _DYNAMO
    cut_off = not complete and any(file.startswith((*_COMPILERS, *own)) for file, _ in frames)
    return Phase.COMPILE if in_dynamo or cut_off else Phase.FORWARD


def phase_of_crash(diagnostics: str) -> Phase:
    """The phase in which a process died, from the stack that `faulthandler` wrote into ``diagnostics``."""
    _, _, stack = diagnostics.rpartition("Current thread ")
    frames = [(portable(file), function.strip()) for file, function in _FAULT_FRAME.findall(stack)]
    return phase_of_places(reversed(frames), complete=len(frames) < 100)


def places(exc: BaseException) -> list[Place]:
    return [(portable(f.filename), f.name) for f in traceback.extract_tb(exc.__traceback__)]


def blocked_reason(exc: BaseException) -> str:
    """Return why a script that raised ``exc`` never reached its backend, or an empty text if it did.

    A package is missing, no backend has that name, or the exception came earlier, for example from eager.
    """
    inner = unwrap(exc)
    if isinstance(inner, ImportError) or type(inner).__name__ == "InvalidBackend":
        return f"{type_name(inner)}: {text_of(inner)}".strip().splitlines()[0]
    stack = places(exc)
    reached = any(file.startswith((*_COMPILERS, "torch/_functorch/")) for file, _ in stack)
    if reached or any(place in _BACKWARD for place in stack) or any(file == _COMPARISON for file, _ in stack):
        return ""
    compared = isinstance(exc, AssertionError) and str(exc).startswith((ALIAS_PREFIX, MISSING_PREFIX))
    return "" if compared else f"before the compiler is reached: {type_name(inner)}: {text_of(inner)}".splitlines()[0]


def failure_in_script(exc: BaseException, script: str) -> Failure:
    """The `Failure` of a script that ``exc`` ended; a failed comparison is a divergence."""
    stack = places(exc)
    divergence = _divergence(exc, stack, script)
    return divergence or failure_of(exc, phase_of(exc))


def _divergence(exc: BaseException, stack: list[Place], script: str) -> Failure | None:
    """A divergence, if the script's own comparison raised ``exc``."""
    text = str(exc)
    own = [i for i, (file, _) in enumerate(stack) if file == script]
    if not own or not isinstance(exc, AssertionError | TypeError):
        return None
    inside = stack[own[-1] + 1 :]
    compared = _names(exc, script)
    if inside and inside[0][0] == _COMPARISON:
        kind = "mutation" if f"actual{INPUTS}" in compared else _class(text)
    elif not inside and isinstance(exc, AssertionError) and text.startswith(ALIAS_PREFIX):
        kind = "alias"
    elif not inside and isinstance(exc, AssertionError) and text.startswith(MISSING_PREFIX):
        kind = "gradient"
    else:
        return None
    backward = f"actual{GRADS}" in compared or text.startswith(MISSING_PREFIX)
    phase = Phase.BACKWARD if backward else Phase.FORWARD
    if text.startswith(ILL_CONDITIONED_PREFIX):
        kind = ILL_CONDITIONED
    detail: dict[str, Any] = {"class": kind}
    if short := _PRECISION.match(text):
        detail = {"class": PRECISION, "dtype": short[1], "as": short[2]}
    if inside:  # torch is there, as a script compares with its function
        from ..backends.comparison.mismatch import of_traceback

        detail[MEASURED] = of_traceback(exc.__traceback__)
    return Failure(FailureKind.DIVERGENCE, phase, type=type_name(exc), message=text, detail=detail)


def _names(exc: BaseException, script: str) -> frozenset[str]:
    """The names that the script, whose own comparison raised ``exc``, has bound where it compares."""
    found: frozenset[str] = frozenset()
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        if os.path.basename(frame.f_code.co_filename) == script:
            found = frozenset(frame.f_locals)
    return found


def _class(text: str) -> str:
    """The class of a divergence (`fxminify.backends.comparison.compare.CLASSES`) from the message of `assert_close`."""
    if found := _ATTRIBUTE.search(text):
        return found[1] if found[1] in ("dtype", "shape", "stride") else "structure"
    values = ("Tensor-likes are not", "Scalars are not", "Booleans mismatch", "Scalars mismatch")
    return "value" if any(v in text for v in values) else "structure"
