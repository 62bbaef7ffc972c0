"""A compiled graph in the user's program: the inputs and failures of its calls.

The callable that a backend returned is wrapped. A failure at run time, or later in the backward pass, is captured
with the inputs of the call that failed. The first two calls are observed in detail: which inputs are written to,
whether random numbers are drawn, where the backend's own nodes are in the autograd graph, and how long the call
takes. From this follows what later calls copy and follow, so that the cost stays under one percent of a call.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.utils._pytree import tree_leaves

from ...store.document.case import MOST_CALLS
from ...store.failure import Failure, Phase
from ..comparison.check import check
from ..comparison.sampling import LargestSizes
from ..provenance.spec import BackendSpec
from ..running import devices
from ..running.exceptions import failure_of, is_failure, unwrap
from ..running.execution import same_states, storage_of, version_of
from . import seam
from .graph_snapshot import GraphSnapshot, KeptInputs
from .log import log
from .lowering import AotCalls, lower
from .recorder import CaptureRecorder
from .refusal import refusal
from .settings import Settings

#: The number of calls that are observed in detail.
LEARNING = 2
#: The most bytes of overwritten inputs that every call copies; the least seconds of a call for each such copy.
COPIED_EACH_CALL = 1 << 20
PAYS_FOR_A_COPY = 250e-6
#: Bytes of inputs of a first call that are remembered for captures of later ones.
REMEMBERED = 64 << 10
#: The least seconds of a call whose backward pass is followed and whose generators' state is read.
PAYS_FOR_HOOKS = 1e-3
#: The most autograd nodes that the first calls visit.
_WALK = 2000
_numbers = itertools.count(1)
#: Messages of a program that uses a backward pass wrongly. The backend is not at fault.
_MISUSE = re.compile(r"Trying to backward through the graph a second time|modified by an inplace operation")
#: Nodes of torch's own operators.
_BUILTIN_NODE = re.compile(r"^(\w+Backwards?\d*|CopySlices|torch::autograd::\w+|\w*AccumulateGrad)$")


@dataclass(slots=True)
class CompiledCall:
    """A call: its arguments, and copies of the ones that may change."""

    args: Sequence[Any]
    inputs: KeptInputs | None
    rng: dict[str, torch.Tensor]
    entry: int

    def kept(self) -> KeptInputs:
        return self.inputs if self.inputs is not None else KeptInputs(list(self.args), [None] * len(self.args))


class CompiledGraph:
    """A graph between its compilation and its last call."""

    def __init__(
        self, snapshot: GraphSnapshot, spec: Callable[[], BackendSpec], recorder: CaptureRecorder, settings: Settings
    ) -> None:
        self.snapshot = snapshot
        self.recorder = recorder
        self.settings = settings
        self.aot = AotCalls()
        self.number = snapshot.number = next(_numbers)
        self.specialized = False
        self._findings: set[str] = set()
        self._sampling = settings.sampling
        snapshot.tolerance, snapshot.strict = settings.tolerances, self._sampling.strict
        self._sizes = LargestSizes(snapshot.symbols) if snapshot.symbols and self._sampling.first else None
        self._wait = self._due = self._sampling.wait(0)  # calls until the next that is compared with eager; its number
        self._spec = spec
        self._known_spec: BackendSpec | None = None
        self.invoked = 0
        self._calls = 0
        self._written: list[int] = []
        self._simple = False  # whether a plain clone copies what is overwritten
        self._draws = False
        self._hooks = ""  # where autograd nodes of the backend were found: "", "direct" or "deep"
        self._pieces: list[CompiledGraph] = []
        self.failures = 0  # recorded, of this graph

    def spec(self) -> BackendSpec:
        if self._known_spec is None:
            self._known_spec = self._spec()
        return self._known_spec

    def leave_to(self, piece: CompiledGraph) -> None:
        """``piece`` is a piece of this graph. Once pieces have all of its nodes, this graph is compared no more."""
        self._pieces.append(piece)
        if sum(each.snapshot.operations() for each in self._pieces) >= self.snapshot.operations():
            self._wait, self._sizes = 0, None

    def marked(self, phase: str) -> AbstractContextManager[Any]:
        """Mark ``phase`` as in flight in the journal, inside the block."""
        journal = self.recorder.journal
        return nullcontext() if journal is None else journal.marked(phase, self.number)

    def record(
        self,
        failure: Failure,
        inputs: KeptInputs,
        rng: dict[str, torch.Tensor],
        *,
        derivative: bool = False,
        calls: int | None = None,
        **asked: bool,
    ) -> None:
        """Store ``failure``, seen in a call or while compiling; with ``derivative`` while the gradient was traced.

        ``calls`` is the number of calls until the failure, by default of those until now.
        """

        def eager() -> str | None:
            with self.marked("eager"):
                return refusal(self.snapshot, inputs, rng, failure, backward=derivative or asked.get("backward", False))

        self.failures += 1
        below = functools.partial(lower, self.snapshot, inputs, rng, self.spec, failure, self.aot)
        self.recorder.record(
            self.snapshot, self.spec, inputs, rng, failure,
            calls=calls or self.calls(), below=below, level=self.settings.level, eager=eager, **asked,
        )  # fmt: skip

    def calls(self) -> int:
        """The number of calls of the compiled graph until now, at least 1."""
        return min(max(self.invoked, 1), MOST_CALLS)

    def failed(self, exc: BaseException, call: CompiledCall, phase: Phase) -> None:
        """``call`` raised ``exc``."""
        if is_failure(exc) and seam.first_to_see(unwrap(exc), call.entry):
            backward = phase is Phase.BACKWARD
            self.record(failure_of(exc, phase, graphs=[self.snapshot.graph]), call.kept(), call.rng, backward=backward)

    def wrap(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled``, observed."""
        compiled = seam.prepare(compiled)
        journal = self.recorder.journal

        def run(*args: Any, **kwargs: Any) -> Any:
            mark = None
            try:
                if seam.ours():
                    return compiled(*args, **kwargs)
                if self._calls < LEARNING:
                    return self._learn(compiled, args, kwargs)
                self._wait -= 1
                due = self._wait == 0 or (self._sizes is not None and self._sizes.doubled(args))
                call = self._first_call(args) if due else self._call(args)
                passed = self._check(compiled, args, kwargs, call) if due else None
                mark = journal.begin("forward", self.number) if journal is not None else None
                self.invoked += 1
                try:
                    result = compiled(*args, **kwargs)
                except BaseException as exc:
                    self.failed(exc, call, Phase.FORWARD)
                    raise
                if passed is not None:
                    passed()
            except BaseException as exc:
                seam.unseen(exc)
                raise
            finally:
                if journal is not None and mark is not None:
                    journal.end(mark)
            if self._hooks and torch.is_grad_enabled():
                self._watch_backward(result, call)
            return result

        return _dressed(run, compiled)

    def _call(self, args: Sequence[Any]) -> CompiledCall:
        """A call after the first ones. Only inputs that they overwrote are copied."""
        inputs = None
        if self._written:
            if self._simple:
                values = list(args)
                for index in self._written:
                    values[index] = args[index].clone()
                inputs = KeptInputs(values, [None] * len(values))
            else:
                inputs = KeptInputs.keep(args, whole=self.snapshot.whole, only=self._written)
        return CompiledCall(args, inputs, devices.generators(devices.used(args)) if self._draws else {}, seam.enter())

    def _learn(self, compiled: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        call = self._first_call(args)
        shapes = self.snapshot.shapes_before
        if self.snapshot.symbols and (seen := _shapes(args)) not in shapes:
            shapes.append(seen)
        self._wait -= 1
        doubled = self._sizes is not None and self._sizes.doubled(args)
        passed = self._check(compiled, args, kwargs, call) if self._wait == 0 or doubled else None
        before = [version_of(a) for a in args]
        began = time.perf_counter()
        self.invoked += 1
        try:
            with self.marked("forward"):
                result = compiled(*args, **kwargs)
        except BaseException as exc:
            self.failed(exc, call, Phase.FORWARD)
            raise
        seconds = time.perf_counter() - began
        if passed is not None:
            passed()
        self._calls += 1
        self._remember(call)
        if torch.is_grad_enabled():
            self._watch_backward(result, call)
            if self._calls == LEARNING and seconds < PAYS_FOR_HOOKS:
                self._hooks = ""
        if not same_states(call.rng, devices.generators(call.rng.keys() - {"cpu"})):
            self.snapshot.random = True
            self._draws = seconds >= PAYS_FOR_HOOKS
        self._learn_written([i for i, a in enumerate(args) if version_of(a) != before[i]], args, seconds)
        return result

    def _remember(self, call: CompiledCall) -> None:
        """Keep small inputs of the first calls: a backend may remember them, and a later call may fail for that."""
        if call.inputs is not None and not call.inputs.changed:
            values = call.inputs.values
            own = [v for v in values if isinstance(v, torch.Tensor) and not isinstance(v, torch.nn.Parameter)]
            if sum(t.numel() * t.element_size() for t in own if t.layout is torch.strided) <= REMEMBERED:
                self.snapshot.earlier.append(values)

    def _check(
        self, compiled: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], call: CompiledCall
    ) -> Callable[[], None] | None:
        """Compare ``call`` with eager before it is made, and record a failure.

        If the compiled graph raises, the program's own call will raise it, too. Returns what to do if that passes: a
        backend that fails only the first time has then failed in the comparison alone.
        """
        passed: Callable[[], None] | None = None

        def marked(phase: str) -> AbstractContextManager[Any]:
            self.invoked += phase == "forward"
            return self.marked(phase)

        if not kwargs:
            short = functools.partial(self.recorder.short, self.spec)
            with seam.own_calls():
                result = check(self.snapshot, compiled, args, marked=marked, short=short)
            found = result.failure
            if result.raised is not None:
                passed = functools.partial(self._failed_once, result.raised, call, self.calls())
            elif not result.unchecked:
                self.recorder.note("compared" if found is None else "failed", self.spec)
            elif self._is_new(result.unchecked):
                self.recorder.unchecked(result.unchecked)
            if result.times and self._is_new(f"let pass at {result.where}"):
                self.recorder.let_pass(result.times, result.where)
            if found is not None and (not result.compare or self._is_new(f"{found.phase} {found.kind}")):
                record = functools.partial(
                    self.record, found, call.kept(), call.rng, backward=result.backward, compare=result.compare
                )
                if self._pieces:
                    passed = functools.partial(self._unless_of_a_piece, record, self._failures_of_pieces())
                else:
                    record()
        if self._wait == 0:
            self._wait = self._sampling.wait(self._due)
            self._due += self._wait
        return passed

    def _failures_of_pieces(self) -> int:
        return sum(piece.failures for piece in self._pieces)

    def _unless_of_a_piece(self, record: Callable[[], None], before: int) -> None:
        """Call ``record`` if pieces still have ``before`` failures after the call, in which they were compared."""
        if self._failures_of_pieces() == before:
            record()

    def _failed_once(self, failure: Failure, call: CompiledCall, calls: int) -> None:
        """Record ``failure`` of the comparison of ``call``, which itself passed."""
        self.recorder.note("failed", self.spec)
        self.record(failure, call.kept(), call.rng, calls=calls)

    def _is_new(self, finding: str) -> bool:
        """Whether ``finding`` is new for this graph. Each finding is reported once."""
        new = finding not in self._findings
        self._findings.add(finding)
        return new

    def _learn_written(self, written: list[int], args: Sequence[Any], seconds: float) -> None:
        """Choose the inputs that later calls copy: this call, which took ``seconds``, wrote to them."""
        size = sum(args[i].numel() * args[i].element_size() for i in written)
        affordable = size <= COPIED_EACH_CALL and len(written) * PAYS_FOR_A_COPY <= seconds
        self._written = written if affordable else []
        storages = [storage_of(a) for a in args if isinstance(a, torch.Tensor)]
        self._simple = not torch.is_inference_mode_enabled() and all(
            type(args[i]) is torch.Tensor
            and not args[i].requires_grad
            and args[i].is_contiguous()
            and storages.count(storage_of(args[i])) == 1
            for i in written
        )

    def _first_call(self, args: Sequence[Any]) -> CompiledCall:
        """A call observed in detail: everything but parameters is copied, and written to the journal."""
        self.snapshot.inputs = None
        try:
            with seam.own_calls():
                inputs = KeptInputs.keep(args, whole=self.snapshot.whole)
        except Exception as exc:  # noqa: BLE001  tensors of a kind that cannot be copied, or no memory left
            log.warning("fxminify could not copy the inputs of a compiled graph: %s", exc)
            inputs = KeptInputs(list(args), [None] * len(args))
        rng = devices.generators(devices.used(args))
        self.recorder.write_ahead(self.number, self.snapshot, self.spec, inputs, rng, self.calls() + bool(self.invoked))
        return CompiledCall(args, inputs, rng, seam.enter())

    def _watch_backward(self, result: Any, call: CompiledCall) -> None:
        """Hook the backend's autograd nodes, so that the backward pass of this call is known to be in flight."""
        if seam.compiled_autograd():
            return
        inputs = {id(a.grad_fn) for a in call.args if isinstance(a, torch.Tensor) and a.requires_grad and not a.is_leaf}
        leaves = result if isinstance(result, list | tuple) else tree_leaves(result)
        roots = [t.grad_fn for t in leaves if isinstance(t, torch.Tensor) and t.grad_fn is not None]
        roots = list({id(node): node for node in roots if id(node) not in inputs}.values())
        nodes = [node for node in roots if _is_foreign(node)]
        if self._calls <= LEARNING or self._hooks == "deep":
            inner = list(_foreign_nodes(roots, inputs))
            if len(inner) > len(nodes):
                self._hooks = "deep"
            elif nodes and not self._hooks:
                self._hooks = "direct"
            nodes = inner
        if nodes:
            pass_ = BackwardPass(self, _without_cycle(call))
            for node in nodes:
                node.register_prehook(pass_.enter)
                node.register_hook(pass_.leave)


class BackwardPass:
    """The backward pass of one call. ``in_flight`` lists those that have entered a node and not left it."""

    in_flight: list[BackwardPass] = []  # noqa: RUF012  one list for the process: autograd has its own threads

    def __init__(self, graph: CompiledGraph, call: CompiledCall) -> None:
        self.graph = graph
        self.call = call
        self._mark: bytes | None = None

    def enter(self, gradients: Any) -> None:
        if not seam.ours():
            journal = self.graph.recorder.journal
            if journal is not None:
                self._mark = journal.begin("backward", self.graph.number)
            self.in_flight.append(self)

    def leave(self, *gradients: Any) -> None:
        if self in self.in_flight:
            self.in_flight.remove(self)
            if self._mark is not None and self.graph.recorder.journal is not None:
                self.graph.recorder.journal.end(self._mark)

    @classmethod
    def failed(cls, exc: BaseException) -> None:
        """The engine raised ``exc``. It belongs to the pass that was entered last."""
        if seam.ours() or not cls.in_flight:
            return
        last = cls.in_flight[-1]
        for pass_ in list(cls.in_flight):
            pass_.leave()
        if not _MISUSE.search(str(exc)):
            last.graph.failed(exc, last.call, Phase.BACKWARD)


def _without_cycle(call: CompiledCall) -> CompiledCall:
    """``call`` with overwritten arguments detached: an autograd node must not hold its own result."""
    if call.inputs is None:
        return call
    values = [
        v.detach() if isinstance(v, torch.Tensor) and v is a and v.grad_fn is not None and version_of(v) != old else v
        for v, a, old in zip(call.inputs.values, call.args, call.inputs.versions, strict=True)
    ]
    return CompiledCall(values, KeptInputs(values, call.inputs.versions), call.rng, call.entry)


def _is_foreign(node: Node) -> bool:
    """Whether ``node`` is not torch's own but of a Python function, TorchScript or a C++ extension."""
    return isinstance(node, torch.autograd.function.BackwardCFunction) or not _BUILTIN_NODE.match(node.name())


def _foreign_nodes(roots: Sequence[Node], stop: set[int]) -> Iterator[Node]:
    """Foreign nodes between a call's outputs and its inputs."""
    pending, seen = list(roots), set(stop)
    while pending and len(seen) < _WALK:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if _is_foreign(node):
            yield node
        pending += [following for following, _ in node.next_functions if following is not None]


def _shapes(args: Sequence[Any]) -> str:
    """The shapes of the arguments that are no parameters, as text."""
    tensors = [a for a in args if isinstance(a, torch.Tensor) and not isinstance(a, torch.nn.Parameter)]
    return ", ".join(str(list(t.shape)) for t in tensors)[:500]


def _dressed(run: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with the attributes of ``compiled``, without those by which Dynamo would unwrap it."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if isinstance(value := getattr(compiled, name, None), str | dict):
            setattr(run, name, value)
    if not isinstance(compiled, torch.nn.Module):
        attributes = getattr(compiled, "__dict__", {})
        run.__dict__.update({k: v for k, v in attributes.items() if not k.startswith(("_torchdynamo", "__wrapped"))})
    if hasattr(compiled, "_boxed_call"):
        run._boxed_call = compiled._boxed_call  # type: ignore[attr-defined]
    return run
