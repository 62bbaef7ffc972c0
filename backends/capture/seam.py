"""The places where Dynamo passes graphs to backends. Only this module patches torch; it uses private API.

Dynamo calls every backend through ``WrapBackendDebug.__call__``. The class is patched, so functions that were compiled
before are seen too. Five other places are watched: AOTAutograd's calls of a backend's compilers for forward, backward
and inference; the building of guards, which fails where a backend specialized a dynamic shape; autograd's engine, which
runs every backward pass; ``torch._inductor.aot_compile``, for packages of graphs that Dynamo does not compile; and
``torch._inductor.compile_fx``, for pieces of a graph that another backend gives to Inductor. For each thread this
module also knows which calls the capture makes itself.

Nothing here imports torch. If Dynamo or Inductor is not loaded yet, an import hook patches it once it is loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from types import ModuleType
from typing import Any, Protocol

AFTER_DYNAMO = "torch._dynamo.repro.after_dynamo"
INDUCTOR = "torch._inductor"
COMPILE_FX = "torch._inductor.compile_fx"
#: The backend that compiles pieces.
OF_PIECES = "inductor"


class Observer(Protocol):
    """Receives the calls that are observed."""

    def compiling(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        """``call()`` calls the backend that ``wrapped`` holds. Returns its result, or another callable."""

    def lowering(
        self, config: Any, partition: Callable[..., Any], compilers: dict[str, Callable[..., Any]]
    ) -> dict[str, Callable[..., Any]]:
        """AOTAutograd will pass its graphs to ``compilers`` (forward, backward, inference). Returns the ones to use."""

    def guards_built(self, exc: Exception | None) -> bool:
        """The frame's guards were built, or that raised ``exc``. Returns whether to try once more."""

    def packaging(
        self, gm: Any, inputs: Sequence[Any], packager: tuple[Callable[..., Any], Mapping[str, Any]],
        call: Callable[[], Any],
    ) -> Any:  # fmt: skip
        """``call()`` compiles ``gm`` with AOTInductor for ``inputs``, as the backend ``packager`` does with its
        options. Returns its result."""

    def piece(self, gm: Any, inputs: Sequence[Any], options: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        """A program or another backend compiles ``gm`` with Inductor and these ``options``, as ``call()`` does. Returns
        its result, or another callable."""

    def backward_failed(self, exc: BaseException) -> None:
        """A backward pass raised ``exc``."""


_patched: list[tuple[Any, str, Any]] = []
_finder: _Finder | None = None


def attach(observer: Observer) -> None:
    """Let ``observer`` see every backend call of this process from now on. Nothing happens if one is attached."""
    global _finder
    if _patched or _finder is not None:
        return
    later: dict[str, Callable[[], None]] = {}
    patches = ((AFTER_DYNAMO, _patch_dynamo), (INDUCTOR, _patch_inductor), (COMPILE_FX, _patch_compile_fx))
    for name, patch in patches:
        if name in sys.modules:
            patch(observer)
        else:
            later[name] = partial(patch, observer)
    if later:
        _finder = _Finder(later)
        sys.meta_path.insert(0, _finder)


def detach() -> None:
    """Undo `attach`."""
    global _finder
    if _finder is not None:
        sys.meta_path.remove(_finder)
        _finder = None
    while _patched:
        owner, name, original = _patched.pop()
        setattr(owner, name, original)


class _Finder(importlib.abc.MetaPathFinder):
    """Calls ``then[name]`` after the import of each of these modules."""

    def __init__(self, then: dict[str, Callable[[], None]]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._then:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                global _finder
                if _finder is self and (then := self._then.pop(fullname, None)) is not None:
                    if not self._then:
                        sys.meta_path.remove(self)
                        _finder = None
                    then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _patch_dynamo(observer: Observer) -> None:
    import torch._functorch.aot_autograd
    import torch.autograd.graph
    from torch._dynamo import convert_frame

    seam = sys.modules[AFTER_DYNAMO].WrapBackendDebug

    def compiling(original: Any) -> Any:
        @wraps(original)
        def __call__(self: Any, gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
            call = partial(original, self, gm, example_inputs, **kwargs)
            try:
                return observer.compiling(self, gm, example_inputs, call)
            except BaseException as exc:
                unseen(exc)
                raise

        return __call__

    def guards(original: Any) -> Any:
        @wraps(original)
        def build_guards(*args: Any, **kwargs: Any) -> Any:
            while True:
                try:
                    guards = original(*args, **kwargs)
                except BaseException as exc:
                    if not isinstance(exc, Exception) or not observer.guards_built(exc):
                        unseen(exc)
                        raise
                else:
                    observer.guards_built(None)
                    return guards

        return build_guards

    def lowering(original: Any) -> Any:
        @wraps(original)
        def aot_stage2_compile(
            state: Any, capture: Any, partition: Any, forward: Any, backward: Any = None, inference: Any = None
        ) -> Any:
            compilers = {"forward": forward, "backward": backward or forward, "inference": inference or forward}
            watched = observer.lowering(state.aot_config, partition, compilers)
            try:
                return original(state, capture, partition, *(watched[role] for role in compilers))
            except BaseException as exc:
                unseen(exc)
                raise

        return aot_stage2_compile

    def engine(original: Any) -> Any:
        @wraps(original)
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as exc:
                observer.backward_failed(exc)
                unseen(exc)
                raise

        return _engine_run_backward

    _replace(seam, "__call__", compiling)
    _replace(torch._functorch.aot_autograd, "aot_stage2_compile", lowering)
    _replace(convert_frame.DynamoOutput, "build_guards", guards)
    run_backward = engine(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd.graph, torch.autograd):
        _replace(module, "_engine_run_backward", lambda _: run_backward)


def _patch_inductor(observer: Observer) -> None:
    from torch.utils._pytree import tree_leaves

    from ..adapters import adapter_of

    def packaging(original: Any) -> Any:
        @wraps(original)
        def aot_compile(gm: Any, args: Any, kwargs: Any = None, **given: Any) -> Any:
            call = partial(original, gm, args, kwargs, **given)
            try:
                packager = adapter_of("inductor").packager(given.get("options") or {})
                if packager is None:  # fxminify's own adapter was not found
                    return call()
                return observer.packaging(gm, tree_leaves((args, kwargs or {})), packager, call)
            except BaseException as exc:
                unseen(exc)
                raise

        return aot_compile

    _replace(sys.modules[INDUCTOR], "aot_compile", packaging)


def _patch_compile_fx(observer: Observer) -> None:
    def piece(original: Any) -> Any:
        @wraps(original)
        def compile_fx(model_: Any, example_inputs_: Any, *args: Any, **given: Any) -> Any:
            call = partial(original, model_, example_inputs_, *args, **given)
            own = {"config_patches", "ignore_shape_env"}  # with others it is no compilation that options describe
            if args or not own.issuperset(given):
                return call()
            try:
                return observer.piece(model_, example_inputs_, given.get("config_patches") or {}, call)
            except BaseException as exc:
                unseen(exc)
                raise

        return compile_fx

    _replace(sys.modules[COMPILE_FX], "compile_fx", piece)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _patched.append((owner, name, original))
    setattr(owner, name, make(original))


def unseen(exc: BaseException) -> None:
    """Take the frames of the capture out of the traceback of ``exc``, in the handler that raises it again.

    Python notes a frame when an exception reaches it, and not again where it is raised again with a bare ``raise``. So
    the frame of that handler is left out, too.
    """
    from ..running.exceptions import leave_us_out

    leave_us_out(exc)


def compile_id() -> str:
    """Dynamo's number for the frame that it compiles, ``"0/1"``; empty if it compiles none."""
    from torch._guards import CompileContext

    return str(CompileContext.current_compile_id() or "")


def shape_facts() -> int:
    """The number of facts that Dynamo assumes about symbolic shapes. A backend that specializes adds some."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    env = getattr(getattr(context, "fake_mode", None), "shape_env", None)
    return 0 if env is None else len(env.guards) + len(env.replacements)


def is_control_flow(exc: BaseException) -> bool:
    """Whether a backend raises ``exc`` to ask Dynamo for another analysis, a skipped frame or a graph break."""
    from torch._dynamo import exc as dynamo

    if isinstance(exc, dynamo.RestartAnalysis | dynamo.SkipFrame):
        return True
    breaks = isinstance(exc, (dynamo.Unsupported, *dynamo.exceptions_allowed_to_be_fallback))
    return breaks and not _full_graph()


def _full_graph() -> bool:
    """Whether a graph break would be an error here (``fullgraph=True``)."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return bool(InstructionTranslator.current_tx().one_graph)
    except AttributeError:  # not inside a frame conversion
        return False


def is_constraint_violation(exc: BaseException) -> bool:
    """Whether ``exc`` says that a dynamic dimension was specialized."""
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    return isinstance(exc, ConstraintViolationError)


def keep_unwrapped(gm: Any, compiled: Any) -> bool:
    """Whether Dynamo will serialize what the backend returned. Then it must get that object itself."""
    from torch._dynamo.aot_compile_types import SerializableCallable

    return getattr(gm, "_backend_id", None) is not None or isinstance(compiled, SerializableCallable)


def prepare(compiled: Any) -> Any:
    """The function to call for a lazily compiled graph module that Dynamo cannot see, prepared as Dynamo does it."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    owner = getattr(compiled, "__self__", compiled)
    if not isinstance(owner, _LazyGraphModule):
        return compiled
    _LazyGraphModule.force_recompile(owner)
    return owner.forward if getattr(compiled, "__name__", "") == "_lazy_forward" else compiled


def compiled_autograd() -> bool:
    """Whether the backward pass will be compiled. Hooks on autograd nodes would then become part of its graph."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return module is not None and bool(module.compiled_autograd_enabled)


class _Recording(threading.local):
    ours = False
    entries = 0
    recorded = (0, 0)  # id of the last exception recorded, and the number of the call that recorded it


_thread = _Recording()


def ours() -> bool:
    """Whether the capture itself made this call, so that it must not be observed."""
    return _thread.ours


@contextmanager
def own_calls() -> Iterator[None]:
    """Mark the calls inside the block as made by the capture."""
    before, _thread.ours = _thread.ours, True
    try:
        yield
    finally:
        _thread.ours = before


def enter() -> int:
    """Return the number of the observed call that begins now. Calls around it have smaller numbers."""
    _thread.entries += 1
    return _thread.entries


def first_to_see(exc: BaseException, entry: int) -> bool:
    """Whether no call inside call ``entry`` recorded ``exc``, or what it was raised from, before. It counts as recorded
    from now on.

    A failure passes every observed call around it on its way out. The innermost of them records it, once.
    """
    known, by = _thread.recorded
    cause: BaseException | None = exc
    while cause is not None and id(cause) != known:
        cause = cause.__cause__
    if cause is not None and by >= entry:
        return False
    _thread.recorded = (id(exc), max(entry, _thread.entries))
    return True
