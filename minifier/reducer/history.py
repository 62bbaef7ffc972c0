"""The history of a reduction: what each step changed, and what each pass asked and achieved.

One line describes each node, input and setting of a case. The difference of two cases is the lines that were removed
and added. This module runs nothing and builds no graph, so it can show the history of any database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...repro_templates.source.expressions import shown, shown_target
from ...store.document.case import Case, Graph, Json, Node, TensorSpec, Value, tag
from ...store.document.strides import contiguous
from ...store.errors import StoreError
from ...store.index import Index, StepInfo, StoredCase
from ..oracle.verdict import Outcome

#: Queries under this name belong to the explanation, not to the reduction.
EXPLAIN = "explain"
#: The detail of a verdict that an unused worker contradicts.
UNCONFIRMED = "an unused worker does not show it"
#: Rows whose key has this prefix hold an error of a pass instead of a query.
_PROBLEM = "problem/"


@dataclass(slots=True)
class Effort:
    """The queries and results of one pass.

    ``seconds`` is the time of its queries in workers. ``removed`` counts compute nodes, ``invalid`` the candidates
    that did not run in eager mode, ``other`` the candidates that failed in another way. ``problems`` are errors of the
    pass itself.
    """

    pass_name: str
    asked: int = 0
    accepted: int = 0
    removed: int = 0
    invalid: int = 0
    other: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """The record of a reduction: its number, the compute nodes at the start, its steps, and its passes.

    The passes are in the order of their first queries. ``unconfirmed`` counts the steps that failed in a worker that
    was used before, and did not fail in an unused worker.
    """

    reduction: int
    config: Json
    start_nodes: int
    steps: tuple[StepInfo, ...]
    passes: tuple[Effort, ...]
    unconfirmed: int = 0

    def to_json(self) -> Json:
        return {
            "reduction": self.reduction,
            "config": self.config,
            "start_nodes": self.start_nodes,
            "steps": [step.to_json() for step in self.steps],
            "passes": [asdict(effort) for effort in self.passes],
            "unconfirmed": self.unconfirmed,
        }


def stored(index: Index, capture: int) -> History | None:
    """Return the history of the last reduction of ``capture``, or None if it was never reduced."""
    info = index.reductions.last(capture)
    if info is None:
        return None
    steps = index.reductions.steps(info.id)
    start = info.nodes_before or index.captures.get(capture).nodes_before or 0
    efforts: dict[str, Effort] = {}
    unconfirmed = 0
    for verdict in index.verdicts.find(info.id).values():
        unconfirmed += verdict.detail == UNCONFIRMED
        if verdict.pass_name == EXPLAIN:
            continue
        effort = efforts.setdefault(verdict.pass_name, Effort(verdict.pass_name))
        if verdict.key.startswith(_PROBLEM):
            effort.problems.append(verdict.detail)
            continue
        effort.asked += 1
        effort.seconds = round(effort.seconds + verdict.seconds, 6)
        effort.invalid += verdict.outcome == Outcome.INVALID
        effort.other += verdict.outcome in (Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT)
    before = start
    for step in steps:
        effort = efforts.setdefault(step.pass_name, Effort(step.pass_name))
        effort.accepted += 1
        effort.removed += before - step.nodes
        before = step.nodes
    return History(info.id, info.config, start, tuple(steps), tuple(efforts.values()), unconfirmed)


def failed_passes(index: Index, reduction: int) -> dict[str, tuple[str, ...]]:
    """The errors of passes themselves in a reduction, by pass."""
    found: dict[str, list[str]] = {}
    for verdict in index.verdicts.find(reduction, prefix=_PROBLEM).values():
        found.setdefault(verdict.pass_name, []).append(verdict.detail)
    return {name: tuple(texts) for name, texts in found.items()}


def problem_key(pass_name: str, text: str) -> str:
    """The key of the row that holds the problem ``text`` of a pass."""
    return _PROBLEM + hashlib.sha256(f"{pass_name}\n{text}".encode()).hexdigest()[:32]


def begin_at(index: Index, capture: int, number: int) -> tuple[int, StoredCase]:
    """The number of the last reduction of ``capture``, and the case of its step ``number`` as a start for another one.

    The case has the imports and the backend of the capture, because a person has trusted those. Raises `StoreError` if
    there is no such step, or its case was not kept.
    """
    step = index.stored_step(capture, number)
    if step is None:
        raise StoreError(f"capture {capture} was not minified yet: minify run {index.name} {capture}")
    captured, case = index.stored(capture).captured(), step.case.case
    backend = {
        k: v
        for k, v in captured.case.backend.items()
        if k not in ("dynamic", "options") and (k != "mode" or k in case.backend)
    }
    if case.backend.get("dynamic") in (True, False):
        backend["dynamic"] = case.backend["dynamic"]
    names = [item[0] for item in (case.backend.get("options") or {}).get("dict", [])]
    kept = [item for item in (captured.case.backend.get("options") or {}).get("dict", []) if item[0] in names]
    if kept:
        backend["options"] = {"dict": kept}
    begun = replace(case, backend=backend, imports=captured.case.imports)
    return step.reduction, StoredCase(begun, captured.ours and step.case.ours)


def difference(before: Case, after: Case) -> str:
    """The lines that were removed (``- ...``) and added (``+ ...``), in the order of the cases, as one text."""
    old, new = _items(before), _items(after)
    lines: list[str] = []
    for key, item in old.items():
        if key not in new:
            lines.append(f"- {_line(key, item)}")
        elif new[key] is not item and (was := _line(key, item)) != (now := _line(key, new[key])):
            lines += [f"- {was}", f"+ {now}"]
    lines += [f"+ {_line(key, item)}" for key, item in new.items() if key not in old]
    return "\n".join(lines)


def describe(case: Case) -> list[str]:
    """The lines that describe ``case``: settings, inputs, nodes, what it returns."""
    return [_line(key, item) for key, item in _items(case).items()]


_Key = tuple[str, str]


def _items(case: Case) -> dict[_Key, Any]:
    """Collect the described parts of ``case`` by kind and name.

    Cases share the objects of most nodes, so comparing them is quick.
    """
    out: dict[_Key, Any] = {}
    for name, value in sorted(case.backend.items()):
        if name in ("options", "mode", "dynamic"):
            out["compile", name] = value
    for name, value in sorted(case.context.items()):
        if name != "rng":
            out["context", name] = value
    if case.backward:
        out["", "backward pass"] = None
    if case.calls > 1:
        out["", f"{case.calls} calls"] = None
    for number, call in enumerate(case.earlier):
        out["", f"earlier call {number + 1} with other {', '.join(call)}"] = None
    for node, value in zip(case.graph.placeholders, case.inputs, strict=True):
        spec = case.tensors[value["tensor"]] if tag(value) == "tensor" else None
        out["input", node.name] = spec if spec is not None else value
    for prefix, graph in _graphs(case.graph, ""):
        for path, attr in graph.attrs.items():
            if "tensor" in attr:
                out["held", prefix + path] = case.tensors[attr["tensor"]]
        for node in graph.nodes:
            if node.op != "placeholder" or prefix:
                out["node", prefix + node.name] = node
    return out


def _graphs(graph: Graph, prefix: str) -> Iterator[tuple[str, Graph]]:
    yield prefix, graph
    for path, attr in graph.attrs.items():
        if "graph" in attr:
            yield from _graphs(attr["graph"], f"{prefix}{path}: ")


def _line(key: _Key, item: Any) -> str:
    kind, name = key
    if kind == "node":
        return _node(name, item)
    if isinstance(item, TensorSpec):
        return f"{name}: {tensor(item)}"
    if kind in ("compile", "context"):
        return f"{kind} {name} = {text(item)}"
    return f"{name}: {text(item)}" if kind == "input" else name


def tensor(spec: TensorSpec) -> str:
    """A tensor in one line: ``float32[4, 8] strides (1, 4) requires_grad, zeros``."""
    message = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
    if spec.layout != "strided":
        message += f" {spec.layout}"
    elif spec.stride != contiguous(spec.shape) or spec.offset:
        message += f" strides ({', '.join(map(str, spec.stride))})" + (f" offset {spec.offset}" if spec.offset else "")
    message += "".join(f" {flag}" for flag in ("requires_grad", "parameter", "conj", "neg") if getattr(spec, flag))
    message += f" dynamic {list(spec.dynamic)}" if spec.dynamic else ""
    message += f" on {spec.device}" if spec.device != "cpu" else ""
    return f"{message}, {values(spec)}"


def values(spec: TensorSpec) -> str:
    """The origin of the values of a tensor in a few words: ``zeros``, ``all -0.0``, ``randn``, ``recorded values``."""
    init: Mapping[str, Any] = spec.init or {}
    if not init:
        return "recorded values" if spec.storage is not None else "no values of its own"
    if init.get("fn") == "full":
        constant = {"0": "zeros", "0.0": "zeros", "1": "ones", "1.0": "ones"}.get(repr(init["value"]))
        return constant or f"all {text(init['value'])}"
    if init.get("fn") == "randint":
        return f"randint {init['low']} to {init['high'] - 1}"
    return f"{init.get('fn')} times {init['std']:g}" if "std" in init else str(init.get("fn"))


def _node(name: str, node: Node) -> str:
    if node.op == "output":
        return f"{name.removesuffix(node.name)}return {text(node.args[0])}"
    if node.op == "placeholder":
        return f"{name} is given"
    arguments = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
    if node.op == "get_attr":
        return f"{name} = self.{node.target}"
    if node.op == "call_method":
        return f"{name} = {arguments[0]}.{node.target}({', '.join(arguments[1:])})"
    target = f"self.{node.target}" if node.op == "call_module" else shown_target(node.target)
    return f"{name} = {target}({', '.join(arguments)})"


def text(value: Value) -> str:
    """A tagged value as a person writes it in Python."""
    return shown(value) or str(value)
