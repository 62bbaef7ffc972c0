"""Automatic tasks: their kinds, the labels that they need, and how they are queued.

A capture is minified first. Once it has a verified script, it is run under other backends, after everything else
(`ABLATE`). A new installation runs the scripts of its backends again (`RETEST`).

A *label* is a word such as ``backend=inductor``. A task needs labels, and a worker has some. The labels that people
put on bugs are separate (`fxminify.store.index.bug_labels`). The labels of a task are computed when its capture is
stored: the backend, if ``torch.compile`` knows it by name in every process, kinds of devices other than the
processor, the version of torch, and the owner of the capture. A backend of a user's own module has no label:
whether it can be imported shows when it is tried.

The version of torch is preferred and not required. With another version a failure may not show, but a task that
waits for an installation that was upgraded long ago would wait for ever.

This module does what the transaction that stores a capture does about tasks. `fxminify.store.index.tasks` has the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from ..document.case import Case, Json
from . import signing, trust
from .database import insert, now
from .tables import ArtifactRow, BugRow, CaptureRow, State, TaskRow, TaskState

#: The kinds of tasks.
MINIFY, ABLATE, RETEST = "minify", "ablate", "retest"
#: The kind of the artifact that says at which layer a failure enters.
ABLATION = "ablation"
#: The label of workers that also find out what explains a failure.
EXPLAIN = "explain"
#: The label of workers that run what anybody captured, and of tasks that only these can serve.
TRUST = "trust"
#: Prefixes of labels.
BACKEND, DEVICE, MAKER, SIGNER, TORCH = "backend=", "device=", "maker=", "signer=", "torch="
#: The prefix of the label of an installation: `fxminify.store.index.installations`.
INSTALLED = "installed="
WHOSE = (MAKER, SIGNER)
#: In the provenance of a capture that was sent: the name of the user who made it (`fxminify.store.index.trust.maker`).
OF_MAKER = "maker"
#: Why such a task waits.
NEEDS_TRUST = "needs trust: it was captured by somebody else, and only `minify work --trust` runs that"
#: Added to the priority of a bug of which a capture was tried before, and the priorities of the other kinds of tasks.
LATER, RETESTED, LAST = 100, 500, 1000
#: The most characters of a name in a label.
_LONGEST = 100


def needs_of(case: Case, whose: str) -> str:
    """The labels that a worker needs to minify ``case``, sorted and joined by spaces. ``whose`` is one of them."""
    backend = case.backend
    labels = {whose}
    if backend.get("how") in ("registered", "entry_point") and not backend.get("module") and backend.get("name"):
        labels.add(label(BACKEND, str(backend["name"])))
    kinds = {str(tensor.device).partition(":")[0] for tensor in case.tensors}
    labels |= {label(DEVICE, kind) for kind in kinds - {"cpu", "meta"}}
    if version := minor(case.torch):
        labels.add(label(TORCH, version))
    return " ".join(sorted(labels))


def whose(provenance: Json, *, ours: bool) -> str:
    """The label of those who run a capture from there unasked: this user, whom it names or who signed it; or `TRUST`.

    It only says who may try.
    """
    if key := signing.signer(provenance.get("origin")):
        return label(SIGNER, key)
    maker = trust.maker(create=True) if ours else provenance.get(OF_MAKER)
    return label(MAKER, maker) if isinstance(maker, str) and maker else TRUST


def label(prefix: str, name: str) -> str:
    return prefix + re.sub(r"\s", "_", name)[:_LONGEST]


def minor(version: str) -> str:
    """``2.13`` of ``2.13.0+cpu``; empty of anything else."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""


def missing(needs: str, can: Collection[str]) -> list[str]:
    """Return the labels in ``needs`` that are missing from ``can``, ignoring the version of torch."""
    trusts = TRUST in can
    lacks = [one for one in needs.split() if one not in can and not one.startswith(TORCH)]
    return [one for one in lacks if not (trusts and one.startswith(WHOSE))]


def of_any_torch(needs: str) -> str:
    """The labels without the version of torch."""
    return " ".join(one for one in needs.split() if not one.startswith(TORCH))


def for_trusting(needs: str) -> str:
    """The labels of a task whose capture turns out not to be of the user that it names."""
    return " ".join(sorted({TRUST, *(one for one in needs.split() if not one.startswith(WHOSE))}))


def priority(occurrences: int, *, tried: bool) -> int:
    """Return the urgency of a task; smaller is sooner.

    Bugs without a tried task come first. Among equals, more occurrences come first.
    """
    return LATER * tried - min(occurrences.bit_length(), LATER - 1)


def seen(session: Session, bugs: Mapping[int, tuple[int, int]]) -> None:
    """Make tasks more urgent after new occurrences. ``bugs`` maps each bug to its occurrences before and now."""
    changed = [
        (bug, change)
        for bug, (before, now) in sorted(bugs.items())
        if (change := priority(now, tried=False) - priority(before, tried=False))
    ]
    for bug, change in changed:  # few: an occurrence that doubles their number
        values = {"priority": TaskRow.priority + change}
        session.execute(update(TaskRow).where(TaskRow.open == open_key(bug)).values(values))


def put(session: Session, bug: int, capture: int, needs: str) -> None:
    """Queue a capture, unless its bug has an open task, or a verified script."""
    occurrences = session.scalars(select(BugRow.occurrences).where(BugRow.id == bug)).one()
    _put(session, {bug: (capture, needs, occurrences)})


def put_first(
    session: Session, captures: Sequence[tuple[int, int, str]], occurrences: Mapping[int, int], new: Collection[int]
) -> None:
    """Queue the first of these captures of each bug, as `put` does.

    Each capture is given as its bug, its id and its needed labels. ``occurrences`` has those numbers by bug. The
    bugs in ``new`` have no tasks yet.
    """
    first: dict[int, tuple[int, str, int]] = {}
    for bug, capture, needs in captures:
        first.setdefault(bug, (capture, needs, occurrences[bug]))
    _put(session, first, new)


def _put(session: Session, wanted: Mapping[int, tuple[int, str, int]], new: Collection[int] = ()) -> None:
    """Queue a capture of each bug. ``wanted`` gives the capture, its needed labels and the occurrences of the bug.

    The bugs in ``new`` have no tasks yet.
    """
    known = [bug for bug in wanted if bug not in new]
    over: set[int | None] = set()
    tried: set[int] = set()
    if known:
        keys = {open_key(bug): bug for bug in known}
        over |= {keys[key] for key in session.scalars(select(TaskRow.open).where(TaskRow.open.in_(keys))) if key}
        verified = CaptureRow.bug.in_(known) & (CaptureRow.state == State.VERIFIED.value)
        over |= set(session.scalars(select(CaptureRow.bug).where(verified).distinct()))
        earlier = select(TaskRow.bug).where(TaskRow.bug.in_(known), TaskRow.kind == MINIFY)
        tried |= set(session.scalars(earlier.distinct()))
    insert(session, TaskRow, [
        _task(MINIFY, bug, capture, needs, priority(occurrences, tried=bug in tried))
        for bug, (capture, needs, occurrences) in sorted(wanted.items()) if bug not in over
    ])  # fmt: skip


def verified(session: Session, bug: int, capture: int, needs: str) -> None:
    """A capture has a verified script now: find out at which layer its failure enters, when nothing else is to do."""
    known = session.get(ArtifactRow, (capture, ABLATION))
    if known is None:
        labels = " ".join(sorted({EXPLAIN, *needs.split()}))
        insert(session, TaskRow, [columns(session, bug, capture, labels, ABLATE)])


def columns(session: Session, bug: int, capture: int, needs: str, kind: str = MINIFY) -> dict[str, object]:
    """Return the columns of a new task."""
    urgency = {ABLATE: LAST, RETEST: RETESTED}.get(kind, 0)
    if kind == MINIFY:
        earlier = select(TaskRow.id).where(TaskRow.bug == bug, TaskRow.kind == MINIFY).limit(1)
        occurrences = session.scalars(select(BugRow.occurrences).where(BugRow.id == bug)).one()
        urgency = priority(occurrences, tried=session.scalar(earlier) is not None)
    return _task(kind, bug, capture, needs, urgency)


def _task(kind: str, bug: int, capture: int, needs: str, urgency: int) -> dict[str, object]:
    return {
        "kind": kind, "open": key_of(kind, bug, capture, needs), "bug": bug, "capture": capture, "config": "{}",
        "needs": needs, "priority": urgency, "state": TaskState.QUEUED.value, "why": "", "attempts": 0, "fence": 0,
        "holder": "", "until": 0.0, "created": now(),
    }  # fmt: skip


def key_of(kind: str, bug: int, capture: int, needs: str) -> str:
    """Return the key of the one open task of this kind: of a bug, or of a capture and, for a retest, an
    installation.
    """
    if kind == MINIFY:
        return open_key(bug)
    installed = [one.removeprefix(INSTALLED) for one in needs.split() if one.startswith(INSTALLED)]
    return " ".join([kind, str(capture), *installed])


def open_key(bug: int) -> str:
    """Return the key of the one open task that minifies a bug."""
    return f"{MINIFY} {bug}"
