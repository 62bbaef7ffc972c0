"""An explanation: what was asked about a minimal case, one thing changed at a time, and what the answers say in words.

All that is kept are the questions and their answers; the words are made from them, so they say no more than what was
asked: *fails at every size tried* is never *fails at every size*. A `Feature` is one thing that can be changed (a
size, a dtype, the values, an argument, a setting), a `Twin` the nearest candidate that passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.index import Index
from ..oracle.verdict import Outcome

#: Under this name the explanation is kept beside the scripts of a capture.
ARTIFACT = "explanation"
#: The most subjects and answers that a stored explanation may have, and the longest text in it.
MOST, LONGEST = 1000, 20_000


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
    """What became of the case with one thing changed to ``value``. ``outcome`` is a `Outcome`."""

    value: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing of the minimal case, what it is now, and what else was tried."""

    aspect: Aspect
    name: str
    now: str
    answers: tuple[ProbeAnswer, ...] = ()

    def that(self, *outcomes: Outcome) -> list[str]:
        """The values with one of these outcomes; what it is now fails."""
        own = [self.now] if Outcome.SAME in outcomes else []
        found = [*own, *(a.value for a in self.answers if a.outcome in outcomes)]
        numbers = self.aspect is Aspect.SIZE
        return sorted(dict.fromkeys(found), key=int) if numbers else list(dict.fromkeys(found))

    @property
    def free(self) -> bool | None:
        """Whether it may be anything that was tried; None where that cannot be said."""
        if self.that(Outcome.PASS) or self.that(Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY):
            return False
        return True if len(self.that(Outcome.SAME)) > 1 else None

    @property
    def matters(self) -> bool:
        """Whether another value passes; one that fails in another way says little. An operator goes without saying."""
        return bool(self.that(Outcome.PASS)) and self.aspect is not Aspect.OPERATOR

    def needed(self) -> str:
        """What of it the failure takes, as far as tried; nothing where no few words say it."""
        if not self.matters:
            return ""
        if self.aspect is Aspect.SIZE:
            return self._size()
        fails = self.that(Outcome.SAME)
        if self.aspect in (Aspect.DTYPE, Aspect.SETTING):
            others = self.that(Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY)
            return f"{self.name} = {_any(fails)}" + (" only" if len(fails) == 1 and not others else "")
        return ""

    def sentence(self) -> str:
        """All that was asked about it."""
        fails, passes = self.that(Outcome.SAME), self.that(Outcome.PASS)
        others = self.that(Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY)
        if self.free is True:
            text = f"{self.name}: fails with all that was tried ({_list(fails)})"
        else:
            said = self.needed() if self.aspect is Aspect.SIZE else ""
            pattern = f"{said.removeprefix(self.name).strip()}, as far as tried; " if said else ""
            text = f"{self.name}: {pattern}fails with {_list(fails)}"
            text += f"; passes with {_list(passes)}" if passes else ""
            text += f"; fails in another way with {_list(others)}" if others else ""
        if invalid := self.that(Outcome.INVALID):
            text += f"; eager refuses {_list(invalid)}"
        if unknown := self.that(Outcome.INFRA):
            text += f"; no answer for {_list(unknown)}"
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
class Twin:
    """A candidate that passes: ``what`` differs, in words, and the lines that do."""

    what: str
    difference: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """``asked`` answers it has, ``seconds`` is wall time. Not ``complete``: its budget ended it. It is about the result
    of ``reduction``."""

    subjects: tuple[Feature, ...]
    twin: Twin | None = None
    asked: int = 0
    seconds: float = 0.0
    complete: bool = True
    reduction: int = 0

    def summary(self) -> str:
        """In short: ``It takes x.shape[1] >= 17; dtype of x = float32 only. Free: values. As far as tried.``"""
        needed = [text for subject in self.subjects if (text := subject.needed())]
        vague = [subject.name for subject in self.subjects if subject.matters and not subject.needed()]
        free = [subject.name for subject in self.subjects if subject.free]
        parts = [f"It takes {'; '.join(needed)}."] if needed else []
        parts += [f"{'Also important' if needed else 'Important'}: {', '.join(vague)}."] if vague else []
        parts += [f"Free: {', '.join(free)}."] if free else []
        return " ".join([*parts, "As far as tried."]) if parts else ""

    def sentences(self) -> list[str]:
        """A sentence for each subject of which there is something to say, those that matter first."""
        said = [subject for subject in self.subjects if subject.free is not None]
        return [subject.sentence() for subject in sorted(said, key=lambda s: s.free is True)]

    def to_json(self) -> Json:
        return {**asdict(self), "summary": self.summary(), "sentences": self.sentences()}

    @classmethod
    def from_json(cls, doc: Any) -> Explanation:
        """Inverse of `to_json`. Raises `StoreError` on anything else."""
        try:
            twin = doc["twin"]
            return cls(
                tuple(_subject(item) for item in _items(doc["subjects"])),
                None if twin is None else Twin(_text(twin["what"]), _text(twin["difference"])),
                int(doc["asked"]),
                float(doc["seconds"]),
                doc["complete"] is True,
                int(doc["reduction"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise StoreError(f"an explanation in the file cannot be read: {error!r:.200}") from error


def stored(index: Index, capture: int) -> Explanation | None:
    """The explanation kept for ``capture``, if there is one of the reduction that its best case is from."""
    kept = index.artifacts.get(capture, ARTIFACT)
    if kept is None:
        return None
    try:
        found, last = Explanation.from_json(kept), index.reductions.last(capture)
    except StoreError:
        return None  # of another version: what else there is to show of a capture does not depend on it
    return found if last is not None and found.reduction == last.id else None


def keep(index: Index, capture: int, found: Explanation) -> None:
    index.artifacts.save(capture, ARTIFACT, found.to_json())


def _subject(doc: Json) -> Feature:
    aspect = Aspect(doc["aspect"])
    answers = tuple(ProbeAnswer(_text(a["value"]), Outcome(a["outcome"]).value) for a in _items(doc["answers"]))
    subject = Feature(aspect, _text(doc["name"]), _text(doc["now"]), answers)
    if aspect is Aspect.SIZE:
        for number in (subject.now, *(a.value for a in answers)):
            if not (number.isascii() and number.isdigit() and len(number) < 19):
                raise ValueError(f"{number!r:.40} is no size")
    return subject


def _items(doc: object) -> list[Json]:
    if type(doc) is not list or len(doc) > MOST:
        raise ValueError("a list is missing, or is too long")
    return doc


def _text(doc: object) -> str:
    if type(doc) is not str or len(doc) > LONGEST:
        raise ValueError("a text is missing, or is too long")
    return doc


def _list(values: Iterable[str]) -> str:
    return ", ".join(values)


def _any(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
