"""Proposals of passes, and the declaration of a pass.

A proposal starts a search: a generator that yields choices, and is sent whether the candidate of each choice still
fails in the same way. A search is a deterministic function of these answers, so it can be replayed with assumed ones.
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

#: Called with an error of a pass and the name of the pass.
Problem = Callable[[Exception, str], None]


class Stage(StrEnum):
    """A part of a reduction, and of the table of passes. They run in this order."""

    REMOVE = "remove"  #: the case gets smaller
    REPLACE = "replace"  #: something plainer replaces what cannot be removed
    CANONICALIZE = "canonicalize"  #: inputs, sizes, types and settings are made plain


class Choices(Protocol):
    """The return type of `Pass.propose`: a `Proposal`, a `Walk`, or another search over candidates.

    If ``again`` is true, the same step is proposed once more after a candidate was accepted, for the new case. If
    ``may_grow`` is true, candidates are tested even if they are larger than the best case.
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

    Each call of ``search`` returns a new search. It yields the items that stay; the patches of all other items are
    applied. ``base`` is a patch that is always applied. With a ``base``, candidates may be larger than the best case:
    they are tested on the way to a smaller one, and only the smaller one is accepted.
    """

    patches: tuple[Patch, ...]
    search: Callable[[], Search]
    again: bool = False
    base: Patch | None = None

    @property
    def may_grow(self) -> bool:
        """Whether candidates are tested even if they are larger than the best case."""
        return self.base is not None

    def start(self, problem: Problem) -> Generator[Items, bool, Items]:
        """A new search: it yields choices, and is sent whether the candidate of each still fails in the same way."""
        return self.search()

    def applied(self, choice: Items) -> tuple[Patch, ...]:
        """The patches that a choice applies."""
        kept = set(choice)
        base = () if self.base is None else (self.base,)
        return (*base, *(p for i, p in enumerate(self.patches) if i not in kept))

    def candidate(self, view: GraphView, choice: Items) -> Case | None:
        """The case that a choice stands for; None if no compute node, or nothing to return, would be left."""
        return apply(view, merge(self.applied(choice)))


@dataclass(frozen=True, slots=True)
class Walk:
    """The candidates of one canonicalization function; for several functions, one candidate with all their changes."""

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
    """A row of the table of passes.

    ``propose(view, step)`` returns the proposal of a step, or None after the last step. A ``one_shot`` pass takes big
    steps while the case is large. It runs once, and again only if other passes removed a quarter of the nodes since.
    The other passes run to a fixpoint, which makes the result 1-minimal. A ``late`` pass runs again after the last
    stage, because that stage makes different values equal.
    """

    name: str
    summary: str
    propose: Callable[[GraphView, int], Choices | None]
    stage: Stage = Stage.REMOVE
    one_shot: bool = False
    late: bool = False


def each(patches: tuple[Patch, ...], stays: Items = ()) -> Proposal:
    """A proposal of ``patches`` without prior knowledge: all at once but for those in ``stays``, then a sweep."""
    return Proposal(patches, lambda: dense(len(patches), stays))


def refused(view: GraphView, patches: Sequence[Patch]) -> Items:
    """The indices of few ``patches`` without which eager accepts all others at once."""
    chosen: list[int] = []

    def add(items: list[int]) -> None:
        case = apply(view, merge(patches[i] for i in sorted({*chosen, *items})))
        if case is not None and all(view.valid([case])):
            chosen.extend(items)
        elif len(items) > 1:
            add(items[: len(items) // 2])
            add(items[len(items) // 2 :])

    for _ in range(2):  # what was refused may be possible without what was chosen after it
        if left := [i for i in range(len(patches)) if i not in chosen]:
            add(left)
    return tuple(i for i in range(len(patches)) if i not in chosen)


def canonical(*group: Canonicalize, name: str = "", summary: str = "") -> Pass:
    """The pass of a canonicalization function, with its name and docstring, or of several functions at once."""

    def propose(view: GraphView, step: int) -> Walk | None:
        assert view.storages is not None
        return Walk(view.case, view.storages, group) if step == 0 else None

    return Pass(name or name_of(group[0]), summary or group[0].__doc__ or "", propose, Stage.CANONICALIZE)


def name_of(function: Canonicalize) -> str:
    """The name that a canonicalization pass has in logs and listings."""
    return function.__name__.replace("_", "-")


def _at_once(group: Sequence[Canonicalize], case: Case, storages: Storages, problem: Problem) -> Candidates:
    """Try ``case`` with the changes of all of ``group`` as a single candidate, if at least two of them change it."""
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
    """The valid candidates of ``function``; returns the last accepted one. Errors go to ``problem``."""
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
