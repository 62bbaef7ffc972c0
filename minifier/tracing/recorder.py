"""The eager run behind `fxminify.minifier.candidate.trace`: an FX interpreter that takes snapshots. Imports torch.

A snapshot is taken when a value is made, before anything can write to it. A node that writes to an argument changes the
version counter that a tensor shares with all its views (``Tensor._version``). Then every name that is still to be read
and uses the same storage gets another snapshot. Inference tensors have no version counter; for them the name and the
schema of the operator say whether it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain, count
from typing import Any

import torch
import torch.fx as fx

from ...backends.running.execution import version_of
from ...store.document.case import Blobs, Case, Graph, TensorSpec, Value, tag
from ...store.live.build import build
from ...store.live.encode import Encoder, Unsupported
from ...store.live.modes import as_it_was, is_fake, one_of_batch
from ..candidate.hop_calls import HopCall, Path, hop_calls, positions
from ..candidate.trace import Put, Recorded, Trace, ValueKind


def record(case: Case, blobs: Blobs, *, put: Put, live: list[object] | None = None) -> Trace:
    """Run ``case`` once in eager mode in its own context, and store every value that a later candidate may need.

    This runs code of the case, so call it in a worker, or in process only for `fxminify.reduce`. It restores the random
    state of the process. ``live`` holds the objects of an in-process case.
    """
    given = frozenset(n.name for n in case.graph.placeholders)
    return recorded(case, blobs, put, live, lambda gm, tape: RecordingInterpreter(gm, case.graph, tape, given=given))


def recorded(
    case: Case,
    blobs: Blobs,
    put: Put,
    live: list[object] | None,
    make: Callable[[fx.GraphModule, Tape], RecordingInterpreter],
) -> Trace:
    """The trace of one run of ``case`` by the recorder that ``make`` returns, on tensors of torch's own class: what a
    class overrides is in Dynamo's graph already."""
    case = replace(case, tensors=tuple(replace(spec, subclass="", attributes={}) for spec in case.tensors))
    gm, inputs = build(case, blobs, live=live)
    tape = Tape(put, positions(case.graph))
    recorder = make(gm, tape)
    problem = ""
    state = torch.get_rng_state()
    try:
        with _context(case, blobs), as_it_was():
            recorder.run(*inputs)
    except Exception as exc:  # noqa: BLE001 - eager code of a user's graph; what ran until here is still of use
        problem = f"{type(exc).__name__}: {exc}".splitlines()[0]
    finally:
        torch.set_rng_state(state)
    return Trace(tape.recorded(), tuple(tape.specs), tape.positions, problem)


def _context(case: Case, blobs: Blobs) -> AbstractContextManager[Any]:
    if not case.context:
        return nullcontext()
    from ...backends.running import ambient

    applied: AbstractContextManager[Any] = ambient.applied(case.context, case.tensors, blobs)
    return applied


class Tape:
    """The records of all graphs of a case. ``positions`` number the nodes. ``put`` stores the bytes of a storage."""

    def __init__(self, put: Put, positions: dict[str, int]) -> None:
        self.put = put
        self.positions = positions
        self.specs: list[TensorSpec] = []
        self.kinds: dict[str, tuple[ValueKind, Any]] = {}
        self.snapshots: dict[str, list[tuple[int, int]]] = {}
        self.alias: dict[str, str] = {}
        self.wrapped: set[str] = set()
        #: The results of the subgraphs that have run, by the identity of the module.
        self.returned: dict[int, Any] = {}

    def recorded(self) -> dict[str, Recorded]:
        return {
            name: Recorded(
                kind, tuple(self.snapshots.get(name, ())), literal, self.alias.get(name, ""), name in self.wrapped
            )
            for name, (kind, literal) in self.kinds.items()
        }

    def keep(self, name: str, value: Any, *, at: int, clip: bool) -> None:
        if isinstance(value, torch.Tensor):
            self.kinds[name] = (ValueKind.TENSOR, None)
            if not self.snapshot(name, value, at=at, clip=clip):
                self.kinds[name] = (ValueKind.OPAQUE, None)
            return
        try:
            literal = None if next(_tensors([value]), None) is not None else (Encoder().value(value),)
        except Unsupported:
            literal = None
        self.kinds[name] = (ValueKind.OPAQUE, None) if literal is None else (ValueKind.LITERAL, literal[0])

    def snapshot(self, name: str, tensor: torch.Tensor, *, at: int, clip: bool) -> bool:
        """Store a copy of ``tensor``. False if it has no values to copy."""
        encoder = Encoder(clip=clip)
        taken = self.snapshots.get(name, [])
        keys = map(f"{name}@{len(taken)}{{}}".format, chain([""], map(".{}".format, count(1))))
        try:
            plain = one_of_batch(tensor)
            index = encoder.tensor(plain)
            specs = encoder.read(self.put, lambda data: next(keys))
        except (Unsupported, RuntimeError):
            return False
        if plain is not tensor:
            self.wrapped.add(name)
        base = len(self.specs)
        for spec in specs:
            self.specs.append(
                replace(
                    spec,
                    parts=tuple(base + p for p in spec.parts),
                    leaf=spec.leaf and not spec.requires_grad,
                    parameter=False,
                )
            )
        self.snapshots[name] = [*taken, (at + 1, base + index)]
        return True


class RecordingInterpreter(fx.Interpreter):
    """Runs and records one graph; `inner` recorders run its subgraphs. The case has the values of inputs ``given``."""

    def __init__(self, gm: fx.GraphModule, graph: Graph, tape: Tape, given: frozenset[str] = frozenset()) -> None:
        super().__init__(gm)
        self.tape = tape
        # A build keeps the order of nodes but may change names; positions and names here come from the case.
        self.names = {node: ours.name for node, ours in zip(gm.graph.nodes, graph.nodes, strict=True)}
        self.given = given
        # `as_strided` counts from the start of the storage, also for a view.
        self.clip = not any("as_strided" in str(n.target) for n in gm.graph.nodes)
        self.data = graph
        self.calls: dict[str, list[HopCall]] = {}
        for call in hop_calls(graph):
            self.calls.setdefault(call.node.name, []).append(call)

    def inner(self, gm: fx.GraphModule, graph: Graph) -> RecordingInterpreter:
        """A recorder for a subgraph."""
        return RecordingInterpreter(gm, graph, self.tape)

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            return super().run_node(n)
        name = self.names[n]
        before = self._versions(n) if n.op.startswith("call") else {}
        made = self.calls.get(name, ())
        with watched(self, made) if made else nullcontext():
            result = super().run_node(n)
        written = [t for t, version in before.values() if _was_written(n, t, version)]
        if written:
            self._again(written, self.tape.positions[name])
        if isinstance(result, torch.Tensor) and (name in self.given or n.op == "get_attr"):
            self.tape.kinds[name] = (ValueKind.TENSOR, None)  # the case itself holds the first value
            return result
        self.tape.keep(name, result, at=self.tape.positions[name], clip=self.clip)
        return result

    def _versions(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, int | None]]:
        """The tensor arguments of ``n`` with their version counters, by identity."""
        given = [self.env.get(i) for i in n.all_input_nodes]
        return {id(t): (t, version_of(t)) for t in _tensors(given)}

    def _again(self, written: list[torch.Tensor], position: int) -> None:
        """Take a new snapshot of every name whose storage was just written to."""
        storages = {_address(t) for t in written}
        for node, value in self.env.items():
            if isinstance(value, torch.Tensor) and node.op != "get_attr" and _address(value) in storages:
                self.tape.snapshot(self.names[node], value, at=position, clip=self.clip)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _was_written(n: fx.Node, t: torch.Tensor, version: int | None) -> bool:
    if version is not None:
        return t._version != version
    schema = getattr(n.target, "_schema", None)
    if schema is not None:
        return bool(schema.is_mutable)
    name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or "out" in n.kwargs


def _address(t: torch.Tensor) -> int:
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:  # no storage, as sparse tensors have none
        return id(t)


# Subgraphs of higher-order operators


@contextmanager
def watched(outer: RecordingInterpreter, made: Sequence[HopCall]) -> Iterator[None]:
    """Record the subgraphs that one node calls while it runs, and afterwards those that it did not call."""
    modules = {path: _module(outer.module, (path,)) for call in made for path in call.paths}
    for path, module in modules.items():
        if id(module) not in outer.tape.returned:
            module.forward = _hook(outer, made, path, module)
    try:
        yield
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)
    for call in made:
        for path in call.paths:
            if id(modules[path]) not in outer.tape.returned:
                _run_aside(outer, call, path, modules[path])


def _hook(outer: RecordingInterpreter, made: Sequence[HopCall], path: str, module: Any) -> Any:
    original = module.forward

    def forward(*args: Any) -> Any:
        if id(module) in outer.tape.returned or not all(map(_is_real, args)):
            return original(*args)
        module.__dict__.pop("forward", None)
        return _run(outer, made, path, module, args)

    return forward


def _run(outer: RecordingInterpreter, made: Sequence[HopCall], path: str, module: Any, args: Sequence[Any]) -> Any:
    """Run a subgraph on ``args`` and record it."""
    outer.tape.returned[id(module)] = None
    graph = outer.data.attrs[path]["graph"]
    names = {id(v): outer.names[n] for n, v in outer.env.items() if isinstance(v, torch.Tensor)}
    looks = {_look(v): outer.names[n] for n, v in reversed(outer.env.items()) if isinstance(v, torch.Tensor)}
    read = {name for call in made for name in call.node.inputs}
    for node, value in zip(graph.placeholders, args, strict=False):
        if isinstance(value, torch.Tensor):
            alias = names.get(id(value)) or looks.get(_look(value), "")
            if alias in read:
                outer.tape.alias[node.name] = alias
    result = outer.inner(module, graph).run(*args)
    outer.tape.returned[id(module)] = result
    return result


def _run_aside(outer: RecordingInterpreter, call: HopCall, path: str, module: Any) -> None:
    """Run a subgraph that the operator did not call, to record the values of its nodes."""
    placeholders = outer.data.attrs[path]["graph"].placeholders
    values = {outer.names[n]: v for n, v in outer.env.items()}
    operands = [_operand(value, values) for value in call.operands]
    if path not in call.shared or len(operands) != len(placeholders):
        saved = _results(outer, call, path)
        if len(saved) != len(placeholders):
            return
        operands = saved
    else:
        for node, value in zip(placeholders, call.operands, strict=True):
            if tag(value) == "ref":
                outer.tape.alias[node.name] = value["ref"]
    copies = [v.detach().clone().requires_grad_(v.requires_grad) if _is_copied(v) else v for v in operands]
    try:
        _run(outer, (), path, module, copies)
    except Exception:  # noqa: BLE001  a branch that was not taken may be unable to run; then its nodes have no values
        outer.tape.returned[id(module)] = None


def _results(outer: RecordingInterpreter, call: HopCall, path: str) -> list[Any]:
    """Operands for a backward function: gradients of ones, and values that the forward function saved; else none."""
    first = outer.tape.returned.get(id(_module(outer.module, (call.paths[0],))))
    if path == call.paths[0] or not isinstance(first, tuple | list) or len(first) != 2:
        return []
    outputs, saved = ([*part] if isinstance(part, tuple | list) else [part] for part in first)
    return [torch.ones_like(t) if isinstance(t, torch.Tensor) else None for t in outputs] + saved


def _operand(value: Value, values: dict[str, Any]) -> Any:
    return values.get(value["ref"]) if tag(value) == "ref" else value


def _is_copied(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or not value.requires_grad)


def _is_real(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, fx.Proxy | torch.SymInt | torch.SymFloat | torch.SymBool)
    return not is_fake(value) and not torch._is_functional_tensor(value)


def _look(value: torch.Tensor) -> tuple[Any, ...]:
    try:
        return value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
    except RuntimeError:  # no storage, as fake and sparse tensors have none
        return (id(value),)


def _module(module: Any, path: Path) -> Any:
    for part in path:
        module = module.get_submodule(part)
    return module
