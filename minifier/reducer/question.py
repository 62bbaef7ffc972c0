"""A running search over the patches of one proposal: what it asks about now, and what it would ask later.

Searches are deterministic functions of the answers, so one that runs can be replayed with assumed answers; that is
how the engine asks ahead. Making a candidate never raises: an error in a patch is reported and there is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.document.case import Case
from ..candidate.graph_view import GraphView
from ..candidate.patch import apply, merge
from ..passes import Proposal
from ..passes.searches import Items


class Question:
    """A running search: the candidate it asks about, and what it would ask after assumed answers."""

    def __init__(self, view: GraphView, name: str, proposal: Proposal) -> None:
        self.view = view
        #: The pass that asks.
        self.name = name
        self._base = () if proposal.base is None else (proposal.base,)
        #: Whether candidates may be larger than the best case.
        self.grows = proposal.base is not None
        self._patches = proposal.patches
        #: Whether the step is done once more where patches were applied.
        self.again = proposal.again
        self._start = proposal.search
        self._answers: list[bool] = []
        self._search = proposal.search()
        self.kept: Items | None = next(self._search, None)

    def answer(self, same: bool) -> None:
        self._answers.append(same)
        try:
            self.kept = self._search.send(same)
        except StopIteration:
            self.kept = None

    def candidate(self, kept: Items, problem: Callable[[Exception, str], None] | None = None) -> Case | None:
        """The case in which exactly the patches in ``kept`` are not applied. ``problem`` is told of an error."""
        stays = set(kept)
        patches = [p for i, p in enumerate(self._patches) if i not in stays]
        try:
            return apply(self.view, merge((*self._base, *patches)))
        except Exception as exc:  # noqa: BLE001  as above: the patch is at fault, not the reduction
            if problem is not None:
                problem(exc, self.name)
            return None

    def likely(self, assumed: tuple[bool, ...]) -> bool:
        """The answer to expect: a search is taken to go well until it does not."""
        said = (*self._answers, *assumed)
        return not self.again and 2 * sum(said) >= len(said)

    def after(self, assumed: tuple[bool, ...]) -> Items | None:
        """What would be asked if the waiting question and those after it were answered like this."""
        if not assumed:
            return self.kept
        search = self._start()
        kept = next(search, None)
        for same in (*self._answers, *assumed):
            try:
                kept = search.send(same)
            except StopIteration:
                return None
        return kept
