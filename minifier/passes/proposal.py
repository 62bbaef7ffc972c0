"""What a pass proposes, and how a pass is declared.

A proposal starts a search: a generator that yields choices and is sent, for each, whether the candidate made of it
still fails in the same way. A search is a deterministic function of these answers, so it can be replayed with assumed
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ...store.document.case import Case
from ..candidate.graph_view import GraphView, Storages
from ..candidate.lint import flaw
from ..candidate.patch import Patch, apply, merge
from .candidates import Candidates, Canonicalize
from .searches import Items, Search, dense

#: Called with the name of a pass and its error.
Problem = Callable[[Exception, str], None]


class Stage(StrEnum):
    REMOVE = "remove"
    REPLACE = "replace"
    CANONICALIZE = "canonicalize"


class Choices(Protocol):
    """What `Pass.propose` returns: a `Proposal`, a `Walk`, or another search over candidates.

    ``again`` asks for the same step once more after a candidate was accepted, because something else stands there then.
    Candidates that ``may_grow`` are asked about even if they are larger than the best case.
    """

    @property
    def again(self) -> bool: ...

    @property
    def may_grow(self) -> bool: ...

    def start(self, problem: Problem) -> Generator[Any, bool, Any]: ...

    def candidate(self, view: GraphView, choice: Any) -> Case | None: ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """Patches, and the search that finds out which of them can be applied together.

    ``search`` makes a fresh search each time it is called; what it yields are the items that must stay, the patches of
    all others are applied. With a ``base``, a patch that is always applied, candidates may be larger than the best
    case: they are asked about on the way to a smaller one, and only that is accepted.
    """

    patches: tuple[Patch, ...]
    search: Callable[[], Search]
    again: bool = False
    base: Patch | None = None

    @property
    def may_grow(self) -> bool:
        return self.base is not None

    def start(self, problem: Problem) -> Generator[Items, bool, Items]:
        return self.search()

    def applied(self, choice: Items) -> tuple[Patch, ...]:
        """The patches that a choice applies."""
        kept = set(choice)
        base = () if self.base is None else (self.base,)
        return (*base, *(p for i, p in enumerate(self.patches) if i not in kept))

    def candidate(self, view: GraphView, choice: Items) -> Case | None:
        return apply(view, merge(self.applied(choice)))


@dataclass(frozen=True, slots=True)
class Walk:
    """The candidates of one canonicalization pass, or of all of a ``group`` at once, as if every answer were yes."""

    case: Case
    storages: Storages
    group: tuple[Canonicalize, ...]
    again: bool = False
    may_grow: bool = True

    def start(self, problem: Problem) -> Candidates:
        if len(self.group) == 1:
            return _checked(self.group[0], self.case, self.storages, problem)
        return _at_once(self.group, self.case, self.storages, problem)

    def candidate(self, view: GraphView, choice: Case) -> Case:
        return choice


@dataclass(frozen=True, slots=True)
class Pass:
    """One row of the table. ``propose(view, step)`` gives the proposal of a step, None after the last step.

    A ``one_shot`` pass takes big steps while the case is large. It runs once, and again only where other passes have
    removed a quarter of the nodes since. The fixpoint that makes a result 1-minimal is that of the other passes.
    """

    name: str
    summary: str
    propose: Callable[[GraphView, int], Choices | None]
    stage: Stage = Stage.REMOVE
    one_shot: bool = False


def each(patches: tuple[Patch, ...]) -> Proposal:
    """Patches of which nothing is known: all of them, then any."""
    return Proposal(patches, lambda: dense(len(patches)))


def canonical(*group: Canonicalize, name: str = "", summary: str = "") -> Pass:
    """The row of a canonicalization pass, named and described by its function; of several, all of them at once."""

    def propose(view: GraphView, step: int) -> Walk | None:
        assert view.storages is not None
        return Walk(view.case, view.storages, group) if step == 0 else None

    return Pass(name or name_of(group[0]), summary or group[0].__doc__ or "", propose, Stage.CANONICALIZE)


def name_of(function: Canonicalize) -> str:
    """The name that a canonicalization pass has in logs and listings."""
    return function.__name__.replace("_", "-")


def _at_once(group: Sequence[Canonicalize], case: Case, storages: Storages, problem: Problem) -> Candidates:
    """What ``group`` would make of ``case`` if nothing mattered, where more than one of it has something to do."""
    plain, changed = case, 0
    for function in group:
        before = plain
        candidates = _checked(function, plain, storages, problem)
        try:
            next(candidates)
            while True:
                candidates.send(True)
        except StopIteration as end:
            plain = end.value
        changed += plain != before
    return plain if changed > 1 and (yield plain) else case


def _checked(function: Canonicalize, case: Case, storages: Storages, problem: Problem) -> Candidates:
    """The candidates of ``function`` that can be asked about. Whatever it does, what is returned was accepted."""
    name, best = name_of(function), case
    try:
        candidates = function(case, storages)
        candidate = next(candidates)
        while True:
            if candidate == best:
                problem(ValueError("it proposed no change"), name)
                same = True
            elif (wrong := flaw(candidate)) is not None:
                problem(ValueError(wrong), name)
                same = False
            else:
                same = yield candidate
            best = candidate if same else best
            candidate = candidates.send(same)
    except StopIteration as end:
        if end.value != best:
            problem(ValueError("what it ended with is not what was accepted last"), name)
    except Exception as exc:  # noqa: BLE001  an error in one pass is no reason to lose what the others can do
        problem(exc, name)
    return best
