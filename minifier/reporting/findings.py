"""The findings about the script of a capture, for a comment: only what was measured on the case of this script.

Explanations, causes, ablations and retests are stored when they are made. The script may be newer, if the capture was
minified again. So each of them is compared with the case of the script, or with the time at which it was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from ...repro_templates.comment import Findings
from ...repro_templates.context import Header
from ...store.index import CaptureInfo, Index, Retest, RetestResult
from ...store.versions import order
from ..oracle.ablation import OWN, PASSES, Ablation
from ..oracle.ablation import stored as stored_ablation
from . import cause, explanation


def measured(index: Index, capture: CaptureInfo, header: Header) -> Findings:
    """Return the findings about the script of ``capture``. ``header`` has the versions with which it was verified."""
    torch = header.torch
    case, script = index.best(capture), index.repros.get(capture.id)
    if case is None or script is None:
        return Findings()
    where = cause.of_case(index, capture.id, case)
    fails_in = ""
    around: tuple[str, ...] = ()
    if where is not None:
        elsewhere = "" if where.torch == torch else f" with torch {where.torch}"
        fails_in = f"{part}{elsewhere}" if (part := where.fails_in()) else ""
        around = tuple(f"{'; '.join(way.lines)}{elsewhere}" for way in where.helping)
    last = index.reductions.last(capture.id)
    found = Findings()
    if last is not None and index.reductions.best(last.id) == case:
        found, ablation = _properties(index, capture), stored_ablation(index, capture.id)
        if ablation is not None and ablation.reduction == last.id:
            fails_in = "; ".join(filter(None, (fails_in, _layer(ablation, torch))))
    retests = [row for row in index.retests.find([capture.id]) if row.at >= script.created]
    rows = by_version(_verified(capture, header), [row for row in retests if row.backend == capture.backend])
    found = replace(found, fails_in=fails_in, works_around=around)
    return replace(found, first_bad=first_bad(rows), now=newest(rows)) if script.verified else found


def _properties(index: Index, capture: CaptureInfo) -> Findings:
    explained = explanation.stored(index, capture.id)
    if explained is None:
        return Findings()
    words, needs = explained.wording, tuple(explained.wording.needs())
    passes = tuple(words.passes())
    if not needs and not passes and (variant := explained.passes_with()):
        passes = (variant,)
    return Findings(needs, passes, tuple(words.free()), tuple(words.fails()))


def _layer(ablation: Ablation, torch: str) -> str:
    """``the backend inductor (eager and aot_eager pass)``, with the version of torch if it is another one."""
    if not ablation.shows:
        return ""
    passing = [row.backend for row in ablation.rows if row.result == PASSES and row.layer != OWN]
    told = f" ({', '.join(passing)} {'passes' if len(passing) == 1 else 'pass'})" if passing else ""
    elsewhere = "" if ablation.torch in ("", torch) else f" with torch {ablation.torch}"
    return f"{ablation.enters}{told}{elsewhere}"


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
    last = rows[-1]
    if last.result is RetestResult.FAILING:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in last.versions.items() if name != "python")
    return f"{'passes' if last.result is RetestResult.FIXED else 'shows another failure'} with {versions}"
