"""Observe one case with torch: build it, run it in eager, compile it, run what was compiled, compare.

* Eager goes first: a case that eager cannot run is INVALID, and the backend is never called.
* There are two entries. ``direct`` calls the backend on the graph, as Dynamo would. ``compile`` gives the printed
  source to `torch.compile`, as the script does: only there do failures show while guards are built.
* Both entries report the same phases. The backend is wrapped, so it is known when it was called, when it returned, and
  when its result was called.

This runs code of the case and of the backend: call it in a worker. The driver reads what the worker prints.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch
import torch._dynamo

from ...backends.comparison.check import too_large
from ...backends.comparison.compare import CannotCompare, Differences
from ...backends.comparison.judges import JudgedResult, judged, places
from ...backends.comparison.reference import Reference
from ...backends.provenance.absent import absent
from ...backends.provenance.spec import BackendSpec
from ...backends.running import ambient
from ...backends.running.exceptions import differentiates, failure_of, is_out_of_memory, one_line
from ...backends.running.execution import Run, copy_inputs, execute
from ...backends.running.shared import COPIED, SharedStorages
from ...repro_templates.source.higher_order import has_public_form
from ...repro_templates.source.naming import is_operation
from ...store.document.case import Blobs, Case, tag
from ...store.failure import Phase
from ...store.live import subclasses
from ...store.live.build import build, build_value
from ..tracing.source_function import source_function
from .observation import Observation, Seen

Mark = Callable[[str], None]


def observe(
    case: Case,
    blobs: Blobs,
    entry: str = "direct",
    mark: Mark = lambda phase: None,
    *,
    backend: Callable[[Any, Any], Any] | None = None,
    live: list[object] | None = None,
) -> Observation:
    """Observe ``case`` once. ``mark`` is called with each phase when it begins.

    Phases are build, eager, compile, guards, forward, backward and compare; the ``compile`` entry is in ``trace``
    before the backend is entered. ``backend`` replaces the backend that the case names. ``live`` holds the objects of
    an in-process case.
    """
    phases = _Phases(mark)
    try:
        observation = _Observer(case, blobs, phases, backend, live).observe(entry)
    except _Overwritten:
        observation = _Observer(case, blobs, phases, backend, live, copied=sys.maxsize).observe(entry)
    return replace(observation, seconds=phases.lengths())


def judge(case: Case, blobs: Blobs, entry: str, mark: Mark = lambda phase: None) -> list[JudgedResult]:
    """Observe ``case`` once, and ask the judges of PyTorch's triage about its results. None where it raises."""
    observer = _Observer(case, blobs, _Phases(mark), None, None, copied=sys.maxsize)
    observer.observe(entry)
    if observer.runs is None:
        return []
    expected, actual = observer.runs
    gm, inputs = observer.build()
    shared = SharedStorages(gm, list(map(subclasses.bare, inputs)), copied=sys.maxsize)
    with observer.ambient():
        exact = next(Reference(shared).wide(places(expected)), None)
    return judged(expected, actual, exact)


class _Overwritten(Exception):
    """A backend has written to a storage that runs share, and that it must not write to."""


class _Phases:
    """The phase that runs now, and how long each took."""

    def __init__(self, mark: Mark) -> None:
        self.now = ""
        self._mark = mark
        self._begun: list[tuple[str, float]] = []

    def __call__(self, phase: str) -> None:
        if phase != self.now:
            self.now = phase
            self._begun.append((phase, time.perf_counter()))
            self._mark(phase)

    def lengths(self) -> dict[str, float]:
        out: dict[str, float] = {}
        ends = [*(t for _, t in self._begun[1:]), time.perf_counter()]
        for (phase, start), end in zip(self._begun, ends, strict=True):
            out[phase] = round(out.get(phase, 0.0) + end - start, 6)
        return out

    @property
    def phase(self) -> Phase:
        return Phase(self.now)


class _Observer:
    """``copied``: see `backends.running.shared`. Several calls of one graph share nothing, so that what it changes
    stays. Tensors of a class of their own are not shared either."""

    def __init__(
        self,
        case: Case,
        blobs: Blobs,
        phases: _Phases,
        backend: Callable[[Any, Any], Any] | None,
        live: list[object] | None,
        *,
        copied: int = COPIED,
    ) -> None:
        self.case = case
        self.blobs = blobs
        self.phases = phases
        self.live = live
        self.backend = backend
        self.copied = copied if case.calls == 1 and not case.earlier else sys.maxsize
        #: The runs of eager and of the backend, where nothing is shared.
        self.runs: tuple[Run, Run] | None = None

    def observe(self, entry: str) -> Observation:
        self.phases("build")
        torch._dynamo.reset()
        backend = self.backend or BackendSpec.from_json(self.case.backend).callable()
        gm, inputs = self.build()
        if any(map(subclasses.has_own_class, inputs)):
            self.copied = sys.maxsize
        shared = SharedStorages(gm, inputs, copied=self.copied)
        self.phases("eager")
        try:
            expected = self.eager(gm, inputs, shared)
        except BaseException as exc:  # noqa: BLE001  whatever eager raises, the case is no case
            return _refused(exc)
        if shared.numbers:
            gm, inputs = shared.graph(), shared.inputs()
        elif any("tensor" in attr or "module" in attr for attr in self.case.graph.attrs.values()):
            gm, inputs = self.build()  # eager may have written to what the graph holds
        checksums = shared.checksums()
        try:
            actual = self.direct(gm, inputs, backend) if entry == "direct" else self.compiled(inputs, backend)
        except BaseException as exc:  # noqa: BLE001  whatever a backend raises is what we came for
            if self.phases.now == "trace":
                return Observation(Seen.INVALID, detail=f"Dynamo, before the backend was called: {one_line(exc)}")
            if why := absent(exc, str(self.case.backend.get("name", ""))):
                return Observation(Seen.INVALID, detail=why, absent=why)
            failure = failure_of(exc, self.phases.phase)
            if differentiates(exc) and not self.case.backward:
                return self.derivative() or Observation(Seen.FAILURE, failure)
            return Observation(Seen.FAILURE, failure)
        if not self.case.compare:
            return Observation(Seen.PASS)
        if shared.changed(checksums):
            raise _Overwritten
        if self.copied == sys.maxsize:
            self.runs = expected, actual
        differences = Differences(expected, actual, self.case.tolerance, detached=True)
        del expected, actual, gm, inputs
        return self.judged(differences, shared)

    def eager(self, gm: torch.fx.GraphModule, inputs: list[Any], shared: SharedStorages) -> Run:
        """Run the case in eager mode. ``gm`` and ``inputs`` are unchanged afterwards if something is ``shared``."""
        if shared.numbers:
            with self.ambient():
                return shared.eager(self.case.backward)
        for again in self.earlier(inputs):
            self.execute(gm, list(map(subclasses.bare, again)))
        return self.execute(gm, list(map(subclasses.bare, copy_inputs(inputs))))

    def derivative(self) -> Observation | None:
        """Ask eager for the backward pass whose derivative the backend traced. None if eager computes it."""
        self.phases("eager")
        gm, inputs = self.build()
        try:
            with self.ambient():
                execute(gm.forward, inputs, backward=True)
        except BaseException as exc:  # noqa: BLE001  whatever eager raises, the case is no case
            return _refused(exc)
        return None

    def build(self) -> tuple[torch.fx.GraphModule, list[Any]]:
        gm, inputs = build(self.case, self.blobs, live=self.live)
        if any(is_operation(node.name) for node in self.case.graph.placeholders):
            name_inputs(gm)
        return gm, inputs

    def execute(self, function: Callable[..., Any], inputs: list[Any]) -> Run:
        with self.ambient():
            return execute(function, inputs, self.case.backward, mark=self._backward)

    def ambient(self) -> Any:
        return ambient.applied(self.case.context, self.case.tensors, self.blobs)

    def _backward(self, phase: str) -> None:
        if self.phases.now != "eager":
            self.phases(phase)

    def direct(self, gm: torch.fx.GraphModule, inputs: list[Any], backend: Callable[[Any, Any], Any]) -> Run:
        """The ``direct`` entry: the backend is called on the graph, then what it returned on the inputs."""
        examples = SharedStorages(gm, inputs, copied=self.copied).inputs()
        self.phases("compile")
        with self.ambient():
            compiled = backend(gm, examples)
        self.phases("forward")
        return self.called(subclasses.without_overrides(compiled, inputs), inputs)

    def compiled(self, inputs: list[Any], backend: Callable[[Any, Any], Any]) -> Run:
        """The ``compile`` entry: the printed source through `torch.compile`, with the backend wrapped."""

        def watched(gm: torch.fx.GraphModule, examples: list[Any], **kwargs: Any) -> Callable[..., Any]:
            self.phases("compile")
            compiled = backend(gm, examples, **kwargs)
            self.phases("guards")

            def run(*arguments: Any) -> Any:
                self.phases("forward")
                return compiled(*arguments)

            return run

        spec = BackendSpec.from_json(self.case.backend)

        def run(*, public: bool) -> Run:
            self.phases("trace")
            printed, function = source_function(self.case, self.blobs, public=public)
            compiled = torch.compile(function, backend=watched, dynamic=spec.dynamic)
            return self.called((lambda *args: (compiled(*args),)) if printed.single else compiled, inputs)

        try:
            return run(public=True)
        except Exception:
            if self.phases.now != "trace" or not has_public_form(self.case.graph):
                raise
        torch._dynamo.reset()
        return run(public=False)  # Dynamo refuses the call of a program: the script has the operator, too

    def mark_dynamic(self, inputs: list[Any]) -> None:
        """Make the dimensions that the case names symbolic."""
        for value, tensor in zip(self.case.inputs, inputs, strict=True):
            if tag(value) == "tensor" and (dimensions := self.case.tensors[value["tensor"]].dynamic):
                torch._dynamo.mark_dynamic(tensor, dimensions)

    def earlier(self, inputs: list[Any]) -> list[list[Any]]:
        """The inputs of the calls before the last one: those that the case names, then copies of the last."""
        case = self.case
        given = []
        for call in case.earlier:
            named = {n: build_value(value, case.tensors, self.blobs) for n, value in call.items()}
            own = zip((n.name for n in case.graph.placeholders), copy_inputs(inputs), strict=True)
            given.append([named.get(name, value) for name, value in own])
        return [*given, *(copy_inputs(inputs) for _ in range(case.calls - 1))]

    def called(self, function: Callable[..., Any], inputs: list[Any]) -> Run:
        """Make the earlier calls with their own inputs, then the last call."""
        for again in self.earlier(inputs):
            self.mark_dynamic(again)
            self.execute(function, again)
            self.phases("forward")
        self.mark_dynamic(inputs)
        return self.execute(function, inputs)

    def judged(self, differences: Differences, shared: SharedStorages) -> Observation:
        """Judge what differs. What cannot be compared is invalid, not a pass."""
        self.phases("compare")
        if not shared.numbers:
            gm, inputs = self.build()
            shared = SharedStorages(gm, list(map(subclasses.bare, inputs)), copied=self.copied)
        reference = Reference(shared)
        try:
            with self.ambient():
                divergence = differences.judged(reference, strict=self.case.strict)
        except CannotCompare as exc:
            return Observation(Seen.INVALID, detail=f"cannot compare: {exc}")
        except Exception as exc:
            if not is_out_of_memory(exc):
                raise
            return Observation(Seen.INVALID, detail=f"cannot compare: {too_large(exc)}")
        if divergence is None:
            return Observation(Seen.PASS, unequal=", ".join(differences.unequal()))
        return Observation(Seen.FAILURE, divergence.failure())


def name_inputs(gm: torch.fx.GraphModule) -> None:
    """Rename inputs that have the name of an operation, so that backends which look at names are not misled."""
    taken = {node.name for node in gm.graph.nodes}
    free = (name for number in count() if (name := f"l_x{number}_") not in taken)
    for node in gm.graph.find_nodes(op="placeholder"):
        if is_operation(node.name):
            node.name = node.target = next(free)
    gm.recompile()


def _refused(exc: BaseException) -> Observation:
    """Return the observation of a case for which eager raised ``exc``."""
    return Observation(Seen.INVALID, detail=f"eager: {one_line(exc)}", refused=one_line(exc))
