"""What a pass hands to the engine, and how a pass is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from .searches import Search, dense


@dataclass(frozen=True, slots=True)
class Proposal:
    """Patches, and the search that suits them: its items are the patches that are *not* applied.

    ``search`` makes a fresh search each time it is called; all of them behave alike. ``again`` asks for the same step
    once more after patches were applied, because something else stands there then. With a ``base``, a patch that is
    always applied, candidates may be larger than the best case: they are asked about on the way to a smaller one, and
    only that is taken.
    """

    patches: tuple[Patch, ...]
    search: Callable[[], Search]
    again: bool = False
    base: Patch | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One row of the table. ``propose(view, step)`` gives the proposal of a step, None after the last step.

    A ``coarse`` pass takes big steps while the case is large. It runs once, and again only where other passes have
    removed a quarter of the nodes since; the fixpoint that makes a result 1-minimal is that of the other passes.

    A ``late`` pass replaces what no pass can remove. It runs where the others have come to their end.
    """

    name: str
    summary: str
    propose: Callable[[GraphView, int], Proposal | None]
    coarse: bool = False
    late: bool = False


def each(patches: tuple[Patch, ...]) -> Proposal:
    """Patches of which nothing is known: all of them, then any."""
    return Proposal(patches, lambda: dense(len(patches)))
