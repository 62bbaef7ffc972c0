"""Columns of a list of bugs: their captures, their state and their sizes, in a few characters each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...store.index import BugInfo, BugStatus, CaptureInfo, RetestResult, State


def alone(capture: CaptureInfo) -> BugInfo:
    """A capture as if it were the only one of its bug, for a listing of captures."""
    size = capture.nodes_before
    return BugInfo(
        id=capture.bug,
        kind=capture.kind,
        phase=capture.phase,
        backend=capture.backend,
        signature=capture.signature,
        headline=(capture.headline if capture.kind else "") or capture.reason,
        operators=capture.operators,
        captures=1,
        occurrences=capture.occurrences,
        created=capture.created,
        last_seen=capture.last_seen,
        ids=(capture.id,),
        states={capture.state: 1},
        nodes_before=None if size is None else (size, size),
        nodes_after=capture.nodes_after,
        comes_from=capture.comes_from,
    )


def ids(found: Sequence[int], *, more: bool = False) -> str:
    """Sorted ids as ``1-3,7``, or ``1-3,7,…`` if there are ``more``."""
    runs: list[list[int]] = []
    for id in found:
        if runs and id == runs[-1][-1] + 1:
            runs[-1].append(id)
        else:
            runs.append([id])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join([*shown, "…"] if more else shown)


def standing(bug: BugInfo, results: Mapping[int, RetestResult]) -> str:
    """Return the decision about a bug: ``fixed``, ``ignored``, ``changed``; empty if it is open and failing.

    ``results`` are the last results of its captures that were retested.
    """
    if bug.status is not BugStatus.OPEN:
        return str(bug.status)
    found = {results[id] for id in bug.ids if id in results}
    if not found or RetestResult.FAILING in found:
        return ""
    return str(RetestResult.FIXED if RetestResult.FIXED in found else RetestResult.CHANGED)


def state(states: Mapping[State, int]) -> tuple[State, str]:
    """The state of a bug, and that with a count where not all its captures have it: ``verified`` comes first."""
    total = sum(states.values())
    named = State.VERIFIED if State.VERIFIED in states else max(states, key=lambda each: states[each])
    return named, str(named) if states[named] == total else f"{states[named]}/{total} {named}"


def nodes(before: tuple[int, int] | None, after: int | None) -> str:
    """``40→1`` of one capture; of several the range before, and the smallest after."""
    if before is None:
        return ""
    least, most = before
    text = str(least) if least == most else f"{least}-{most}"
    return text if after is None else f"{text}→{after}"
