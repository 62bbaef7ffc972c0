"""Ask what the captured graph does without the operations that its failure needs.

A program meets only the first failure of a backend, and a search that soon finds its cause sees no other. So the whole
captured graph is asked about once more, without any node that calls what a node of the minimal graph calls: whoever
reads such a node reads its recorded value. Another failure becomes a capture of its own; if nothing fails, the failure
is the only thing that keeps the backend from compiling this graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...store import codec
from ...store.document.case import Case, Graph, Node, tag
from ...store.index import Index
from ...store.text import count
from ..candidate.graph_view import GraphView
from ..candidate.order import PART
from ..candidate.patch import Patch, apply
from ..candidate.trace import COPY, Trace
from .verdict import Outcome

#: The kind of the artifact.
ARTIFACT = "rest"


@dataclass(frozen=True, slots=True)
class Rest:
    """What ``nodes`` nodes of the captured graph do without those that call one of ``without``."""

    without: tuple[str, ...]
    nodes: int
    outcome: Outcome

    def sentence(self) -> str:
        """For a person; empty where the answer says nothing."""
        what = {
            Outcome.PASS: "passes",
            Outcome.OTHER: "fails in another way",
            Outcome.SAME: "still fails in this way",
        }.get(self.outcome)
        called = ", ".join(self.without)
        return f"without {called} the captured graph ({count(self.nodes, 'node')}) {what}" if what else ""


def without(case: Case, trace: Trace, minimal: Graph) -> tuple[Case, tuple[str, ...]] | None:
    """``case`` without all nodes that call what ``minimal`` calls, and the names of these calls.

    None if ``minimal`` has no node of ``case``, or no other node would be left.
    """
    view = GraphView(case, trace)
    own = {n.name.partition(PART)[0].partition(COPY)[0] for n in minimal.compute}
    called = list(dict.fromkeys(_called(view.nodes[name]) for name in view.in_order(own & view.computed)))
    gone = {name for name in view.computed if _called(view.nodes[name]) in called}
    drop = frozenset(name for atom in view.atoms if not gone.isdisjoint(atom) for name in atom)
    left = apply(view, Patch(drop=drop)) if drop else None
    return None if left is None else (left, tuple(called))


def keep(index: Index, capture: int, found: Rest) -> None:
    index.artifacts.save(capture, ARTIFACT, codec.dump(found))


def stored(index: Index, capture: int) -> Rest | None:
    """What `keep` stored for ``capture``. None where there is nothing that can be read."""
    try:
        return codec.load(index.artifacts.get(capture, ARTIFACT), Rest)
    except ValueError:
        return None


def _called(node: Node) -> str:
    """What ``node`` calls, as a person names it: ``torch.relu``, ``aten::relu.default``, ``.view``."""
    target = node.target
    return str(target[tag(target)]) if isinstance(target, dict) and tag(target) else f".{target}"
