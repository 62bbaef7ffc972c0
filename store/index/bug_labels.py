"""The labels that people put on bugs, such as ``needs-owner``: the rules for labels, and the labels of each bug.

These labels serve people. The labels of tasks and workers are separate ones (`fxminify.store.index.queue`).

A bug has its own labels and the labels of the bugs that were merged into it. Each stays with the bug that it was
put on, so splitting restores the labels that merging took.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import CTE, Select, false, select
from sqlalchemy.orm import Session

from ..errors import ForeignValue, StoreError
from .tables import BugLabelRow, BugRow, TriageRow

_FORM = re.compile(r"[a-z0-9][a-z0-9._:/+-]{0,49}")
#: The most labels that people can put on one bug. Merging may bring more together.
MOST = 20


def named(labels: Iterable[str]) -> set[str]:
    """Return these labels in lower case, the stored form. Raises `StoreError` for a text that is not a valid label."""
    found = set()
    for each in labels:
        label = each.strip().lower()
        if not _is_label(label):
            raise StoreError(
                "a label has 1 to 50 characters, letters a to z, digits and . _ : / + -, and begins with a letter or a "
                f"digit: {each!r:.70} is none"
            )
        found.add(label)
    return found


def of_bugs(session: Session, ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The labels of these bugs, and of those that were merged into them, sorted. Raises `ForeignValue`."""
    inside = _with_merged(ids)
    found: dict[int, set[str]] = {id: set() for id in ids}
    bug: int
    for bug, row in session.execute(
        select(inside.c.bug, BugLabelRow).join(BugLabelRow, BugLabelRow.bug == inside.c.inside)
    ):
        if not _is_label(row.label):
            raise ForeignValue(f"a label of bug {row.bug} that cannot be read")
        found[bug].add(row.label)
    return {id: tuple(sorted(labels)) for id, labels in found.items()}


def _with_merged(ids: Collection[int]) -> CTE:
    """Each ``bug`` of these with itself and each bug that was merged into it, or into one of those: ``inside``."""
    own = select(BugRow.id.label("bug"), BugRow.id.label("inside")).where(BugRow.id.in_(ids)).cte(recursive=True)
    return own.union(select(own.c.bug, TriageRow.bug).where(TriageRow.duplicate_of == own.c.inside))


def bugs_with(label: str) -> Select[tuple[int]]:
    """The ids of bugs with a label, and of those that they were merged into."""
    has = BugLabelRow.label == label.lower() if _is_label(label.lower()) else false()
    own = select(BugLabelRow.bug).where(has).cte(recursive=True)
    into = select(TriageRow.duplicate_of).join(own, TriageRow.bug == own.c.bug)
    return select(own.union(into.where(TriageRow.duplicate_of.is_not(None))).c.bug)


def used(session: Session, *, limit: int) -> list[str]:
    """List the labels of all bugs, sorted, at most ``limit``. Texts that are not valid labels are left out."""
    found = session.scalars(select(BugLabelRow.label).distinct().order_by(BugLabelRow.label).limit(limit))
    return [label for label in found if _is_label(label)]


def in_words(added: Sequence[str], removed: Sequence[str]) -> str:
    """Describe the change of labels for its event."""
    parts = (("labelled", added), ("no longer labelled", removed))
    return "; ".join(f"{what} {', '.join(labels)}" for what, labels in parts if labels)


def _is_label(text: object) -> bool:
    return isinstance(text, str) and _FORM.fullmatch(text) is not None
