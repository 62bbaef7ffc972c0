"""`FailureMatcher`: finds in what a run showed the failure that is looked for.

It is made of examples: of the captured failure before the replays, of what the replays showed after them. What an
example does not know is not compared: a capture may lack what was written to file descriptor 2 and the stack of a
crash, and what was masked where it was captured may be anything here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .diagnosis import error_lines
from .failure import NOT_FINITE, ROUNDING, UNDEFINED, Failure, FailureKind
from .masking import mask
from .private_values import covers, here
from .scrubbing import masked_failure
from .signature import Match, Signature, lists_no_more, signature, told_after

#: The most words of each text that `Difference.words` quotes.
_QUOTED = 6


@dataclass(frozen=True, slots=True)
class Difference:
    """The first ``part`` in which a failure differs from the nearest example, and that part of both."""

    part: str
    known: str = ""
    seen: str = ""

    def words(self) -> str:
        """``another message: "lower sin" in the place of "lower relu"``: where the two texts begin to differ."""
        known, seen = self.known.split(), self.seen.split()
        at = next((i for i, pair in enumerate(zip(known, seen, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(known), len(seen)) if at is None else at
        quoted = [" ".join(words[at : at + _QUOTED]) for words in (seen, known)]
        if not any(quoted):
            return f"another {self.part}"
        mine, captured = (f'"{text}"' if text else "nothing" for text in quoted)
        return f"another {self.part}: {mine} in the place of {captured}"


@dataclass(frozen=True)
class FailureMatcher:
    """Compares failures with the ``examples`` as ``match`` says, or by a search for ``error_regex`` in their texts.

    ``strict``: the examples and what is compared come from runs of one kind. Then a failure may also say nothing after
    the words of its signature that no example says there.
    """

    examples: tuple[Failure, ...]
    match: Match = Match.EXACT
    error_regex: str | None = None
    strict: bool = False
    _known: tuple[tuple[Failure, Signature], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        masked = [masked_failure(example, here().mask) for example in self.examples]
        object.__setattr__(self, "_known", tuple((example, signature(example)) for example in masked))

    def find(self, failure: Failure) -> Failure | None:
        """Return the part of ``failure`` that is looked for: itself, or one of its further divergences; else None."""
        return next((each for each in failure.each() if self.difference(each) is None), None)

    def shows(self, failure: Failure) -> bool:
        """Return True if `find` finds something."""
        return self.find(failure) is not None

    def difference(self, failure: Failure) -> Difference | None:
        """Return the difference from the example that is most like ``failure``, None if it is like one of them."""
        if self.error_regex is not None:
            return None if re.search(self.error_regex, failure.text()) else Difference("text")
        if self._is_other_matter(failure):
            return Difference("cause")
        nearest = Difference("failure")
        for example, known in self._known:
            found = self._difference(example, known, failure)
            if found is None:
                return None
            nearest = found if nearest.part in ("failure", "kind", "phase", "type") else nearest
        return nearest

    def agrees_in_origin(self, failure: Failure) -> bool:
        """Return True if ``failure`` would be found by its origin, and by it alone."""
        looser = replace(self, match=Match.ORIGIN)
        return self.match is Match.EXACT and self.error_regex is None and looser.shows(failure) > self.shows(failure)

    def _difference(self, example: Failure, known: Signature, failure: Failure) -> Difference | None:
        seen = signature(failure)
        seen = replace(
            seen,
            diagnostics=self._diagnostics(example, known, seen, failure),
            origin=seen.origin if known.origin or known.kind != FailureKind.CRASH else "",
        )
        for part in ("message", "diagnostics"):
            if covers(getattr(known, part), getattr(seen, part)):
                seen = replace(seen, **{part: getattr(known, part)})
        if (differs := known.difference(seen, self.match)) is not None:
            return Difference(differs, getattr(known, differs), getattr(seen, differs))
        if self.strict and self.match is Match.EXACT:
            said, more = told_after(example), told_after(failure)
            if not more <= said and not all(any(lists_no_more(a, b) for a in said) for b in more - said):
                return Difference("message", "\n".join(sorted(said - more)), "\n".join(sorted(more - said)))
        return None

    def _diagnostics(self, example: Failure, known: Signature, seen: Signature, failure: Failure) -> str:
        """The diagnosis to compare: the known one if it stands among the errors that were printed, in any order, and
        where that need not be, because a program may write more meanwhile than its backend and the message tells."""
        if not self.strict and not (known.diagnostics and (example.is_generic() or example.kind is FailureKind.CRASH)):
            return known.diagnostics
        if known.diagnostics == seen.diagnostics or not (known.diagnostics and seen.diagnostics):
            return seen.diagnostics
        printed = (mask(line) for line, _ in error_lines(failure.diagnostics))
        return known.diagnostics if known.diagnostics in printed else seen.diagnostics

    def _is_other_matter(self, failure: Failure) -> bool:
        """Return True for wrong values of another failure although their signatures may agree: a backend
        that rounds shows that in every graph, and what it makes of eager's own 0 / 0 is another matter."""
        if failure.detail.get(ROUNDING) and not any(example.detail.get(ROUNDING) for example in self.examples):
            return True
        return failure.detail.get(UNDEFINED) is True and not any(map(_is_undefined, self.examples))


def known_from(failures: Iterable[Failure]) -> dict[Signature, Failure]:
    """Return an example for each signature of ``failures``. Those that tell most come first: of a crash the last words
    and the stack do not always get out."""
    out: dict[Signature, Failure] = {}
    for failure in failures:
        out.setdefault(signature(failure), failure)
    return dict(sorted(out.items(), key=lambda item: (not item[1].diagnostics, not item[1].frames)))


def _is_undefined(failure: Failure) -> bool:
    return failure.detail.get(UNDEFINED, failure.detail.get("class") in NOT_FINITE) is True
