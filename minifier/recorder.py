"""The eager run behind `fxminify.minifier.trace`: an FX interpreter that takes snapshots. Imports torch.

A snapshot is taken when a value is made, before anything can write to it. Whether a node wrote to one of its
arguments shows in the version counter that a tensor shares with all its views (``Tensor._version``); when it moved,
every name still to be read that lies in the same storage gets a further snapshot. Inference tensors have no version
counter: there the name and the schema of the operator tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..store.build import build
from ..store.case import Blobs, Case, TensorSpec
from ..store.encode import Encoder, Unsupported
from .trace import Kind, Put, Recorded, Trace


def run(case: Case, blobs: Blobs, *, put: Put, live: list[object] | None) -> Trace:
    """See `fxminify.minifier.trace.record`."""
    gm, inputs = build(case, blobs, live=live)
    # A build keeps order but may have to legalise a name; positions and names are those of the case.
    names = {node: ours.name for node, ours in zip(gm.graph.nodes, case.graph.nodes, strict=True)}
    recorder = _Recorder(gm, names, put)
    problem = ""
    state, grad = torch.get_rng_state(), torch.is_grad_enabled()
    try:
        with _context(case, blobs):
            recorder.run(*inputs)
    except Exception as exc:  # noqa: BLE001 - eager code of a user's graph; what ran until here is still of use
        problem = f"{type(exc).__name__}: {exc}".splitlines()[0]
    finally:
        torch.set_rng_state(state)
        torch.set_grad_enabled(grad)
    positions = {n.name: i for i, n in enumerate(case.graph.nodes)}
    return Trace(recorder.recorded(), tuple(recorder.specs), positions, problem)


def _context(case: Case, blobs: Blobs) -> AbstractContextManager[Any]:
    if not case.context:
        return nullcontext()
    from ..backends import ambient

    applied: AbstractContextManager[Any] = ambient.applied(case.context, case.tensors, blobs)
    return applied


class _Recorder(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, names: dict[fx.Node, str], put: Put) -> None:
        super().__init__(gm)
        self.names = names
        self.put = put
        # `as_strided` counts from the start of a storage, whatever view it is given.
        self.clip = not any("as_strided" in str(n.target) for n in gm.graph.nodes)
        self.specs: list[TensorSpec] = []
        self.kinds: dict[str, tuple[Kind, Any]] = {}
        self.snapshots: dict[str, list[tuple[int, int]]] = {}
        self.position = -1

    def recorded(self) -> dict[str, Recorded]:
        return {
            name: Recorded(kind, tuple(self.snapshots.get(name, ())), literal)
            for name, (kind, literal) in self.kinds.items()
        }

    def run_node(self, n: fx.Node) -> Any:
        self.position += 1
        if n.op == "output":
            return super().run_node(n)
        before = self._versions(n) if n.op.startswith("call") else {}
        result = super().run_node(n)
        written = [t for t, version in before.values() if _was_written(n, t, version)]
        if written:
            self._again(written)
        self._keep(self.names[n], result, given=n.op in ("placeholder", "get_attr"))
        return result

    def _versions(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, int | None]]:
        """The tensors ``n`` is given, with their version counters, by identity."""
        given = [self.env.get(i) for i in n.all_input_nodes]
        return {id(t): (t, _version(t)) for t in _tensors(given)}

    def _again(self, written: list[torch.Tensor]) -> None:
        """Take a new snapshot of every name that lies in a storage which was just written to."""
        storages = {_address(t) for t in written}
        for node, value in self.env.items():
            if isinstance(value, torch.Tensor) and node.op != "get_attr" and _address(value) in storages:
                self._snapshot(self.names[node], value)

    def _keep(self, name: str, value: Any, *, given: bool) -> None:
        if isinstance(value, torch.Tensor):
            self.kinds[name] = (Kind.TENSOR, None)
            # The case itself holds the first value of an input or an attribute.
            if not given and not self._snapshot(name, value):
                self.kinds[name] = (Kind.OPAQUE, None)
            return
        try:
            literal = None if next(_tensors([value]), None) is not None else (Encoder().value(value),)
        except Unsupported:
            literal = None
        self.kinds[name] = (Kind.OPAQUE, None) if literal is None else (Kind.LITERAL, literal[0])

    def _snapshot(self, name: str, tensor: torch.Tensor) -> bool:
        """Copy ``tensor`` aside. False where it has no bytes of its own (a tensor inside ``vmap``, for one)."""
        encoder = Encoder(clip=self.clip)
        try:
            index = encoder.tensor(tensor)
            specs, blobs = encoder.finish()
        except (Unsupported, RuntimeError, NotImplementedError):
            return False
        taken = self.snapshots.setdefault(name, [])
        start, base = self.position + 1, len(self.specs)
        keys: dict[str, str] = {}
        for key, data in blobs.items():
            keys[key] = f"{name}@{len(taken)}" + (f".{len(keys)}" if keys else "")
            self.put(keys[key], data)
        for spec in specs:
            self.specs.append(
                replace(
                    spec,
                    storage=None if spec.storage is None else keys[spec.storage],
                    parts=tuple(base + p for p in spec.parts),
                    leaf=spec.leaf and not spec.requires_grad,
                    parameter=False,
                )
            )
        taken.append((start, base + index))
        return True


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
    except (RuntimeError, NotImplementedError):
        return id(t)
