"""The standing of a case under a backend: its last result, since when, and which versions changed with it.

Retests are sorted by the version of torch, then by time, because a retest with an older torch says nothing about a
newer one. A retest that could not run is ignored. The capture itself counts as the first retest under its own backend,
with a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...store.index import CaptureInfo, Index, Retest, RetestResult
from ...store.versions import order

#: The id of a retest that is not stored; it sorts as the latest.
UNRECORDED = 1 << 62
#: The result of a case that was not minified. It is never stored.
NOT_MINIFIED = "not minified"


class Expect(StrEnum):
    """The expected result of a retest. ``KNOWN``: no result that is worse than the earlier ones."""

    KNOWN = "known"
    FIXED = "fixed"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Standing:
    """The last result, the retest ``since`` which it holds, and the last retest ``before`` that with another result."""

    result: RetestResult
    since: Retest
    before: Retest | None
    captured: str

    def changed(self) -> dict[str, tuple[str, str]]:
        """Packages whose version changed together with the result: old version and new."""
        if self.before is None:
            return {}
        old, new = self.before.versions, self.since.versions
        return {name: (old[name], new[name]) for name in sorted(old) if name in new and old[name] != new[name]}

    def text(self) -> str:
        """``fixed in torch 2.14.0 (failed with 2.13.0), first seen 2026-10-01``, for a person."""
        changed = self.changed()
        names = sorted(changed, key=lambda name: name != "torch")[:3]
        day = self.since.at[:10]
        if self.before is None:  # only under another backend than the capture's
            phrase = "passes" if self.result is RetestResult.FIXED else _PHRASES[self.result]
            found = f"{phrase} since {day}{_with(self.since.versions)}"
        elif names:
            now = ", ".join(f"{name} {changed[name][1]}" for name in names)
            then = ", ".join(changed[name][0] for name in names)
            found = f"{_PHRASES[self.result]} in {now} ({_BEFORE[self.before.result]} with {then})"
        else:
            before = f"it {_BEFORE[self.before.result]} with the same versions"
            found = f"{_PHRASES[self.result]} since {day}{_with(self.since.versions)}; {before}"
        return f"{found}, first seen {self.captured[:10]}"


_PHRASES = {
    RetestResult.FAILING: "failing",
    RetestResult.FIXED: "fixed",
    RetestResult.CHANGED: "another failure",
    RetestResult.CANNOT_RUN: "cannot run",
}
_BEFORE = {
    RetestResult.FAILING: "failed",
    RetestResult.FIXED: "was fixed",
    RetestResult.CHANGED: "showed another failure",
    RetestResult.CANNOT_RUN: "could not run",
}


def standing(capture: CaptureInfo, backend: str, retests: Iterable[Retest], *, torch: str = "") -> Standing | None:
    """The standing of ``capture`` under ``backend``, from retests with torch up to version ``torch`` (empty: all)."""
    rows = history(capture, backend, retests, torch=torch)
    if not rows:
        return None
    since, before = rows[-1], None
    for row in reversed(rows):
        if row.result is not since.result:
            before = row
            break
        since = row
    return Standing(since.result, since, before, capture.created)


def retested(index: Index, capture: CaptureInfo) -> list[str]:
    """The standing of ``capture`` in words, one line for each backend."""
    rows = index.retests.find([capture.id])
    places = [standing(capture, name, rows) for name in dict.fromkeys(row.backend for row in rows)]
    return [f"{where.since.backend}: {where.text()}" for where in places if where is not None]


def last_results(index: Index, captures: Iterable[CaptureInfo]) -> dict[int, Standing]:
    """The standing under its own backend of each of ``captures`` that was retested there, by its id."""
    by_id = {capture.id: capture for capture in captures}
    rows = index.retests.find(list(by_id)) if by_id else []
    own = {row.capture for row in rows if row.capture in by_id and row.backend == by_id[row.capture].backend}
    found = {id: standing(by_id[id], by_id[id].backend, rows) for id in sorted(own)}
    return {id: where for id, where in found.items() if where is not None}


def matrix(index: Index, ids: Sequence[int] = ()) -> dict[str, Any]:
    """The last result of each case for each backend and version of torch, as data: columns, and a row for each case."""
    captures = index.captures.find(ids)
    retests = index.retests.find([c.id for c in captures] if ids else [])
    cells = {(r.capture, r.backend, r.versions.get("torch", "")): r for r in retests}
    columns = sorted({(b, v) for _, b, v in cells}, key=lambda c: (c[0], order(c[1]), c[1]))
    rows = []
    for capture in captures:
        found = standing(capture, capture.backend, retests) if any(r.capture == capture.id for r in retests) else None
        results = [cells.get((capture.id, *column)) for column in columns]
        if not any(results):
            continue
        rows.append({
            "id": capture.id, "signature": capture.signature, "kind": capture.kind,
            "standing": found.text() if found is not None else "",
            "results": [None if r is None else {"result": r.result.value, "at": r.at} for r in results],
        })  # fmt: skip
    return {"columns": [{"backend": b, "torch": v} for b, v in columns], "rows": rows}


def history(capture: CaptureInfo, backend: str, retests: Iterable[Retest], *, torch: str = "") -> list[Retest]:
    """The retests of a case under a backend that could run, sorted by the version of torch."""
    rows = [row for row in retests if row.capture == capture.id and row.backend == backend]
    rows = [row for row in rows if row.result is not RetestResult.CANNOT_RUN]
    if backend == capture.backend:
        rows.insert(0, _captured(capture))
    if torch:
        rows = [row for row in rows if order(row.versions.get("torch", "")) <= order(torch)]
    return sorted(rows, key=lambda row: (order(row.versions.get("torch", "")), row.id))


def as_expected(found: Retest, before: Sequence[Retest], own: bool, expect: Expect) -> bool:
    """Whether ``found`` is as expected after the retests ``before`` it (from `history`).

    ``own`` is true for the backend of the capture. There the failure is known from the start. Under another backend it
    is known from its first retest on.
    """
    if expect is Expect.FIXED:
        return found.result is RetestResult.FIXED
    if expect is Expect.FAILING:
        return found.result is RetestResult.FAILING
    if found.result is RetestResult.FIXED:
        return True
    if any(row.result is RetestResult.FIXED for row in before):
        return False
    if found.result is RetestResult.FAILING or not (before or own):
        return True
    return any(row.result is RetestResult.CHANGED and row.signature == found.signature for row in before)


def _captured(capture: CaptureInfo) -> Retest:
    versions = {name: str(capture.provenance[name]) for name in ("torch", "python") if capture.provenance.get(name)}
    return Retest(
        id=0, capture=capture.id, backend=capture.backend, result=RetestResult.FAILING, message="",
        signature=capture.signature, shown=1, runs=1, seconds=0.0, versions=versions, at=capture.created,
    )  # fmt: skip


def _with(versions: Mapping[str, str]) -> str:
    return f" with torch {versions['torch']}" if "torch" in versions else ""
