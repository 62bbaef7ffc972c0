"""``fxminify_explain``: which graphs Dynamo makes of a program, why there is more than one, and what they call.

    report = fxminify.Explain()                                # or Explain(backends=["inductor", "openvino"])
    torch.compile(model, backend=report)(*inputs)
    print(report)

Programs run in eager meanwhile. With ``backends`` each graph is also compiled by each of them, on copies, so that the
report says which graph would fail where, before it does. By name the report is printed when the program ends.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...store.text import count
from ..capture import seam
from ..provenance.origin import shown
from ..running.execution import counts, private
from .options_reader import read

NAME = "fxminify_explain"
_MOST_OPS = 8


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A graph of Dynamo.

    ``compile_id`` is Dynamo's number, ``nodes`` counts operations, ``ops`` has how often each is called. ``ends``
    is the reason of the graph break that ended the graph and ``at`` its ``file:line``; both are empty if the
    function simply ended. ``verdicts`` has for each tried backend an empty string, or the first line of its error.
    """

    compile_id: str
    nodes: int
    ops: dict[str, int]
    ends: str
    at: str
    verdicts: dict[str, str]


@dataclass
class Explain:
    """A backend that runs graphs in eager and keeps a `GraphReport` of each in ``graphs``. ``str()`` is the report.

    Each of ``backends``, names or callables, also compiles a copy of each graph; what it raises is in the report.
    """

    backends: Sequence[str | Callable[..., Any]] = ()
    graphs: list[GraphReport] = field(default_factory=list)

    __name__ = NAME

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        """Report on ``gm`` and run it in eager."""
        verdicts = {shown(backend): _tried(backend, gm, example_inputs) for backend in self.backends}
        ops = counts(gm)
        ends, at = _break(gm)
        self.graphs.append(GraphReport(seam.compile_id(), sum(ops.values()), ops, ends, at, verdicts))
        return gm.forward

    @property
    def breaks(self) -> list[GraphReport]:
        """The graphs that end at a graph break."""
        return [g for g in self.graphs if g.ends]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"graphs": [{f: getattr(g, f) for f in GraphReport.__dataclass_fields__} for g in self.graphs]}

    def __str__(self) -> str:
        total = sum(g.nodes for g in self.graphs)
        lines = [f"{count(len(self.graphs), 'graph')}, {count(total, 'operation')}, "
                 f"{count(len(self.breaks), 'graph break')}"]  # fmt: skip
        for g in self.graphs:
            frequent = list(g.ops.items())
            shown = ", ".join(f"{op} x{n}" if n > 1 else op for op, n in frequent[:_MOST_OPS])
            more = f", {len(frequent) - _MOST_OPS} more" if len(frequent) > _MOST_OPS else ""
            lines.append(f"graph {g.compile_id}: {count(g.nodes, 'operation')}: {shown}{more}")
            if g.ends:
                lines.append(f"  ends at a graph break{g.at and ' at ' + g.at}: {g.ends}")
            lines += [f"  {name}: {f'fails: {said}' if said else 'compiles'}" for name, said in g.verdicts.items()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """``backends``: names of backends to try each graph on."""

    backends: tuple[str, ...] = ()


_reports: dict[tuple[str, ...], Explain] = {}


def registered(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """`Explain` by name, ``fxminify_explain``: one report for the whole process, printed on standard error at its end.

    ``options`` are the fields of `ExplainOptions`. Raises `InvalidOption` for others.
    """
    asked = tuple(read(ExplainOptions, options, NAME).backends)
    if asked not in _reports:
        _reports[asked] = Explain(backends=asked)
        atexit.register(lambda: print(_reports[asked], file=sys.stderr))
    return _reports[asked](gm, example_inputs)


def _tried(backend: str | Callable[..., Any], gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The first line of what ``backend`` raises when it compiles a copy of ``gm``, or nothing."""
    from ..provenance import registry

    try:
        with seam.own_calls():
            registry.wrap(backend, None, None, None)(private(gm), inputs)
    except Exception as exc:  # noqa: BLE001  this is the answer
        return f"{type(exc).__name__}: {(str(exc).strip() or 'no message').splitlines()[0]}"
    return ""


def _break(gm: torch.fx.GraphModule) -> tuple[str, str]:
    """Return the reason of the graph break that ended this graph, and ``file:line`` of the user's code.

    Both are empty if the function simply ended.
    """
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return "", ""
    frame = reason.user_stack[-1] if reason.user_stack else None
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}" if frame else ""
    return str(reason.reason).strip().splitlines()[0], place
