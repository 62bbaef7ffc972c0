"""The `Failure` of a live exception, without Dynamo's wrappers and without paths of this machine.

The same bug must look the same if the backend was called directly, by ``torch.compile`` or by a script in a fresh
process. So the hook, the workers and the verification all use this module.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from ...store.failure import UNTRACED, Failure, FailureKind, Frame, Phase
from ...store.live import ipython
from ...store.text import shortened

#: Exceptions of Dynamo that wrap the backend's own.
_ENVELOPES = frozenset({"BackendCompilerFailed"})
_OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory", "bad_alloc", "CUDA out of memory")
#: Modules whose exceptions end a run and are no failure of it.
_ENDING = ("_pytest.", "asyncio.", "trio", "anyio", "concurrent.")
#: The kinds of nodes that call no operation, or a module.
_OPERATIONS = {"placeholder": "<input>", "get_attr": "<attribute>", "call_module": "<module>", "output": "output"}
_MOST_NAMED = 100
#: Functions of torch in which a backward pass calls the compiler of its graph.
_BACKWARD_COMPILERS = {
    ("torch/_functorch/_aot_autograd/runtime_wrappers.py", "get_or_compile"),
    ("torch/_dynamo/backends/common.py", "_wrapped_bw_compiler"),
}
#: The function of torch that runs autograd's engine.
_ENGINE = ("torch/autograd/graph.py", "_engine_run_backward")
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FLOORS = tuple(os.path.join(_ROOT, floor, "") for floor in ("backends", "repro_templates", "minifier", "service"))
_SHIPPED = os.path.join(_ROOT, "backends", "shipped", "")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def failure_of(exc: BaseException, phase: Phase, *, graphs: Iterable[Any] = ()) -> Failure:
    """The failure of a backend that raised ``exc`` in ``phase``.

    The kind is ``out_of_memory`` if the exception says so, ``crash`` for an exit, ``compile_error`` during compilation
    and building of guards (also if the compiler of a backward graph raised in a backward pass), else ``runtime_error``.
    The message may name nodes of ``graphs``, and of the graphs that its frames hold.
    """
    inner = unwrap(exc)
    if isinstance(inner, SystemExit):
        said = "" if inner.code is None or isinstance(inner.code, int) else str(inner)
        return left(exit_code(inner), phase, frames_of(inner), said)
    text = text_of(inner)
    if is_out_of_memory(inner):
        kind = FailureKind.OUT_OF_MEMORY
    else:
        compiling = phase in (Phase.COMPILE, Phase.GUARDS) or (phase is Phase.BACKWARD and compiles_backward(exc))
        kind = FailureKind.COMPILE_ERROR if compiling else FailureKind.RUNTIME_ERROR
    causes = tuple((type_name(c), text_of(c)) for c in chain(inner))
    try:
        named = named_nodes([*graphs, *graphs_around(inner)], [text, *(said for _, said in causes)])
    except Exception:  # noqa: BLE001  variables of foreign code: without names the message is only masked less
        named = {}
    detail: dict[str, Any] = {"nodes": named} if named else {}
    if inner.__traceback__ is None:  # it was not raised here: it was read from a log, or came from another process
        detail[UNTRACED] = True
    return Failure(
        kind=kind,
        phase=phase,
        type=type_name(inner),
        message=text,
        causes=causes,
        frames=frames_of(inner),
        detail=detail,
    )


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether ``exc`` says that there is no memory left."""
    return isinstance(exc, MemoryError) or any(m in text_of(exc) for m in _OUT_OF_MEMORY)


def one_line(exc: BaseException) -> str:
    """Type and first line of the message of ``exc``, in at most 300 characters."""
    return shortened(f"{type_name(exc)}: {text_of(exc)}".strip().splitlines()[0], 300)


def differentiates(exc: BaseException) -> bool:
    """Whether ``exc`` came out of autograd's engine: out of a backward pass, or of one that a compiler traced."""
    raised = (e for each in {exc, unwrap(exc)} for e in (each, *chain(each)))
    frames = (f for e in raised for f in traceback.extract_tb(e.__traceback__))
    return any((portable(f.filename), f.name) == _ENGINE for f in frames)


def compiles_backward(exc: BaseException) -> bool:
    """Whether ``exc``, which a backward pass raised, comes from the compiler of its graph or from compiled autograd.

    Both compile during the backward pass. Dynamo wraps the exceptions of compiled autograd.
    """
    inner = unwrap(exc)
    frames = (f for each in {exc, inner} for f in traceback.extract_tb(each.__traceback__))
    return inner is not exc or any((portable(f.filename), f.name) in _BACKWARD_COMPILERS for f in frames)


def named_nodes(graphs: Iterable[Any], texts: Iterable[str]) -> dict[str, str]:
    """For nodes of ``graphs`` whose names ``texts`` contain, the operation that they call, unless it is their name."""
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text[:20_000])}
    found: dict[str, str] = {}
    for node in (node for graph in graphs for node in graph.nodes if node.name in words):
        operation = _OPERATIONS.get(node.op) or getattr(node.target, "__name__", str(node.target)).partition(".")[0]
        if re.sub(r"(_\d+)+$", "", node.name) != operation:
            found[node.name] = operation
    return dict(list(found.items())[:_MOST_NAMED])


def graphs_around(exc: BaseException) -> Iterator[Any]:
    """The graphs in local variables of the frames of ``exc``, or in attributes of these."""
    module = getattr(sys.modules.get("torch.fx"), "GraphModule", None)
    if not isinstance(module, type):  # torch was not imported, or not to its end
        return
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for value in list(frame.f_locals.values()):
            own = object.__getattribute__(value, "__dict__") if type(value).__dictoffset__ else None
            held = [value, *(list(own.values()) if type(own) is dict else ())]
            yield from (v.graph for v in held if issubclass(type(v), module) and "_graph" in vars(v))


def left(code: int | None, phase: Phase, frames: tuple[Frame, ...] = (), diagnostics: str = "") -> Failure:
    """The failure of a process that exited, or tried to, with ``code`` during a call."""
    message = f"the process left with exit code {code}"
    return Failure(FailureKind.CRASH, phase, f"exit {code}", message, frames=frames, diagnostics=diagnostics)


def exit_code(exc: SystemExit) -> int:
    """The exit code of a process that ``exc`` ends."""
    return exc.code & 0xFF if isinstance(exc.code, int) else int(exc.code is not None)


def is_failure(exc: BaseException) -> bool:
    """Return whether ``exc``, raised by a backend, is a failure: an `Exception`, an exit, or another language's
    panic.

    An exception with which a person, a test runner, an event loop or a signal handler ends the run is not a
    failure.
    """
    if isinstance(exc, Exception):
        return True
    if isinstance(exc, KeyboardInterrupt | GeneratorExit) or type(exc).__module__.startswith(_ENDING):
        return False
    handlers = {getattr(signal.getsignal(n), "__code__", None) for n in signal.valid_signals()}
    return not any(frame.f_code in handlers for frame, _ in traceback.walk_tb(exc.__traceback__))


def text_of(exc: BaseException) -> str:
    """The message of ``exc`` without terminal escapes, or a text that it has none because its ``str`` raises."""
    try:
        return _ESCAPE.sub("", str(exc))
    except Exception as error:  # noqa: BLE001  foreign code: whatever its __str__ raises
        return f"(its message cannot be had: {type(error).__name__})"


def unwrap(exc: BaseException) -> BaseException:
    """The backend's own exception inside Dynamo's ``BackendCompilerFailed``."""
    while type(exc).__name__ in _ENVELOPES and isinstance(getattr(exc, "inner_exception", None), BaseException):
        inner: BaseException = exc.inner_exception  # type: ignore[attr-defined]
        if inner.__traceback__ is None:
            inner.__traceback__ = exc.__traceback__
        exc = inner
    return exc


def chain(exc: BaseException) -> list[BaseException]:
    """The causes of ``exc`` that Python would print, nearest first, each once.

    An exception that a caller of this function still handles does not count: the program tries something else after it.
    """
    seen = {id(exc)}
    out: list[BaseException] = []
    while True:
        context = None if exc.__suppress_context__ or _is_handled(exc.__context__) else exc.__context__
        following = exc.__cause__ or context
        if following is None or id(following) in seen:
            return out
        seen.add(id(following))
        out.append(following)
        exc = following


def _is_handled(exc: BaseException | None) -> bool:
    """Whether the frame that caught ``exc`` is still running, below the one that asks."""
    if exc is None or exc.__traceback__ is None:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not exc.__traceback__.tb_frame:
        frame = frame.f_back
    return frame is not None


def type_name(exc: BaseException) -> str:
    """The name of the type, ``module.Class``; builtins without their module."""
    cls = type(exc)
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def leave_us_out(exc: BaseException) -> None:
    """Remove the frames of the capture from the tracebacks of ``exc`` and its causes, unless there are no others."""
    for each in (exc, *chain(exc)):
        entry = each.__traceback__
        while entry is not None and _is_capture(entry.tb_frame.f_code.co_filename):
            entry = entry.tb_next
        if entry is not None:
            each.__traceback__ = entry
        while entry is not None and (following := entry.tb_next) is not None:
            if _is_capture(following.tb_frame.f_code.co_filename):
                entry.tb_next = following.tb_next
            else:
                entry = following


def frames_of(exc: BaseException) -> tuple[Frame, ...]:
    """The last 40 Python frames of ``exc``, outermost first, without this package's own."""
    summary = [f for f in traceback.extract_tb(exc.__traceback__) if not is_ours(f.filename)]
    return tuple(Frame(portable(f.filename), f.name, f.lineno or 0) for f in summary[-40:])


def _is_capture(filename: str) -> bool:
    """Whether a file is one of those between the program and its backend; those we ship are backends themselves."""
    return filename.startswith(_FLOORS) and not filename.startswith(_SHIPPED)


def is_ours(filename: str) -> bool:
    """Whether a file is one of this package that calls backends."""
    return filename.startswith(_FLOORS)


def portable(filename: str) -> str:
    """``filename`` relative to the installed packages, otherwise its base name, without directories of this machine.

    The cells of a notebook are one file.
    """
    if ipython.is_cell(filename):
        return ipython.notebook()
    if filename.startswith("<"):
        return filename
    roots = [p for p in sys.path if p and p.endswith("-packages")] + [os.path.dirname(os.__file__)]
    for root in roots:
        if filename.startswith(root + os.sep):
            return filename[len(root) + 1 :].replace(os.sep, "/")
    return os.path.basename(filename)
