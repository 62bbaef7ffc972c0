"""What was made of a capture: `Repros`, the rendered files, and `Artifacts`, all other findings.

A repro is a file that a person runs, with the record of its verification. An artifact is a JSON document that explains
a capture: the first node that differs, the ablation, the ONNX models... Its *kind* names it. The module that makes
a kind also checks it when it is read, because a file may come from a stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..document.decode import InvalidDocument, parse_value
from .database import Database, now
from .documents import dumps, plain
from .tables import ArtifactRow, CaptureRow, ReproRow
from .trust import script_tag


@dataclass(frozen=True, slots=True)
class ReproInfo:
    """One rendered file; ``verified`` of ``runs`` processes of their own showed the signature.

    ``origin`` is the tag of `fxminify.store.index.trust.script_tag`.
    """

    capture: int
    format: str
    text: str
    verified: int
    runs: int
    log: str
    created: str
    origin: str | None


class Repros:
    """``index.repros``: the rendered files, one of each format for each capture."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, capture_id: int, format: str, text: str, *, verified: int, runs: int, log: str) -> None:
        """Store a rendered file, which replaces the one of the same format. The same text keeps its origin."""
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id)
            old = session.get(ReproRow, (capture_id, format))
            origin = script_tag(text) if old is None or old.text != text else old.origin
            row = ReproRow(capture=capture_id, format=format, text=text, log=log, origin=origin, created=now())
            row.verified, row.runs = verified, runs
            session.merge(row)

    def get(self, capture_id: int, format: str = "script") -> ReproInfo | None:
        """The rendered file of that format, None if there is none."""
        with self._database.reading() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = session.get(ReproRow, (capture_id, format))
        return None if row is None else row.to(ReproInfo)


class Artifacts:
    """``index.artifacts``: JSON documents, one of each kind for each capture."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, capture_id: int, kind: str, content: Any) -> None:
        """Store ``content``, which replaces the artifact of the same kind. Values that are no JSON become text."""
        text = dumps(plain(content))
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id)
            session.merge(ArtifactRow(capture=capture_id, kind=kind, content=text, created=now()))

    def get(self, capture_id: int, kind: str) -> Any:
        """The content of an artifact, None if there is none or it is no JSON. Its form is not checked."""
        with self._database.reading() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = session.get(ArtifactRow, (capture_id, kind))
        if row is None:
            return None
        try:
            return parse_value(row.content)
        except InvalidDocument:
            return None
