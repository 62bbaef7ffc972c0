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
from ...store.text import count
from ..oracle.verdict import Outcome
from .features import MOST, Feature, Text, change
from .wording import Wording

#: The kind of the artifact.
ARTIFACT = "explanation"


@dataclass(frozen=True, slots=True)
class PassingVariant:
    """A candidate that passes: ``what`` is the `change`, ``difference`` has the lines that differ."""

    what: Text
    difference: Text


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answers about the result of ``reduction``.

    ``asked`` counts answers, ``seconds`` is wall time. ``complete`` is False where the budget ended it. ``tensors``
    names the tensors of the minimal case. ``shown`` of ``runs`` runs of the minimal case itself showed the failure;
    ``runs`` is 0 where it always did. ``unjudged`` says why nothing was tried.
    """

    features: Annotated[tuple[Feature, ...], Meta(max_length=MOST)]
    passing_variant: PassingVariant | None = None
    asked: int = 0
    seconds: float = 0.0
    complete: bool = True
    reduction: int = 0
    tensors: Annotated[tuple[Text, ...], Meta(max_length=MOST)] = ()
    shown: int = 0
    runs: int = 0
    unjudged: Text = ""

    @property
    def wording(self) -> Wording:
        """The words for the features."""
        return Wording(self.features, self.tensors)

    def summary(self) -> str:
        """In short: ``Needs float32 or float64 (float16 passes). Does not matter (as tested): values (zeros).``"""
        if self.unjudged:
            return self.unjudged
        words = self.wording
        parts = {
            "Needs {}.": "; ".join(words.needs()),
            "Passes with {}.": "; ".join(words.passes()),
            "Does not matter (as tested): {}.": ", ".join(words.free()),
            "Also fails with {}.": "; ".join(words.fails()),
        }
        return " ".join(sentence.format(text) for sentence, text in parts.items() if text)

    def sentences(self) -> list[str]:
        """A sentence for each feature that is not in the summary or in the passing variant, and how sure it all is."""
        found = self.wording.others("" if self.passing_variant is None else self.passing_variant.what)
        if self.runs and self.features:
            least = min((a.runs for f in self.features for a in f.answers if a.outcome is Outcome.PASS), default=0)
            each = f" Each variant that passes did so in all of its {least} runs or more." if least else ""
            found.append(f"It fails in {self.shown} of {count(self.runs, 'run')}.{each}")
        if not self.complete:
            found.append(f"The budget ended after {count(self.asked, 'variant')}: what is not named was not tested.")
        return found

    def told(self) -> tuple[str, ...]:
        """The summary and the sentences, without empty ones."""
        return tuple(filter(None, (self.summary(), *self.sentences())))

    def passes_with(self) -> str:
        """The change of the passing variant, fit to follow "passes with": ``size 16 in x.shape[1]``."""
        what = "" if self.passing_variant is None else self.passing_variant.what
        for feature in self.features:
            for answer in feature.answers:
                if not answer.on and change(feature.aspect, feature.name, feature.now, answer.value) == what:
                    return self.wording.phrase(feature, [answer.value])
        return what

    def to_json(self) -> Json:
        """A JSON object. The summary, the sentences and the claims are for readers; `from_json` makes them anew."""
        claimed = [{**codec.dump(feature), "claim": str(feature.claim)} for feature in self.features]
        words = {"summary": self.summary(), "sentences": self.sentences()}
        return {**codec.dump(self), "features": claimed, **words}

    @classmethod
    def from_json(cls, doc: Any) -> Explanation:
        """Inverse of `to_json`. Raises `StoreError` on anything else."""
        try:
            return codec.load(doc, cls)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"an explanation in the file cannot be read: {error!r:.200}") from error


def stored(index: Index, capture: int) -> Explanation | None:
    """Return the explanation of ``capture``, or None if it is missing or belongs to an earlier reduction."""
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
