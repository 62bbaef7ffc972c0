"""The result of the search for a cause: the part of a compiler in which a failure arises, and ways around it.

`fxminify.minifier.reporting.find_cause` searches. Reports read the answer here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ...store import codec
from ...store.document.case import Case, Json, to_json
from ...store.errors import StoreError
from ...store.index import Index
from ...store.text import count

#: The kind of the artifact.
ARTIFACT = "cause"
#: Results of a switch.
CURES, STAYS, OTHER, CANNOT = "passes", "same failure", "another failure", "cannot run"
#: What the captured graph does with a way around.
HELPS = "passes"
#: In a key, between the digest of the case and the version of torch.
_WITH = " torch "


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """The minimal case with the switches of some ``parts`` turned.

    ``result`` is ``CURES``, ``STAYS``, ``OTHER`` or ``CANNOT``.
    """

    parts: tuple[str, ...]
    lines: tuple[str, ...]
    result: str
    message: str = ""

    @property
    def part(self) -> str:
        return " and ".join(self.parts)


@dataclass(frozen=True, slots=True)
class Twin:
    """The minimal case compiled in another way, ``change`` as an argument of `torch.compile`.

    ``result`` is ``CURES``, ``STAYS``, ``OTHER`` or ``CANNOT``.
    """

    change: str
    result: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class TriageJudgement:
    """The answers of the judges of PyTorch's triage about a result (`fxminify.backends.comparison.judges`)."""

    where: str
    assert_close: bool
    same: bool | None = None
    units: str | None = None
    eager_units: str | None = None

    def text(self) -> str:
        """A sentence: ``Judges of output 0: torch.testing.assert_close fails, ...``."""
        said = [f"torch.testing.assert_close {_passes(self.assert_close)}"]
        if self.same is not None:
            said.append(f"torch._dynamo.utils.same with a float64 reference {_passes(self.same)}")
        if self.units is not None and self.eager_units is not None:
            said.append(f"the error is {self.units} units in the last place, and {self.eager_units} in eager")
        return f"Judges of {self.where}: {'; '.join(said)}."


def _passes(passes: bool) -> str:
    return "passes" if passes else "fails"


@dataclass(frozen=True, slots=True)
class Application:
    """The application of a pass or lowering with which the failure begins to show: ``number`` of ``count``, from 1.

    ``kind`` is one application of the subsystem in words. ``fails_with`` and ``passes_with`` are environment variables,
    ``NAME=value``. ``checked``: the script failed with the ones, and passed with the others.
    """

    subsystem: str
    number: int
    count: int
    name: str
    kind: str
    fails_with: tuple[str, ...]
    passes_with: tuple[str, ...]
    checked: bool = False


@dataclass(frozen=True, slots=True)
class WayAround:
    """``lines`` with which the minimal case passed in ``runs`` unused workers, and what the ``captured`` graph does."""

    lines: tuple[str, ...]
    runs: int
    captured: str


@dataclass(frozen=True, slots=True)
class Cause:
    """The answers, for the case and the torch in ``key``. ``stopped`` says why not all questions were asked."""

    key: str
    rows: tuple[SwitchRow, ...] = ()
    applications: tuple[Application, ...] = ()
    ways: tuple[WayAround, ...] = ()
    twins: tuple[Twin, ...] = ()
    judgements: tuple[TriageJudgement, ...] = ()
    queries: int = 0
    stopped: str = ""

    def to_json(self) -> Json:
        return codec.dump(self)

    @classmethod
    def from_json(cls, doc: Any) -> Cause:
        """Inverse of `to_json`. Raises `StoreError` on anything else."""
        try:
            return codec.load(doc, cls)
        except ValueError as error:
            raise StoreError(f"the cause in the file cannot be read: {error}") from error

    @property
    def torch(self) -> str:
        """The version of torch with which the questions were asked."""
        return self.key.partition(_WITH)[2]

    @property
    def cures(self) -> list[SwitchRow]:
        return [row for row in self.rows if row.result == CURES]

    @property
    def helping(self) -> list[WayAround]:
        """The ways around with which the captured graph passes, too."""
        return [way for way in self.ways if way.captured == HELPS]

    def fails_in(self) -> str:
        """Return the part whose switch has the smallest effect, and the applications that torch counts.

        A switch that the captured graph passes with, too, goes before one with which only the minimal case does.
        """
        helping = {way.lines for way in self.helping}
        cures = sorted(self.cures, key=lambda row: row.lines not in helping)
        parts = [row.part for row in cures[:1]]
        parts += [f"{a.kind} {a.name} (application {a.number} of {a.count})" for a in self.applications]
        return "; ".join(parts)

    def sentences(self) -> list[str]:
        """Return the sentences of a report: the part in which the failure arises, and each way around."""
        out = []
        stays = sum(row.result == STAYS for row in self.rows)
        if where := self.fails_in():
            out.append(f"Fails in: {where}.")
        elif stays:
            out.append(f"The failure stays with each of {count(stays, 'switch')} of the backend.")
        helping = self.helping
        out += [
            f"Works around: {'; '.join(way.lines)} (the minimal case passed {way.runs} of {way.runs} times, "
            f"the captured graph passes)."
            for way in helping
        ]
        if self.ways and not helping:
            out += [
                f"With {'; '.join(way.lines)} the minimal case passes; the captured graph {way.captured}."
                for way in self.ways
            ]
        results = ((STAYS, "fails"), (OTHER, "fails in another way"), (CURES, "passes"))
        others = [
            f"{verb} with {' and with '.join(changes)}"
            for result, verb in results
            if (changes := [twin.change for twin in self.twins if twin.result == result])
        ]
        out += [f"Compiled in another way it {', it '.join(others)}."] if others else []
        out += [judgement.text() for judgement in self.judgements if not judgement.assert_close or not judgement.same]
        return out + ([f"Not all was tried: {self.stopped}."] if self.stopped else [])


def key_of(case: Case, torch: str) -> str:
    """The key of the answers for ``case`` with a version of torch."""
    digest = hashlib.sha256(json.dumps(to_json(case), sort_keys=True).encode()).hexdigest()
    return f"{digest}{_WITH}{torch}"


def of_case(index: Index, id: int, case: Case) -> Cause | None:
    """The cause kept for capture ``id`` if it was found for ``case``, and not for an earlier one."""
    kept = found(index, id)
    return kept if kept is not None and kept.key == key_of(case, kept.torch) else None


def found(index: Index, id: int) -> Cause | None:
    """The cause kept for capture ``id``, if there is one."""
    doc = index.artifacts.get(id, ARTIFACT)
    return None if doc is None else Cause.from_json(doc)
