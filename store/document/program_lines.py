"""The lines of the user's program that a graph comes from, and the modules that ran them.

Dynamo notes both at every node, and the capture keeps them (`Node.meta`). Edits keep them, too, so the minimal
graph still says which lines of the program the failure needs. All of it is for display only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .case import Graph, Json, Node

#: The keys of `Node.meta` that say where a node comes from.
KEYS = ("stack", "module")
#: The places and the modules of one place that a sentence names.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """A place in a program.

    ``line`` is ``model.py:16 forward``, without a directory; ``modules`` are paths such as ``encoder.layer.0`` of
    the modules that were running there, in order. One of the two may be empty.
    """

    line: str
    modules: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = _few(self.modules)
        kind = "modules" if len(self.modules) > 1 else "module"
        return f"{self.line} ({kind} {named})" if self.line and named else self.line or f"{kind} {named}"


def program_lines(graph: Graph) -> tuple[ProgramLine, ...]:
    """The places that the compute nodes of ``graph`` and its subgraphs come from, in order of their first node.

    Places in torch itself, which transforms such as ``torch.func.jacfwd`` add, are left out if there are others.
    """
    found: dict[str, dict[str, None]] = {}
    for node in _compute(graph):
        line, module = (str(node.meta.get(key, "")) for key in KEYS)
        if line or module:
            found.setdefault(line, {}).update({module: None} if module else {})
    own = {line: modules for line, modules in found.items() if not line.startswith("torch/")}
    return tuple(ProgramLine(line, tuple(modules)) for line, modules in (own or found).items())


def comes_from(graph: Graph) -> str:
    """`program_lines` as one line; empty if no node says where it comes from."""
    return _few([str(line) for line in program_lines(graph)])


def place_of(node: Node) -> Json:
    """The part of ``node.meta`` that says where it comes from."""
    return {key: node.meta[key] for key in KEYS if key in node.meta}


def _compute(graph: Graph) -> Iterator[Node]:
    yield from graph.compute
    for attr in graph.attrs.values():
        if "graph" in attr:
            yield from _compute(attr["graph"])


def _few(texts: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(texts[:_MOST_NAMED])
    return f"{shown} and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else shown
