"""The retests of a script by version: the first failing version of those that were tried, and the newest result.

A script may be newer than a retest, if the capture was minified again. So only retests since the script count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...repro_templates.context import Header
from ...store.index import CaptureInfo, Index, Retest, RetestResult
from ...store.versions import order


def tried(index: Index, capture: CaptureInfo, header: Header) -> list[Retest]:
    """The verification of the script of ``capture`` and its retests since, as `by_version` sorts them.

    ``header`` has the versions of the verification. Empty without a verified script.
    """
    script = index.repros.get(capture.id)
    if script is None or not script.verified:
        return []
    rows = [row for row in index.retests.find([capture.id]) if row.at >= script.created]
    return by_version(_verified(capture, header), [row for row in rows if row.backend == capture.backend])


def _verified(capture: CaptureInfo, header: Header) -> Retest:
    """Return the verification of the script as a retest."""
    name, _, version = header.backend.rpartition(" ")
    versions = {"torch": header.torch, "python": header.python} | ({name: version} if name else {})
    return Retest(0, capture.id, capture.backend, RetestResult.FAILING, "", "", 1, 1, 0.0, versions, "")


def by_version(first: Retest, retests: Iterable[Retest]) -> list[Retest]:
    """Return ``first`` and the retests that could run, sorted by the version of torch, then of other packages."""
    rows = [first, *(row for row in retests if row.result is not RetestResult.CANNOT_RUN)]
    names = _names(rows)
    return sorted(rows, key=lambda row: ([order(row.versions.get(name, "")) for name in names], row.id))


def _names(rows: Iterable[Retest]) -> list[str]:
    return sorted({name for row in rows for name in row.versions}, key=lambda name: (name != "torch", name))


def first_bad(rows: Sequence[Retest]) -> str:
    """Return the first failing version after a passing one in rows of `by_version`; empty if no version passed before.

    ``torch 2.13.0 of the versions tried (torch 2.12.0 passes)``. It is the last change from passing to failing.
    """
    found = ""
    for good, bad in pairwise(rows):
        if (good.result, bad.result) == (RetestResult.FIXED, RetestResult.FAILING):
            both = [name for name in _names(rows) if name in good.versions and name in bad.versions]
            changed = [name for name in both if good.versions[name] != bad.versions[name]]
            now, before = (", ".join(f"{name} {row.versions[name]}" for name in changed) for row in (bad, good))
            found = f"{now} of the versions tried ({before} passes)" if changed else ""
    return found


def newest(rows: Sequence[Retest]) -> str:
    """Return the result with the newest versions in rows of `by_version`, if it is not the same failure."""
    if not rows:
        return ""
    last = rows[-1]
    if last.result is RetestResult.FAILING:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in last.versions.items() if name != "python")
    return f"{'passes' if last.result is RetestResult.FIXED else 'shows another failure'} with {versions}"
