"""The eager run behind `fxminify.minifier.tracing.trace`: an FX interpreter that takes snapshots. Imports torch.

A snapshot is taken when a value is made, before anything can write to it. Whether a node wrote to one of its
arguments shows in the version counter that a tensor shares with all its views (``Tensor._version``); when it moved,
every name still to be read that lies in the same storage gets a further snapshot. Inference tensors have no version
counter: there the name and the schema of the operator tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, count
from typing import Any

import torch
import torch.fx as fx

from ...store.document.case import Blobs, Case, Graph, TensorSpec
from ...store.live.build import build
from ...store.live.encode import Encoder, Unsupported
from ...store.live.modes import as_it_was, one_of_batch
from . import hop_calls as calls
from . import subgraphs as bodies
from .trace import Kind, Put, Recorded, Trace


def run(case: Case, blobs: Blobs, *, put: Put, live: list[object] | None) -> Trace:
    """See `fxminify.minifier.tracing.trace.record`."""
    given = frozenset(n.name for n in case.graph.placeholders)
    return recorded(case, blobs, put, live, lambda gm, tape: Recorder(gm, case.graph, tape, given=given))


def recorded(
    case: Case,
    blobs: Blobs,
    put: Put,
    live: list[object] | None,
    make: Callable[[fx.GraphModule, Tape], Recorder],
) -> Trace:
    """What the recorder that ``make`` gives writes down when it runs ``case``."""
    gm, inputs = build(case, blobs, live=live)
    tape = Tape(put, calls.positions(case.graph))
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
    """What the recorders of all graphs of a case have written down. ``positions`` number the nodes."""

    def __init__(self, put: Put, positions: dict[str, int]) -> None:
        self.put = put
        self.positions = positions
        self.specs: list[TensorSpec] = []
        self.kinds: dict[str, tuple[Kind, Any]] = {}
        self.snapshots: dict[str, list[tuple[int, int]]] = {}
        self.alias: dict[str, str] = {}
        self.wrapped: set[str] = set()
        #: What the bodies that have run returned, by the identity of the module.
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
            self.kinds[name] = (Kind.TENSOR, None)
            if not self.snapshot(name, value, at=at, clip=clip):
                self.kinds[name] = (Kind.OPAQUE, None)
            return
        try:
            literal = None if next(_tensors([value]), None) is not None else (Encoder().value(value),)
        except Unsupported:
            literal = None
        self.kinds[name] = (Kind.OPAQUE, None) if literal is None else (Kind.LITERAL, literal[0])

    def snapshot(self, name: str, tensor: torch.Tensor, *, at: int, clip: bool) -> bool:
        """Copy ``tensor`` aside. False where there is nothing to copy."""
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


class Recorder(fx.Interpreter):
    """Runs one graph; recorders of their own run its bodies. ``given`` are inputs of which the case has the value."""

    def __init__(self, gm: fx.GraphModule, graph: Graph, tape: Tape, given: frozenset[str] = frozenset()) -> None:
        super().__init__(gm)
        self.tape = tape
        # A build keeps order but may have to legalise a name; positions and names are those of the case.
        self.names = {node: ours.name for node, ours in zip(gm.graph.nodes, graph.nodes, strict=True)}
        self.given = given
        # `as_strided` counts from the start of a storage, whatever view it is given.
        self.clip = not any("as_strided" in str(n.target) for n in gm.graph.nodes)
        self.data = graph
        self.calls: dict[str, list[calls.Call]] = {}
        for call in calls.calls(graph):
            self.calls.setdefault(call.node.name, []).append(call)

    def inner(self, gm: fx.GraphModule, graph: Graph) -> Recorder:
        """A recorder for a body."""
        return Recorder(gm, graph, self.tape)

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            return super().run_node(n)
        name = self.names[n]
        before = self._versions(n) if n.op.startswith("call") else {}
        made = self.calls.get(name, ())
        with bodies.watched(self, made) if made else nullcontext():
            result = super().run_node(n)
        written = [t for t, version in before.values() if _was_written(n, t, version)]
        if written:
            self._again(written, self.tape.positions[name])
        if isinstance(result, torch.Tensor) and (name in self.given or n.op == "get_attr"):
            self.tape.kinds[name] = (Kind.TENSOR, None)  # the case itself holds the first value
            return result
        self.tape.keep(name, result, at=self.tape.positions[name], clip=self.clip)
        return result

    def _versions(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, int | None]]:
        """The tensors ``n`` is given, with their version counters, by identity."""
        given = [self.env.get(i) for i in n.all_input_nodes]
        return {id(t): (t, _version(t)) for t in _tensors(given)}

    def _again(self, written: list[torch.Tensor], position: int) -> None:
        """Take a new snapshot of every name that lies in a storage which was just written to."""
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


def _version(t: torch.Tensor) -> int | None:
    return None if t.is_inference() else t._version


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
