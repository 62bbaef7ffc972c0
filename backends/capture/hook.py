"""Capture in a running program: every backend (`install`), one backend (`capture`), or for a while (`capturing`).

The hook must be harmless. It takes a snapshot of what a backend receives, lets the backend work, and looks at the
result. The user's exception is raised again unchanged, and a healthy program computes the same bits. Importing this
module loads no torch, and neither does `install` in a program that has not imported torch yet.
"""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from . import seam, standard_error
from .journal import Journal
from .log import keep_apart, log, undo
from .settings import Settings, SettingsKeywords

if TYPE_CHECKING:
    from ..provenance.spec import BackendSpec
    from .compiled_graph import CompiledGraph
    from .graph_snapshot import GraphSnapshot
    from .recorder import CaptureRecorder


@dataclass
class CaptureTarget:
    """The index that stores captures, and their settings."""

    db: str
    settings: Settings
    journal: Journal | None = None

    @cached_property
    def recorder(self) -> CaptureRecorder:
        from .recorder import CaptureRecorder

        return CaptureRecorder(self.db, self.journal, self.settings.data)

    def flush(self) -> None:
        if "recorder" in vars(self):
            self.recorder.flush()


def install(
    db: str | os.PathLike[str] = "repro.db", *, journal: Journal | None = None, **settings: Unpack[SettingsKeywords]
) -> None:
    """Capture the failures of every backend in this process into ``db`` from now on.

    ``db`` is a path or a database URL; a file is made at the first failure. ``settings`` are the fields of
    `backends.capture.settings.Settings`: ``check=True`` also compares the first calls of each compiled graph with
    eager. ``journal`` is for `minify capture`. A second call replaces the first.

    Raises `ValueError` for an invalid setting. A failure that cannot be stored is a logged warning and no error.
    """
    uninstall()
    _hook.everything = CaptureTarget(os.fspath(db), Settings(**settings), journal)
    _attach()


def observer() -> seam.Observer:
    """Return the observer that `install` attaches to the seam, for a caller that attaches another one before it."""
    return _hook


def uninstall() -> None:
    """Undo `install`. Backends wrapped by `capture` are still captured."""
    if _hook.everything is not None:
        _hook.everything.flush()
    _hook.everything = None
    if not _hook.single:
        seam.detach()
        undo()


@contextmanager
def capturing(db: str | os.PathLike[str] = "repro.db", **settings: Unpack[SettingsKeywords]) -> Iterator[None]:
    """Capture the failures of every backend inside the block. Afterwards, restore the previous hook.

    ``db`` and ``settings`` are the arguments of `install`, with the same errors.
    """
    with _capturing(CaptureTarget(os.fspath(db), Settings(**settings))):
        yield


@contextmanager
def recording(recorder: CaptureRecorder, **settings: Unpack[SettingsKeywords]) -> Iterator[None]:
    """Like `capturing`, with a ``recorder`` of the caller, who may keep captures elsewhere."""
    target = CaptureTarget(recorder.db, Settings(**settings))
    target.recorder = recorder
    with _capturing(target):
        yield


@contextmanager
def _capturing(target: CaptureTarget) -> Iterator[None]:
    before, _hook.everything = _hook.everything, target
    _attach()
    try:
        yield
    finally:
        target.flush()
        _hook.everything = before
        if before is None:
            uninstall()


def capture(
    backend: str | Callable[..., Any], *, db: str | os.PathLike[str] = "repro.db", **settings: Unpack[SettingsKeywords]
) -> CapturedBackend:
    """Wrap ``backend``, a name or a callable, for ``torch.compile(backend=...)``: only its failures are captured.

    ``options`` and ``mode`` of `torch.compile` reach the backend as without the wrapper. ``db`` and ``settings``
    are the arguments of `install`, with the same errors.
    """
    wrapped = CapturedBackend(backend, CaptureTarget(os.fspath(db), Settings(**settings)))
    _hook.single.add(wrapped)
    _attach()
    return wrapped


def observed(
    backend: Any,
    gm: Any,
    inputs: Sequence[Any],
    given: dict[str, Any],
    *,
    db: str,
    without_guards: Callable[[Exception], bool],
) -> Callable[..., Any]:
    """Call ``backend`` on a graph for another backend; failures are captured as if `torch.compile` had called it.

    ``given`` may hold ``options`` and ``mode``. Captures go where `install` said, otherwise into ``db``.
    ``without_guards`` is called with the exception if Dynamo cannot build guards for what ``backend`` returned. It
    returns whether Dynamo shall try again, because another backend has compiled the graph.
    """
    from ..provenance import registry

    captured = CapturedBackend(backend, _hook.everything or CaptureTarget(db, Settings()), optional=True)
    wrapped = registry.wrap(captured, given.get("options"), given.get("mode"), None)
    _attach()
    compiled: Callable[..., Any] = _hook.compiling(wrapped, gm, inputs, lambda: wrapped(gm, inputs))
    _hook.thread.without_guards = without_guards
    return compiled


class CapturedBackend:
    """A backend whose failures are captured. It gets ``options`` and ``mode`` as without the wrapper."""

    def __init__(self, backend: str | Callable[..., Any], target: CaptureTarget, *, optional: bool = False) -> None:
        self._backend = backend
        self._target = target
        #: Whether another backend follows: then it is no failure that this one is not installed.
        self.optional = optional
        self.__name__ = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)

    @property
    def is_deliberate(self) -> bool:
        """Whether another backend follows, and this one fails on purpose."""
        from ..adapters import fails_on_purpose

        return self.optional and fails_on_purpose(self._backend)

    def __call__(self, gm: Any, inputs: Any, **kwargs: Any) -> Any:
        import torch

        from ..adapters import adapter_of

        special = adapter_of(self._backend).wrapper(kwargs.get("options"), kwargs.get("mode"), None)
        if special is not None:
            return special(gm, inputs)
        return torch._dynamo.lookup_backend(self._backend)(gm, inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or isinstance(self._backend, str):
            raise AttributeError(name)
        return getattr(self._backend, name)


class _Compiling(threading.local):
    """``graph`` is the last one that a backend compiled, until the guards of its frame are built. ``received`` is the
    module that the backend is compiling."""

    graph: CompiledGraph | None = None
    received: Any = None
    in_a_piece = False
    compiling: CompiledGraph | None = None
    without_guards: Callable[[Exception], bool] | None = None


class _Hook:
    """Sees every backend call of the process, see `fxminify.backends.capture.seam.Observer`."""

    def __init__(self) -> None:
        self.everything: CaptureTarget | None = None
        self.single: weakref.WeakSet[CapturedBackend] = weakref.WeakSet()
        self.thread = _Compiling()

    def compiling(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        captured, given = _captured(wrapped)
        target = captured._target if captured is not None else self.everything
        if target is None or seam.ours() or not _usable() or (captured is not None and captured.is_deliberate):
            return call()

        def spec() -> BackendSpec:
            from ..provenance import origin

            return origin.spec_of(wrapped if captured is None else captured._backend, compile_kwargs=given)

        def take() -> GraphSnapshot:
            from .graph_snapshot import GraphSnapshot

            return GraphSnapshot.take(gm, inputs, compile_id=seam.compile_id())

        facts = seam.shape_facts()
        self.thread.graph = self.thread.without_guards = None
        optional = captured is not None and captured.optional
        before, self.thread.received = self.thread.received, gm
        try:
            compiled, graph = self._compile(target, spec, take, call, optional=optional)
        finally:
            self.thread.received = before
        if graph is None:
            return compiled
        if not callable(compiled):
            from ...store.failure import Failure, FailureKind, Phase
            from .graph_snapshot import KeptInputs

            message = "compiler_fn did not return callable"
            failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "AssertionError", message)
            graph.record(failure, graph.snapshot.inputs or KeptInputs([], []), graph.snapshot.rng)
            return compiled
        target.recorder.note("watched", graph.spec)
        graph.specialized = seam.shape_facts() > facts
        if self.thread.graph is None:  # else this backend has let another one compile the graph
            self.thread.graph = graph
        return compiled if seam.keep_unwrapped(gm, compiled) else graph.wrap(compiled)

    def packaging(
        self, gm: Any, inputs: Sequence[Any], packager: tuple[Callable[..., Any], Mapping[str, Any]],
        call: Callable[[], Any],
    ) -> Any:  # fmt: skip
        target = self.everything
        if target is None or self.thread.compiling is not None or seam.ours() or not _usable():
            return call()
        from ..provenance import origin

        function, options = packager

        def take() -> GraphSnapshot:
            from .graph_snapshot import GraphSnapshot, flat

            return GraphSnapshot.take(flat(gm), inputs)

        package, graph = self._compile(target, partial(origin.copied, function, options=options or None), take, call)
        if graph is not None:
            target.recorder.note("watched", graph.spec)
        return package

    def piece(self, gm: Any, inputs: Sequence[Any], options: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        target, outer = self.everything, self.thread.compiling
        own = target is None or seam.ours() or self.thread.in_a_piece or gm is self.thread.received
        if own or target is None or not _usable() or (outer is not None and not outer.spec().problem):
            return call()
        from ..provenance import origin

        def take() -> GraphSnapshot:
            from .graph_snapshot import GraphSnapshot, flat

            snapshot = GraphSnapshot.take(flat(gm), inputs, compile_id=seam.compile_id())
            snapshot.within = "" if outer is None else outer.spec().name
            return snapshot

        spec = partial(origin.spec_of, seam.OF_PIECES, compile_kwargs={"options": dict(options) or None})
        self.thread.in_a_piece = True
        try:
            compiled, graph = self._compile(target, spec, take, call)
        finally:
            self.thread.in_a_piece = False
        if graph is None or not callable(compiled):
            return compiled
        target.recorder.note("watched", graph.spec)
        if outer is not None:
            outer.leave_to(graph)
        return compiled if seam.keep_unwrapped(gm, compiled) else graph.wrap(compiled)

    def _compile(
        self,
        target: CaptureTarget,
        spec: Callable[[], BackendSpec],
        take: Callable[[], GraphSnapshot],
        call: Callable[[], Any],
        *,
        optional: bool = False,
    ) -> tuple[Any, CompiledGraph | None]:
        """Return the result of ``call()``, and the graph that ``take()`` snapshots, or None if that raises.

        Failures are recorded. ``optional`` says that another backend follows if this one is not installed.
        """
        from ...store.failure import Phase, lacking
        from ..provenance.absent import absent
        from ..running.exceptions import differentiates, failure_of, unwrap
        from .compiled_graph import CompiledGraph
        from .graph_snapshot import KeptInputs

        entry = seam.enter()
        graph = None
        refused = ""
        try:
            with seam.own_calls():
                snapshot = take()
                graph = CompiledGraph(snapshot, spec, target.recorder, target.settings)
                kept = snapshot.inputs or KeptInputs([], [])
                target.recorder.write_ahead(graph.number, snapshot, graph.spec, kept, snapshot.rng)
        except Exception as exc:  # noqa: BLE001  an unforeseen kind of graph: the program goes on without us
            refused = f"the graph could not be kept: {type(exc).__name__}: {exc}"
            log.warning("fxminify: %s", refused)

        if graph is None:
            try:
                return call(), None
            except BaseException as exc:
                if _is_failure(exc) and seam.first_to_see(unwrap(exc), entry):
                    target.recorder.refuse(spec, failure_of(exc, Phase.COMPILE), refused)
                raise
        around, self.thread.compiling = self.thread.compiling, graph
        try:
            with standard_error.recorded() as written, graph.marked("compile"):
                return call(), graph
        except BaseException as exc:
            if _is_failure(exc) and seam.first_to_see(unwrap(exc), entry):
                failure = replace(failure_of(exc, Phase.COMPILE), diagnostics=written())
                if not (why := absent(exc, graph.spec().name)):
                    graph.record(failure, kept, snapshot.rng, derivative=differentiates(exc))
                elif not optional:
                    graph.record(lacking(failure, why), kept, snapshot.rng)
            raise
        finally:
            self.thread.compiling = around

    def lowering(
        self, config: Any, partition: Callable[..., Any], compilers: dict[str, Callable[..., Any]]
    ) -> dict[str, Callable[..., Any]]:
        graph = self.thread.compiling
        if graph is None or seam.ours():
            return compilers
        keeps = config.keep_inference_input_mutations
        return graph.aot.begun(partition, config.decompositions, keeps, compilers)

    def guards_built(self, exc: Exception | None) -> bool:
        graph, self.thread.graph = self.thread.graph, None
        otherwise, self.thread.without_guards = self.thread.without_guards, None
        if exc is None or graph is None or graph.snapshot.compile_id != seam.compile_id() or seam.ours():
            return False
        if seam.is_control_flow(exc) or (seam.is_constraint_violation(exc) and not graph.specialized):
            return False
        from ...store.failure import Phase
        from ..running.exceptions import failure_of

        if graph.snapshot.inputs is not None:
            graph.record(failure_of(exc, Phase.GUARDS), graph.snapshot.inputs, graph.snapshot.rng)
        return otherwise is not None and otherwise(exc)

    def backward_failed(self, exc: BaseException) -> None:
        from .compiled_graph import BackwardPass

        BackwardPass.failed(exc)


def _attach() -> None:
    keep_apart()
    seam.attach(_hook)


@cache
def _usable() -> bool:
    """Whether the rest of fxminify can be imported. A program may hide or replace its dependencies."""
    try:
        importlib.import_module(".compiled_graph", __package__)
    except Exception as exc:  # noqa: BLE001  whatever is wrong with this environment: the program goes on without us
        log.warning("fxminify cannot watch this program: %s: %s", type(exc).__name__, exc)
        return False
    return True


def _is_failure(exc: BaseException) -> bool:
    from ..running.exceptions import is_failure

    return is_failure(exc) and not seam.is_control_flow(exc)


_hook = _Hook()


def _captured(wrapped: Any) -> tuple[CapturedBackend | None, dict[str, Any]]:
    """The captured backend that Dynamo's wrappers hold, if there is one, and the arguments of ``torch.compile``."""
    given: dict[str, Any] = {}
    found = wrapped
    for name in ("_torchdynamo_orig_backend", "compiler_fn"):
        found = getattr(found, name, found)
        if isinstance(found, CapturedBackend):
            return found, given
        given = {"dynamic": getattr(found, "dynamic", None), **(getattr(found, "kwargs", None) or {})}
    return None, {}
