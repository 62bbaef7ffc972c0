"""The report on one compiled graph: which parts ONNX Runtime runs, which nodes stayed in PyTorch, and why.

A silent fallback would hide the bugs that a minifier looks for. So every island, every node that the exporter or a
session refused, and every failure at run time is in the `OnnxrtReport` and in the log of this package.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from ....store.text import count

log = logging.getLogger("fxminify.backends.shipped.onnxrt")
#: What a session says of an operator that it has no kernel for, whose name is the first group.
NO_KERNEL = re.compile(r"Could not find an implementation for (\w+)\(")


class UnsupportedOperator(RuntimeError):
    """With ``strict``: a node that ONNX Runtime cannot run, with its source line and its dtypes."""


@dataclass(frozen=True, slots=True)
class Island:
    """A node that runs in PyTorch. ``evicted``: only because the exporter or ONNX Runtime failed on it."""

    node: str
    target: str
    dtypes: tuple[str, ...]
    source: str
    reason: str
    evicted: bool = False

    def text(self) -> str:
        kinds = f" ({', '.join(self.dtypes)})" if self.dtypes else ""
        place = f", from {self.source}" if self.source else ""
        return f"{self.node} = {self.target}{kinds}{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the graph that is one ONNX model."""

    name: str
    fx_nodes: int
    onnx_nodes: int
    providers: tuple[str, ...]


@dataclass(slots=True)
class OnnxrtReport:
    """``kind``: forward, backward or inference. ``failures``: errors of sessions at run time; PyTorch ran instead."""

    kind: str
    parts: list[Part] = field(default_factory=list)
    islands: list[Island] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def evictions(self) -> list[Island]:
        """The islands that exist only because something failed on them."""
        return [island for island in self.islands if island.evicted]

    def fallbacks(self) -> list[str]:
        """Return what PyTorch runs, a line for each operator and for each failure at run time, with the reason."""
        return [f"{i.target}: {i.reason}" for i in self.islands] + [f"at run time: {text}" for text in self.failures]

    def text(self) -> str:
        """The report as text."""
        lines = [f"{self.kind}: {count(len(self.parts), 'part')}, {count(len(self.islands), 'island')}"]
        for part in self.parts:
            where = ", ".join(part.providers)
            lines.append(f"  {part.name}: {part.fx_nodes} FX nodes, {part.onnx_nodes} ONNX nodes on {where}")
        lines += [f"  {'evicted' if i.evicted else 'island'}: {i.text()}" for i in self.islands]
        lines += [f"  failed at run time: {text}" for text in self.failures]
        return "\n".join(lines)


def whole_message(error: BaseException) -> str:
    """The messages of an error and its causes in one line."""
    texts, current = [], error
    while current is not None:
        texts.append(f"{type(current).__name__}: {current}")
        current = current.__cause__  # type: ignore[assignment]
    return " ".join(" | ".join(texts).split())


def short_message(error: BaseException) -> str:
    """The text of an error for a report: its innermost cause, cut to a length."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def island(node: torch.fx.Node, reason: str, evicted: bool = False) -> Island:
    """Describe a node that stays in PyTorch."""
    return Island(node.name, str(node.target), dtypes(node), source_line(node), reason, evicted)


def unsupported(nodes: list[Island]) -> str:
    """The message of `UnsupportedOperator`.

    The first paragraph names the operators and reasons and nothing that changes from graph to graph, because it becomes
    the signature of the failure. Then it lists each node with its place in the program.
    """
    first = nodes[0]
    head = f"strict: ONNX Runtime cannot run {first.target} ({', '.join(first.dtypes)}): {first.reason}"
    return "\n".join([head, "", "Nodes:", *(f"  {node.text()}" for node in nodes)])


def dtypes(node: torch.fx.Node) -> tuple[str, ...]:
    """The dtypes of a node's tensors, results first, each once."""
    found = [str(v.dtype).removeprefix("torch.") for v in held_values(node) if isinstance(v, torch.Tensor)]
    return tuple(dict.fromkeys(found))


def held_values(node: torch.fx.Node) -> list[Any]:
    """The traced values of a node and of the nodes that it reads, flattened; the node's own come first."""
    values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
    return list(torch.utils._pytree.tree_leaves(values))


def source_line(node: torch.fx.Node) -> str:
    """The innermost line of the user's program for a node, as ``file.py:12: code``; empty if unknown."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    for number in range(len(trace) - 1, -1, -1):
        line = trace[number].strip()
        if line.startswith('File "'):
            file, _, rest = line.removeprefix('File "').partition('", line ')
            code = trace[number + 1].strip() if number + 1 < len(trace) else ""
            return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}: {code}"
    return ""
