"""The products of a capture: `Repros`, the rendered files, and `Artifacts`, all other findings.

A repro is a file that a person runs, with the record of its verification. An artifact is a JSON document that
explains a capture: the first node that differs, the ablation, the ONNX models... Its *kind* names it. The module
that makes a kind also checks it when it is read, because a file may come from a stranger.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..document.case import Blobs, Case
from ..document.decode import InvalidDocument, parse_value
from ..private_values import here
from ..scrubbing import masked_json
from .cases import CaseStore
from .database import Database, now
from .documents import dumps, plain
from .tables import ArtifactRow, CaptureRow, ReproRow
from .trust import script_tag


@dataclass(frozen=True, slots=True)
class ReproInfo:
    """A rendered file. The signature appeared in ``verified`` of ``runs`` fresh processes.

    ``document`` is the digest of the case of a script, ``origin`` the tag of
    `fxminify.store.index.trust.script_tag`.
    """

    capture: int
    format: str
    text: str
    verified: int
    runs: int
    log: str
    created: str
    origin: str | None
    document: str | None


class Repros:
    """``index.repros``: the rendered files, one of each format for each capture."""

    def __init__(self, database: Database, cases: CaseStore) -> None:
        self._database = database
        self._cases = cases

    def save(
        self,
        capture_id: int,
        format: str,
        text: str,
        *,
        verified: int,
        runs: int,
        log: str,
        case: Case | None = None,
        blobs: Blobs | None = None,
        ours: bool = False,
    ) -> None:
        """Store a rendered file, which replaces the one of the same format. The same text keeps its origin, and its
        ``case``, if none is given.

        ``ours``: it was rendered from a case that this user made. Only then is it signed.
        """

        def put(session: Session) -> list[str]:
            identity = self._database.need(session, CaptureRow, capture_id).identity
            self._database.check_lease(session, capture_id)
            row = session.get(ReproRow, (capture_id, format))
            same = row if row is not None and row.text == text else None
            before = None if row is None else row.document
            document, nodes, inputs = (
                (same.document, same.nodes, same.inputs) if same is not None else (None, None, None)
            )
            if staged is not None and case is not None:
                self._cases.insert(session, [staged])
                document, nodes, inputs = staged.key, case.graph.count, len(case.inputs)
            origin = same.origin if same is not None and document == before else ""
            if ours:
                origin = script_tag(text, document, identity)
            new = ReproRow(
                capture=capture_id, format=format, text=text, log=here().mask(log), verified=verified, runs=runs
            )
            new.created, new.origin, new.document, new.nodes, new.inputs = now(), origin, document, nodes, inputs
            session.merge(new)
            session.flush()
            return [] if document == before else self._cases.drop(session, before)

        with nullcontext() if case is None else self._cases.staged(case, blobs or {}) as staged:
            dropped = self._database.write(put)
        self._cases.sweep(dropped)

    def forget(self, capture_id: int) -> None:
        """Remove the files of all formats that were rendered for a capture."""

        def remove(session: Session) -> list[str]:
            self._database.need(session, CaptureRow, capture_id)
            self._database.check_lease(session, capture_id)
            dropped: list[str] = []
            for row in session.scalars(select(ReproRow).where(ReproRow.capture == capture_id)).all():
                document = row.document
                session.delete(row)
                session.flush()
                dropped += self._cases.drop(session, document)
            return dropped

        self._cases.sweep(self._database.write(remove))

    def get(self, capture_id: int, format: str = "script") -> ReproInfo | None:
        """Return the rendered file in ``format``, or None if it does not exist."""
        with self._database.reading() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = session.get(ReproRow, (capture_id, format))
        return None if row is None else row.to(ReproInfo)


class Artifacts:
    """``index.artifacts``: JSON documents, one of each kind for each capture."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, capture_id: int, kind: str, content: Any) -> None:
        """Store ``content``, which replaces the artifact of the same kind. Values that are no JSON become text, and in
        texts what is private here is masked."""
        text = dumps(masked_json(plain(content), here().mask))
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id)
            self._database.check_lease(session, capture_id)
            session.merge(ArtifactRow(capture=capture_id, kind=kind, content=text, created=now()))

    def get(self, capture_id: int, kind: str) -> Any:
        """Return the content of an artifact, or None if it does not exist or is not JSON. Its form is not checked."""
        with self._database.reading() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = session.get(ArtifactRow, (capture_id, kind))
        if row is None:
            return None
        try:
            return parse_value(row.content)
        except InvalidDocument:
            return None
