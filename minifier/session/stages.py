"""The stages of a minification: ``Captured → Replayed → Reduced → Drafted → Verified``.

Each arrow is a function from one value to the next: `replays`, `attempt.reduce`, `scripts.draft` and `scripts.store`. A
retry calls `attempt.reduce` again with another `Replayed`: a longer limit, an earlier step or another entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...store.document.case import Case
from ...store.failure import Failure, FailureKind
from ...store.index import State
from ...store.matching import FailureMatcher
from ..oracle.replay import Replay
from ..oracle.verdict import Verdict
from ..reducer.shrinker import ReductionResult
from ..reporting.emit import Draft
from ..reporting.features import Feature
from .head_start import HeadStart
from .reduction import Reduction

#: The id of a reduction, and the number of one of its steps.
Step = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured case, its failure, and the matcher of failures that count as the same one.

    ``begun`` is the step that ``case`` comes from, None for the case that was captured.
    """

    case: Case
    failure: Failure
    matcher: FailureMatcher
    begun: Step | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A case that is known to fail through ``entry``, which may be the script itself.

    * ``shown`` is the result of the replays: of ``case``, or of the part of it that the ``head_start`` found.
    * ``begun`` is the step that ``case`` comes from, None for the case that was captured.
    * ``timeout_factor`` is for a hang: how many times as long its candidates get. None means as long as usual; then
      the result must still prove to last `hang_margin.MARGIN` times as long.
    """

    case: Case
    shown: Replay
    entry: str
    head_start: HeadStart = field(default_factory=HeadStart)
    begun: Step | None = None
    timeout_factor: float | None = None

    @property
    def failure(self) -> Failure:
        """The failure as the replays showed it first."""
        return self.shown.failures[0]

    @property
    def hangs(self) -> bool:
        return any(failure.kind is FailureKind.HANG for failure in self.shown.failures)

    @property
    def seconds(self) -> float:
        """Seconds that a replay took."""
        return self.shown.entries[self.shown.entry].seconds

    @property
    def script_matcher(self) -> FailureMatcher:
        """Find in what a script showed the captured failure, as the replays showed it."""
        return replace(self.shown.matcher, strict=False)


@dataclass(frozen=True, slots=True)
class Reduced:
    """The smallest case that a reduction found, and the reduction, which can still go back."""

    replayed: Replayed
    reduction: Reduction
    found: ReductionResult

    @property
    def case(self) -> Case:
        return self.found.case

    @property
    def complete(self) -> bool:
        """Whether the search came to its end."""
        return self.found.complete


@dataclass(frozen=True, slots=True)
class Drafted:
    """The script of a reduced case, which was run and is not stored yet.

    * ``case`` has all parts that the script needs.
    * ``seen`` is the verdict of a fresh worker about the case.
    * ``draft`` is missing (None) if no script can be printed; ``reason`` says why.
    """

    reduced: Reduced
    case: Case
    seen: Verdict
    draft: Draft | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """A stored script, or the reason why no script could be printed.

    * ``share``: the share of its runs that showed the failure. If that is not 0, the ``state`` is `State.VERIFIED`.
    * ``shown_fresh``: the case failed in a fresh worker. ``failure`` is the failure there.
    * ``printable``: a script could be printed. Without one no script can disagree with the workers.
    * ``variables`` are the environment variables that were asked about.
    """

    reduced: Reduced
    case: Case
    state: State
    reason: str = ""
    share: float = 0.0
    shown_fresh: bool = False
    failure: Failure | None = None
    printable: bool = True
    variables: tuple[Feature, ...] = ()
