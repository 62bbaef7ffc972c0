"""A recording that also learns what nodes consist of: their decompositions, and the signatures of what they call.

The parts of a node are recorded as the subgraphs of an operator are, at the position of the node and under names of
their own (`fxminify.minifier.candidate.order.PART`), so a part can take the place of the whole. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ...backends.running.execution import copy_inputs
from ...store.document.case import Blobs, Case, Graph, target_name
from ...store.live.encode import encode
from ...store.live.modes import one_of_batch
from ..candidate import hop_calls
from ..candidate.order import DEEPEST, OTHER, PART, generation, rank
from ..candidate.trace import Put, Trace
from .decompose import decomposition
from .recorder import RecordingInterpreter, Tape, recorded
from .signatures import Parameters, parameters

#: In a graph of more nodes than this none is taken apart: that would take long, and say little.
MOST = 32


def study(case: Case, blobs: Blobs, *, put: Put, live: list[object] | None = None, prefix: str = "") -> Trace:
    """Run ``case`` once in eager mode, as `fxminify.minifier.tracing.recorder.record` does, and take its calls apart.

    The keys of what is recorded begin with ``prefix``, so that they are none of those of an earlier recording.
    """
    learned = _Learned()

    def make(gm: fx.GraphModule, tape: Tape) -> RecordingInterpreter:
        return _Student(gm, case.graph, tape, learned, frozenset(n.name for n in case.graph.placeholders))

    trace = recorded(case, blobs, lambda key, data: put(prefix + key, data), live, make)
    tensors = tuple(t if t.storage is None else replace(t, storage=prefix + t.storage) for t in trace.tensors)
    return replace(trace, tensors=tensors, signatures=learned.signatures, parts=learned.parts)


class _Learned:
    def __init__(self) -> None:
        self.signatures: dict[str, Parameters] = {}
        self.parts: dict[str, Graph] = {}


class _Student(RecordingInterpreter):
    """A recorder, of subgraphs as well, that looks at each call before it runs."""

    def __init__(
        self,
        gm: fx.GraphModule,
        graph: Graph,
        tape: Tape,
        learned: _Learned,
        given: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(gm, graph, tape, given)
        self.learned = learned
        self.ours = {node.name: node for node in graph.nodes}

    def inner(self, gm: fx.GraphModule, graph: Graph) -> RecordingInterpreter:
        return _Student(gm, graph, self.tape, self.learned)

    def run_node(self, n: fx.Node) -> Any:
        if n.op in ("call_function", "call_method") and self.names[n] not in self.calls:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            self.learned.signatures[self.names[n]] = parameters(n.target, args, kwargs)
            ours = self.ours[self.names[n]]
            if len(self.data.compute) <= MOST and rank(ours) == OTHER and generation(ours.name) < DEEPEST:
                self.take_apart(n)
        return super().run_node(n)

    def take_apart(self, n: fx.Node) -> None:
        values = {m: self.env[m] for m in n.all_input_nodes}
        operands = [m for m, value in values.items() if isinstance(value, torch.Tensor)]
        if not operands or any(one_of_batch(self.env[m]) is not self.env[m] for m in operands):
            return
        state = torch.get_rng_state()
        try:
            tensors = [self.env[m] for m in operands]
            traced = decomposition(_call_of(n, operands, values), tensors)
            graph = None if traced is None else self.renamed(n, operands, encode(traced, tensors).graph)
            if traced is None or graph is None:
                return
            torch.set_rng_state(state)
            given = frozenset(p.name for p in graph.placeholders)
            RecordingInterpreter(traced, graph, self.tape, given=given).run(*copy_inputs(tensors))
            self.learned.parts[self.names[n]] = graph
        except Exception:  # noqa: BLE001  what cannot be taken apart stays whole
            return
        finally:
            torch.set_rng_state(state)

    def renamed(self, n: fx.Node, operands: list[fx.Node], graph: Graph) -> Graph | None:
        """``graph`` with the names of the operands for its placeholders, and names of parts, which get positions."""
        if graph.attrs:
            return None
        own = self.names[n]
        names = {p.name: self.names[m] for p, m in zip(graph.placeholders, operands, strict=True)}
        for i, node in enumerate(graph.compute):
            names[node.name] = f"{own}{PART}{i}_{target_name(node)}"
            self.tape.positions[names[node.name]] = self.tape.positions[own]
        return hop_calls.renamed(graph, names)


def _call_of(n: fx.Node, operands: list[fx.Node], values: dict[fx.Node, Any]) -> Callable[..., Any]:
    """What ``n`` does, as a function of its tensors."""

    def call(*tensors: torch.Tensor) -> Any:
        given = {**values, **dict(zip(operands, tensors, strict=True))}
        args = fx.node.map_arg(n.args, given.__getitem__)
        kwargs = fx.node.map_arg(n.kwargs, given.__getitem__)
        if isinstance(n.target, str):
            return getattr(args[0], n.target)(*args[1:], **kwargs)
        return n.target(*args, **kwargs)

    return call
