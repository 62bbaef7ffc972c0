"""A trace that also records the decompositions of nodes and the signatures of their targets. Imports torch.

A call is traced to operators, which decomposes every composite kernel (``cross_entropy`` becomes ``log_softmax`` and
``nll_loss_forward``). If that gives a single operator, one level of its decomposition in torch's table is traced. The
operators in it may be decomposed later, if they turn out to matter.

The parts of a node are recorded like the subgraphs of an operator, at the position of the node and under new names
(`fxminify.minifier.candidate.order.PART`), so a part can replace the node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx
from torch._decomp import global_decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx

from ...backends.running.execution import copy_inputs
from ...store.document.case import Blobs, Case, Graph, Value, target_name
from ...store.live.encode import Encoder, Unsupported, encode
from ...store.live.modes import one_of_batch
from ..candidate import hop_calls
from ..candidate.order import DEEPEST, OTHER, PART, generation, rank
from ..candidate.trace import Put, Trace
from .recorder import RecordingInterpreter, Tape, recorded
from .signatures import Defaults, Parameters, parameters

#: Nodes are decomposed only in graphs of at most this many nodes; in larger ones it takes too long.
MOST = 32
#: A decomposition into more operators than this is not used: it is harder to read than the operation itself.
MOST_PARTS = 256


def study(case: Case, blobs: Blobs, *, put: Put, live: list[object] | None = None, prefix: str = "") -> Trace:
    """Run ``case`` once in eager mode, as `fxminify.minifier.tracing.recorder.record` does, and decompose its calls.

    The keys of recorded storages begin with ``prefix``, so that they differ from the keys of an earlier trace.
    """
    learned = _Learned()

    def make(gm: fx.GraphModule, tape: Tape) -> RecordingInterpreter:
        return _Student(gm, case.graph, tape, learned, frozenset(n.name for n in case.graph.placeholders))

    trace = recorded(case, blobs, lambda key, data: put(prefix + key, data), live, make)
    tensors = tuple(t if t.storage is None else replace(t, storage=prefix + t.storage) for t in trace.tensors)
    return replace(
        trace, tensors=tensors, signatures=learned.signatures, defaults=learned.defaults, parts=learned.parts
    )


class _Learned:
    def __init__(self) -> None:
        self.signatures: dict[str, Parameters] = {}
        self.defaults: dict[str, dict[str, Value]] = {}
        self.parts: dict[str, Graph] = {}


class _Student(RecordingInterpreter):
    """A recorder that studies each call, also those in subgraphs, before it runs."""

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
            signature, defaults = parameters(n.target, args, kwargs)
            self.learned.signatures[self.names[n]] = signature
            self.learned.defaults[self.names[n]] = _encoded(defaults)
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
            traced = _decomposition(_call_of(n, operands, values), tensors)
            graph = None if traced is None else self.renamed(n, operands, encode(traced, tensors).graph)
            if traced is None or graph is None:
                return
            torch.set_rng_state(state)
            given = frozenset(p.name for p in graph.placeholders)
            RecordingInterpreter(traced, graph, self.tape, given=given).run(*copy_inputs(tensors))
            self.learned.parts[self.names[n]] = graph
        except Exception:  # noqa: BLE001  a node that cannot be decomposed stays as it is
            return
        finally:
            torch.set_rng_state(state)

    def renamed(self, n: fx.Node, operands: list[fx.Node], graph: Graph) -> Graph | None:
        """``graph`` with placeholders named as the operands and nodes named as parts, whose positions are set."""
        if graph.attrs:
            return None
        own = self.names[n]
        names = {p.name: self.names[m] for p, m in zip(graph.placeholders, operands, strict=True)}
        for i, node in enumerate(graph.compute):
            names[node.name] = f"{own}{PART}{i}_{target_name(node)}"
            self.tape.positions[names[node.name]] = self.tape.positions[own]
        return hop_calls.renamed(graph, names)


def _encoded(defaults: Defaults) -> dict[str, Value]:
    """Return the defaults that a case can hold, encoded."""
    found = {}
    for name, value in defaults.items():
        with suppress(Unsupported):
            found[name] = Encoder().value(value)
    return found


def _call_of(n: fx.Node, operands: list[fx.Node], values: dict[fx.Node, Any]) -> Callable[..., Any]:
    """The call of ``n`` as a function of its tensors."""

    def call(*tensors: torch.Tensor) -> Any:
        given = {**values, **dict(zip(operands, tensors, strict=True))}
        args = fx.node.map_arg(n.args, given.__getitem__)
        kwargs = fx.node.map_arg(n.kwargs, given.__getitem__)
        if isinstance(n.target, str):
            return getattr(args[0], n.target)(*args[1:], **kwargs)
        return n.target(*args, **kwargs)

    return call


def _decomposition(call: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> fx.GraphModule | None:
    """``call(*tensors)`` as a graph of at least two operators; None for an operator without a decomposition.

    Runs the call on copies of the tensors. Raises any exception of the call or of its decomposition.
    """
    traced = _traced(call, tensors, {})
    if len(operators := _operators(traced)) == 1:
        table = global_decomposition_table["post_autograd"]
        target = operators[0].target
        if target not in table:
            return None
        traced = _traced(call, tensors, {target: table[target]})
    return traced if 2 <= len(_operators(traced)) <= MOST_PARTS else None


def _traced(call: Callable[..., Any], tensors: Sequence[torch.Tensor], table: dict[Any, Any]) -> fx.GraphModule:
    given = [t.detach() for t in copy_inputs(list(tensors))]
    traced: fx.GraphModule = make_fx(call, decomposition_table=table, tracing_mode="real")(*given)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _operators(traced: fx.GraphModule) -> list[fx.Node]:
    trivial = (operator.getitem, torch.ops.aten.detach.default, torch.ops.aten.alias.default)
    return [n for n in traced.graph.nodes if n.op == "call_function" and n.target not in trivial]
