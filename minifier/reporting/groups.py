"""Captures that are one bug, which a listing shows as one row and a report as one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...store.failure import FailureKind
from ...store.index import CaptureInfo


def grouped(captures: Iterable[CaptureInfo]) -> list[list[CaptureInfo]]:
    """Captures of one backend and one signature together, in order of the first of each.

    Divergences have few signatures. Once reduced, they are one bug only if their smallest graphs call the same
    operators. Captures without a signature are told apart by their text.
    """
    found: dict[tuple[str, ...], list[CaptureInfo]] = {}
    for capture in captures:
        text = "" if capture.signature else capture.headline or capture.reason
        operators = capture.operators if capture.kind == FailureKind.DIVERGENCE else ""
        found.setdefault((capture.backend, capture.signature, capture.kind, text, operators), []).append(capture)
    return list(found.values())


def ids(group: Sequence[CaptureInfo]) -> str:
    """The ids of a group: ``1-3,7``."""
    runs: list[list[int]] = []
    for capture in group:
        if runs and capture.id == runs[-1][-1] + 1:
            runs[-1].append(capture.id)
        else:
            runs.append([capture.id])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def state(group: Sequence[CaptureInfo]) -> tuple[str, str]:
    """The state of a group, and that with a count where not all have it: of several ``verified`` comes first."""
    count = Counter(str(capture.state) for capture in group)
    named = "verified" if "verified" in count else count.most_common(1)[0][0]
    return named, named if len(count) == 1 else f"{count[named]}/{len(group)} {named}"


def nodes(group: Sequence[CaptureInfo]) -> str:
    """``40→1`` of one capture; of several the range before, and the smallest after."""
    before = sorted(c.nodes_before for c in group if c.nodes_before is not None)
    after = [c.nodes_after for c in group if c.nodes_after is not None]
    if not before:
        return ""
    text = str(before[0]) if before[0] == before[-1] else f"{before[0]}-{before[-1]}"
    return f"{text}→{min(after)}" if after else text
