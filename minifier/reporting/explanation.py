"""An explanation: what happens to a minimal case when one thing of it is changed, as data and in words.

The index keeps the queries and their answers. The sentences are made from them and claim no more than was tried:
*fails at every size tried*, never *fails at every size*. A `Feature` is one thing that can be changed, such as a size
or a dtype. A `PassingVariant` is the nearest candidate that passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from ...store import codec
from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.index import Index
from ..oracle.verdict import Outcome

#: The kind of the artifact.
ARTIFACT = "explanation"
#: The most features and answers that a stored explanation may have, and the longest text in it.
MOST, LONGEST = 1000, 20_000
Text = Annotated[str, Meta(max_length=LONGEST)]
#: The case fails, but in another way.
_OTHERWISE = (Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY)


class Aspect(StrEnum):
    SIZE = "size"
    DTYPE = "dtype"
    VALUES = "values"
    ARGUMENT = "argument"
    SETTING = "setting"
    LAYOUT = "layout"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What the oracle said of the case with one thing changed to ``value``."""

    value: Text
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing of the minimal case, what it is now, and what else was tried.

    Raises `ValueError` where the value of a size is no number.
    """

    aspect: Aspect
    name: Text
    now: Text
    answers: Annotated[tuple[ProbeAnswer, ...], Meta(max_length=MOST)] = ()

    def __post_init__(self) -> None:
        for number in (self.now, *(a.value for a in self.answers)) if self.aspect is Aspect.SIZE else ():
            if not (number.isascii() and number.isdigit() and len(number) < 19):
                raise ValueError(f"{number!r:.40} is no size")

    def that(self, *outcomes: Outcome) -> list[str]:
        """The values with one of these outcomes. The value of the minimal case itself has the outcome SAME."""
        own = [self.now] if Outcome.SAME in outcomes else []
        found = [*own, *(a.value for a in self.answers if a.outcome in outcomes)]
        numbers = self.aspect is Aspect.SIZE
        return sorted(dict.fromkeys(found), key=int) if numbers else list(dict.fromkeys(found))

    @property
    def free(self) -> bool | None:
        """Whether the case fails with every value that was tried. None where that is not known."""
        if self.that(Outcome.PASS) or self.that(*_OTHERWISE):
            return False
        return True if len(self.that(Outcome.SAME)) > 1 else None

    @property
    def matters(self) -> bool:
        """Whether the case passes with another value. Operators are left out: another operator nearly always passes."""
        return bool(self.that(Outcome.PASS)) and self.aspect is not Aspect.OPERATOR

    def needed(self) -> str:
        """The condition under which the case fails, such as ``x.shape[1] >= 17``. Empty where it has no short form."""
        if not self.matters:
            return ""
        if self.aspect is Aspect.SIZE:
            return self._size()
        fails = self.that(Outcome.SAME)
        if self.aspect in (Aspect.DTYPE, Aspect.SETTING):
            others = self.that(*_OTHERWISE)
            return f"{self.name} = {_any(fails)}" + (" only" if len(fails) == 1 and not others else "")
        return ""

    def sentence(self) -> str:
        """Every value that was tried, by outcome."""
        fails, passes = self.that(Outcome.SAME), self.that(Outcome.PASS)
        others = self.that(*_OTHERWISE)
        text = f"{self.name}: fails with {', '.join(fails)}"
        text += f"; passes with {', '.join(passes)}" if passes else ""
        text += f"; fails in another way with {', '.join(others)}" if others else ""
        if invalid := self.that(Outcome.INVALID):
            text += f"; eager refuses {', '.join(invalid)}"
        if unknown := self.that(Outcome.INFRA):
            text += f"; no answer for {', '.join(unknown)}"
        return text

    def _size(self) -> str:
        fails = [int(v) for v in self.that(Outcome.SAME)]
        passes = [int(v) for v in self.that(Outcome.PASS)]
        if len(fails) == 1:
            between = min(passes) < fails[0] < max(passes)
            return f"{self.name} = {fails[0]} only" if between else ""
        if max(passes) < min(fails):
            return f"{self.name} >= {min(fails)}" if max(passes) == min(fails) - 1 else f"{self.name} > {max(passes)}"
        if min(passes) > max(fails):
            return f"{self.name} <= {max(fails)}" if min(passes) == max(fails) + 1 else f"{self.name} < {min(passes)}"
        for divisor in (2, 3, 4, 8, 16, 32, 64):
            multiples = {f % divisor == 0 for f in fails}
            if len(passes) > 1 and len(multiples) == 1 and {p % divisor == 0 for p in passes} == {not min(multiples)}:
                return f"{self.name} {'' if min(multiples) else 'not '}a multiple of {divisor}"
        return ""


@dataclass(frozen=True, slots=True)
class PassingVariant:
    """A candidate that passes: ``what`` names the change, ``difference`` has the lines that differ."""

    what: Text
    difference: Text


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about the result of ``reduction``.

    ``asked`` counts answers, ``seconds`` is wall time. ``complete`` is False where the budget ended it.
    """

    features: Annotated[tuple[Feature, ...], Meta(max_length=MOST)]
    passing_variant: PassingVariant | None = None
    asked: int = 0
    seconds: float = 0.0
    complete: bool = True
    reduction: int = 0

    def summary(self) -> str:
        """In short: ``Needs x.shape[1] >= 17; dtype of x = float32 only. Does not matter (as tested): values.``"""
        needed = [text for feature in self.features if (text := feature.needed())]
        vague = [feature.name for feature in self.features if feature.matters and not feature.needed()]
        free = [feature.name for feature in self.features if feature.free]
        parts = [f"Needs {'; '.join(needed)}."] if needed else []
        parts += [f"{'Also matters' if needed else 'Matters'}: {', '.join(vague)}."] if vague else []
        parts += [f"Does not matter (as tested): {', '.join(free)}."] if free else []
        return " ".join(parts)

    def sentences(self) -> list[str]:
        """A sentence for each feature that does not fail with all that was tried: the evidence of the summary."""
        return [feature.sentence() for feature in self.features if feature.free is False]

    def to_json(self) -> Json:
        """A JSON object. The summary and the sentences are for readers; `from_json` makes them anew."""
        return {**codec.dump(self), "summary": self.summary(), "sentences": self.sentences()}

    @classmethod
    def from_json(cls, doc: Any) -> Explanation:
        """Inverse of `to_json`. Raises `StoreError` on anything else."""
        try:
            return codec.load(doc, cls)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"an explanation in the file cannot be read: {error!r:.200}") from error


def stored(index: Index, capture: int) -> Explanation | None:
    """The explanation kept for ``capture``. None where there is none, or one of an earlier reduction."""
    kept = index.artifacts.get(capture, ARTIFACT)
    if kept is None:
        return None
    try:
        found, last = Explanation.from_json(kept), index.reductions.last(capture)
    except StoreError:
        return None  # another version wrote it: everything else about the capture can still be shown
    return found if last is not None and found.reduction == last.id else None


def keep(index: Index, capture: int, found: Explanation) -> None:
    index.artifacts.save(capture, ARTIFACT, found.to_json())


def _any(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
