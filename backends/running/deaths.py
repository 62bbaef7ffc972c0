"""The `Failure` of a process that died, hung or used too much memory: for workers, scripts and programs alike.

With ``faulthandler`` enabled (``PYTHONFAULTHANDLER=1``) a dying Python prints its stack to file descriptor 2. Those
frames become `Failure.frames`, so crashes at different places are different bugs. They are cut from the diagnostics.
"""

from __future__ import annotations

import re
import signal as signals

from ...store.failure import Failure, FailureKind, Frame, Phase
from .exceptions import is_ours, left, portable

_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_STACK = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+|Stack \(most recent call first\):")
_FATAL = re.compile(r"Fatal Python error: |Extension modules: |  <|  \.\.\.$")


def crash(phase: Phase, *, signal: int | None = None, exit_code: int | None = None, diagnostics: str = "") -> Failure:
    """The failure of a process that died of ``signal``, or exited with ``exit_code`` during a call."""
    frames, rest = fault_frames(diagnostics)
    if signal is None:
        return left(exit_code, phase, frames, rest)
    message = f"the process died of {signal_name(signal)}"
    return Failure(FailureKind.CRASH, phase, "", message, frames=frames, diagnostics=rest, signal=signal)


def hang(phase: Phase, seconds: float, *, diagnostics: str = "") -> Failure:
    """The failure of a process that did not answer within ``seconds``."""
    frames, rest = fault_frames(diagnostics)
    message, detail = f"no answer within {seconds:g} s", {"seconds": seconds}
    return Failure(FailureKind.HANG, phase, message=message, frames=frames, diagnostics=rest, detail=detail)


def out_of_memory(phase: Phase, message: str, *, diagnostics: str = "") -> Failure:
    """The failure of a process that was killed because it used too much memory; ``message`` gives the sizes."""
    return Failure(FailureKind.OUT_OF_MEMORY, phase, message=message, diagnostics=fault_frames(diagnostics)[1])


def signal_name(number: int) -> str:
    """The name of a signal, such as ``SIGSEGV``; ``signal 77`` if it has none."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def fault_frames(text: str) -> tuple[tuple[Frame, ...], str]:
    """The frames of the last ``faulthandler`` stack in ``text``, outermost first, and the text without these stacks.

    This package's own frames are left out, except the innermost: it says that what was called has no frame in Python.
    """
    stack: list[Frame] = []
    rest: list[str] = []
    inside = False
    for line in text.splitlines():
        if _STACK.match(line):
            if inside is False or line.startswith("Current"):
                stack = []
            inside = True
        elif inside and (found := _FRAME.match(line)):
            number = int(found["line"]) if found["line"].isdigit() else 0
            if stack and is_ours(found["file"]):
                continue
            stack.append(Frame(portable(found["file"]), found["function"], number))
        elif not (_FATAL.match(line) or (inside and not line.strip())):
            inside = False
            rest.append(line)
    body = "\n".join(rest).strip("\n")
    return tuple(reversed(stack[:40])), body + ("\n" if body and text.endswith("\n") else "")
