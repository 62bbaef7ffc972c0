"""The graphs of a program, or the nodes of one, that are compiled while eager runs everything else.

`minify bisect` runs a program with one `GraphSelection` after the other. `backends.capture.selected_graphs` carries it
out, and notes in the journal what it met. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...store import codec
from ...store.document.case import Json

#: The lists of the journal: graphs that came, parts of them that were compiled, and parts that could not be.
MET, COMPILED, UNCUT = "graph", "compiled_part", "uncut"


@dataclass(frozen=True, slots=True)
class PartRange:
    """The parts ``first`` to ``end``, without that, of a graph (`backends.capture.graph_parts`)."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class GraphSelection:
    """The graphs that are compiled, by name: wholly (None), or a range of their parts. Without ``graphs``: all."""

    graphs: Mapping[str, PartRange | None] | None = None

    def to_json(self) -> Json:
        return codec.dump(self)

    @classmethod
    def from_json(cls, doc: Any) -> GraphSelection:
        """Inverse of `to_json`. Raises `ValueError` on anything else."""
        return codec.load(doc, cls)

    def compiles(self, graph: str) -> bool:
        """Whether at least a part of ``graph`` is compiled."""
        return self.graphs is None or graph in self.graphs

    def range_of(self, graph: str) -> PartRange | None:
        """The range of the parts that are compiled, or None for the whole graph."""
        return None if self.graphs is None else self.graphs[graph]


@dataclass(frozen=True, slots=True)
class MetGraph:
    """A graph that a backend was to compile: its compute ``nodes``, its ``parts``, and ``at``, the first line of the
    program that it comes from."""

    name: str
    backend: str
    nodes: int
    parts: int
    at: str


@dataclass(frozen=True, slots=True)
class CompiledNode:
    """A node of a part that was compiled, and the line of the program ``at`` which it was made."""

    name: str
    operator: str
    at: str


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """The nodes of a range of parts of ``graph``, which were compiled."""

    graph: str
    nodes: tuple[CompiledNode, ...]
