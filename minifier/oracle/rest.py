"""Run the captured graph without the operations that its failure needs.

A program stops at the first failure of a backend, and a search that soon finds its cause sees no other. So the whole
captured graph is run once more, without any node that calls what a node of the minimal graph calls. The users of such
a node read its recorded value. Another failure becomes a capture of its own. If nothing fails, the failure is the only
thing that keeps the backend from compiling this graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...repro_templates.source.expressions import shown_target
from ...store import codec
from ...store.document.case import Case, Graph, Node, tag
from ...store.index import Index
from ..candidate.graph_view import GraphView
from ..candidate.order import PART
from ..candidate.patch import Patch, apply
from ..candidate.trace import COPY, Trace
from .verdict import Outcome

#: The kind of the artifact.
ARTIFACT = "rest"
#: The most operators that are named, and the one that a script shows as brackets.
_NAMED, _INDEXING = 3, "_operator.getitem"


@dataclass(frozen=True, slots=True)
class Rest:
    """The outcome of ``nodes`` nodes of the captured graph without the nodes that call one of ``without``.

    ``said`` is the headline of another failure.
    """

    without: tuple[str, ...]
    nodes: int
    outcome: Outcome
    said: str = ""

    def words(self, minimal: Graph) -> str:
        """Describe the captured graph: ``passes without torch.lstm``. Empty if the answer decides nothing.

        At most `_NAMED` operators are named, as the ``minimal`` graph shows them. Indexing is named only if there is
        nothing else. An operator that the minimal graph has in another form is named as the captured graph calls it.
        """
        what = {
            Outcome.PASS: "passes",
            Outcome.OTHER: "fails in another way",
            Outcome.SAME: "still fails in this way",
        }.get(self.outcome)
        if not what:
            return ""
        how = f": {self.said}" if self.outcome is Outcome.OTHER and self.said else ""
        shown = {_called(node): _shown(node) for node in minimal.compute}
        named = [name for name in self.without if name != _INDEXING] or list(self.without)
        if len(named) > _NAMED:
            return f"{what} without the operators of the minimal graph{how}"
        texts = {name: shown.get(name, name.removeprefix("_")) for name in named}
        changed = _listed([texts[name] for name in named if name not in shown])
        aside = f" (the minimal graph has {changed} in another form)" if changed else ""
        return f"{what} without {_listed([*texts.values()])}{aside}{how}"


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
    """Return the `Rest` that `keep` stored for ``capture``, or None if it is missing or cannot be read."""
    try:
        return codec.load(index.artifacts.get(capture, ARTIFACT), Rest)
    except ValueError:
        return None


def _called(node: Node) -> str:
    """Return the name that a person uses for the target of ``node``: ``torch.relu``, ``aten::relu.default``,
    ``.view``.
    """
    target = node.target
    return str(target[tag(target)]) if isinstance(target, dict) and tag(target) else f".{target}"


def _shown(node: Node) -> str:
    """Return the target of ``node`` as the printed graph shows it: ``torch.relu``, ``torch.ops.aten.relu.default``."""
    return shown_target(node.target) if node.op == "call_function" else _called(node)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
