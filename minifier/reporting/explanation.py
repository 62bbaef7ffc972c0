"""An explanation: what happens to a minimal case when one thing of it is changed, as data and in words.

The index keeps the queries and their answers. `fxminify.minifier.reporting.wording` makes the sentences from them. A
`PassingVariant` is the nearest candidate that passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from ...store import codec
from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.index import Index
from . import wording
from .features import MOST, Feature, Text, change

#: The kind of the artifact.
ARTIFACT = "explanation"


@dataclass(frozen=True, slots=True)
class PassingVariant:
    """A candidate that passes: ``what`` is the `change`, ``difference`` has the lines that differ."""

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
        """In short: ``Needs float32 or float64 (float16 passes). Does not matter (as tested): values, sizes.``"""
        needs, passes, free = (told(self.features) for told in (wording.needs, wording.passes, wording.free))
        parts = [f"Needs {'; '.join(needs)}."] if needs else []
        parts += [f"Passes with {'; '.join(passes)}."] if passes else []
        parts += [f"Does not matter (as tested): {', '.join(free)}."] if free else []
        return " ".join(parts)

    def sentences(self) -> list[str]:
        """What else was answered, a sentence for each feature that is not in the summary or in the passing variant."""
        return wording.others(self.features, "" if self.passing_variant is None else self.passing_variant.what)

    def told(self) -> tuple[str, ...]:
        """The summary and the sentences, those of them that say something."""
        return tuple(filter(None, (self.summary(), *self.sentences())))

    def passes_with(self) -> str:
        """What the passing variant has, fit to follow "passes with": ``size 16 in x.shape[1]``."""
        what = "" if self.passing_variant is None else self.passing_variant.what
        for feature in self.features:
            for answer in feature.answers:
                if change(feature.aspect, feature.name, feature.now, answer.value) == what:
                    return wording.phrase(feature, [answer.value], self.features)
        return what

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
