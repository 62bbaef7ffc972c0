"""`minify export`: a new index file with some captures of another one, without private or local data.

All texts are masked. Code stays as it is, and private text that a search finds in it is reported. Ids and
identities stay the same. The tags of origin are left out, so a user who opens the file is asked before anything of
it runs. The file appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from ... import __version__
from .. import codec
from ..diagnosis import first_error
from ..document.case import Case, to_json
from ..document.decode import InvalidDocument, parse_value, validate
from ..document.names import UnknownName
from ..errors import ForeignValue, StoreError, explain
from ..failure import Failure
from ..scrubbing import MASKED, Mask, masked_case, masked_failure, masked_json, masked_provenance
from ..signature import signature
from . import sqlite
from .blobs import BlobStore
from .database import Database, insert, open_database
from .documents import digest, dumps, loads, pack, plain, unpack
from .queue import OF_MAKER
from .tables import (
    ArtifactRow,
    Base,
    BugRow,
    BugSightingRow,
    CaptureRow,
    DocumentBlobRow,
    DocumentRow,
    EnvironmentRow,
    ReductionRow,
    ReproRow,
    RetestRow,
    SightingRow,
    State,
    StepRow,
    VerdictRow,
)

_Row = TypeVar("_Row", bound=Base)

#: The artifact with the failure of the script.
_RECORD = "record"
_PROBLEM = "problem/"
#: What no shared file has, for a person.
LEFT_OUT = (
    "tags that prove who made a capture: it asks before it runs anything",
    "directories from which modules are imported",
    "what scripts and workers wrote, but for the line that a signature needs",
    "rendered formats other than the script: minify repro --format makes them again",
    "locks, rounds of minify retest, the status and labels of bugs, notifications",
    "tokens and events of minify serve",
)


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks for plain text, for names of files and functions, and for the comments in a script.

    ``look`` names in a few words the private parts of a text that is not changed.
    """

    text: Mask
    name: Mask
    script: Mask
    look: Callable[[str], Iterable[str]]


@dataclass(slots=True)
class Shared:
    """The content of a shared file: ids of captures, number of rows by table, size in bytes.

    ``found`` lists, for each part of a capture, the private text that could not be masked. ``unreadable`` is the
    reason why a capture is missing.
    """

    captures: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)

    def count(self, row: Base, times: int = 1) -> None:
        name = row.__tablename__
        self.rows[name] = self.rows.get(name, 0) + times


def share(
    source: Database, blobs: BlobStore, path: Path, ids: Sequence[int], masks: Masks, *, force: bool = False
) -> Shared:
    """Write the captures ``ids`` of ``source`` (empty: all) into the new file ``path``.

    Raises `StoreError` where the file exists, unless ``force``, and where there is no capture to write.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    except OSError as exc:
        raise StoreError(explain(exc, str(path))) from exc
    try:
        draft, ready = folder / "draft.db", folder / "ready.db"
        target = open_database(str(draft), create=True, readonly=False, timeout=30.0)
        try:
            store = BlobStore(target, sqlite.MAX_VALUE)
            with source.reading() as read, target.writing() as write:
                shared = _Sharing(source, blobs, read, write, store, masks).all(ids)
        finally:
            target.close()
        sqlite.back_up(draft, ready, 30.0)
        shared.bytes = ready.stat().st_size
        put_in_place(ready, Path(f"{draft}.blobs"), path, force=force)
    except OSError as exc:
        raise StoreError(explain(exc, str(path))) from exc
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return shared


def refuse_link(path: Path) -> None:
    """Raise `StoreError` if ``path`` is a link, which somebody else may have made: nothing is written through it."""
    if path.is_symlink():
        raise StoreError(f"{path} is a link: remove it, or name another file")


def put_in_place(ready: Path, storages: Path, path: Path, *, force: bool) -> None:
    """Move the file to ``path``, after the storages that are too large for it."""
    refuse_link(Path(f"{path}.blobs"))
    for file in storages.glob("??/*"):
        place = Path(f"{path}.blobs", file.parent.name, file.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)
    if force:
        os.replace(ready, path)
        return
    try:
        os.link(ready, path)
    except FileExistsError:
        raise StoreError(f"{path} exists; add --force to overwrite it") from None


class _Sharing:
    """A copy from the session ``read`` to the session ``write``."""

    def __init__(
        self, source: Database, blobs: BlobStore, read: Session, write: Session, store: BlobStore, masks: Masks
    ) -> None:
        self._source, self._blobs, self._read, self._write, self._store = source, blobs, read, write, store
        self._masks = masks
        self._shared = Shared()
        #: Of the capture that is being copied: what its documents became, and what is revealing in them.
        self._copied: dict[str, tuple[str, list[str]]] = {}

    def all(self, ids: Sequence[int]) -> Shared:
        for id in ids:
            self._source.need(self._read, CaptureRow, id)
        chosen = sorted(set(ids)) or list(self._read.scalars(select(CaptureRow.id).order_by(CaptureRow.id)))
        for id in chosen:
            found = dict(self._shared.found)
            rows = dict(self._shared.rows)
            self._copied.clear()
            try:
                with self._write.begin_nested():
                    self._capture(self._source.need(self._read, CaptureRow, id))
            except (ForeignValue, StoreError, InvalidDocument, UnknownName, ValueError) as exc:
                self._shared.unreadable[id] = str(exc)
                self._shared.found, self._shared.rows = found, rows
                continue
            self._shared.captures.append(id)
        if not self._shared.captures:
            why = "; ".join(f"capture {id}: {why}" for id, why in list(self._shared.unreadable.items())[:3])
            raise StoreError(f"there is nothing to export from {self._source.name}" + (f" ({why})" if why else ""))
        self._parents()
        return self._shared

    def _capture(self, row: CaptureRow) -> None:
        place = f"failure {row.id}"
        mask = self._masks.text
        failure = None if row.failure is None else self._failure(codec.load(loads(row.failure), Failure))
        provenance = {k: v for k, v in loads(row.provenance).items() if k not in ("origin", OF_MAKER)}
        parts = None if row.signature_parts is None else dumps(masked_json(loads(row.signature_parts), mask))
        document = self._document(row.document, f"{place}: the captured graph and its backend")
        self._bug(row)
        self._add(
            row,
            place,
            parent=None,
            state=State.PENDING.value if row.state == State.REDUCING else row.state,
            reason=mask(row.reason),
            headline=mask(row.headline),
            signature_parts=parts,
            failure=None if failure is None else dumps(plain(codec.dump(failure))),
            provenance=dumps({**masked_provenance(provenance, mask), MASKED: __version__}),
            graph_text=mask(row.graph_text),
            document=document,
        )
        for sighting in self._of(SightingRow, SightingRow.capture == row.id):
            versions = self._found(EnvironmentRow, sighting.environment).versions
            insert(self._write, EnvironmentRow, [{"digest": sighting.environment, "versions": versions}])
            self._add(sighting, place)
            of_bug = {"bug": row.bug, "day": sighting.day, "environment": sighting.environment, "count": sighting.count}
            more = lambda new: {"count": BugSightingRow.count + new["count"]}  # noqa: E731
            insert(self._write, BugSightingRow, [of_bug], more)
        for reduction in self._of(ReductionRow, ReductionRow.capture == row.id):
            self._reduction(reduction, place)
        for script in self._of(ReproRow, ReproRow.capture == row.id, ReproRow.format == "script"):
            text = self._masks.script(script.text)
            self._look(f"{place}: the script", text)
            case = self._document(script.document, f"{place}: the minimal graph and its backend")
            self._add(script, place, text=text, log="", origin=None, document=case)
        for artifact in self._of(ArtifactRow, ArtifactRow.capture == row.id):
            self._add(artifact, place, content=self._artifact(artifact.kind, parse_value(artifact.content)))
        for retest in self._of(RetestRow, RetestRow.capture == row.id):
            self._add(retest, place, round=None, message=mask(retest.message))

    def _reduction(self, row: ReductionRow, place: str) -> None:
        mask = self._masks.text
        config = dumps(masked_json(loads(row.config), mask))
        best = self._document(row.best, f"{place}: the minimal graph and its backend")
        self._add(row, place, config=config, config_digest=digest(config.encode()), best=best, origin=None)
        for step in self._of(StepRow, StepRow.reduction == row.id):
            kept = self._document(step.document, f"{place}: the graph of a step and its backend")
            self._add(step, place, difference=mask(step.difference), document=kept, origin=None)
        for verdict in self._of(VerdictRow, VerdictRow.reduction == row.id):
            told = mask(verdict.detail) if verdict.key.startswith(_PROBLEM) else ""
            self._add(verdict, place, detail=told)

    def _artifact(self, kind: str, content: Any) -> str:
        if kind == _RECORD and isinstance(content, dict) and isinstance(content.get("failure"), dict):
            failure = self._failure(codec.load(content["failure"], Failure))
            content = {**content, "failure": plain(codec.dump(failure))}
        return dumps(masked_json(content, self._masks.text))

    def _failure(self, failure: Failure) -> Failure:
        """``failure`` masked, with the one line of standard error that its signature is made of, where that is all."""
        masked = masked_failure(failure, self._masks.text, self._masks.name)
        line = replace(masked, diagnostics=first_error(masked.diagnostics, generic=masked.is_generic())[0])
        return line if signature(line) == signature(masked) else masked

    def _bug(self, row: CaptureRow) -> None:
        """Count a capture under its bug, which is made with the first of them."""
        if row.bug is None:
            raise ForeignValue("it belongs to no bug")
        known = self._write.get(BugRow, row.bug)
        if known is None:
            old = self._found(BugRow, row.bug)
            known = self._add(
                old, f"failure {row.id}", headline=self._masks.text(old.headline), captures=0, occurrences=0
            )
        known.captures += 1
        known.occurrences += row.occurrences
        self._write.flush()

    def _parents(self) -> None:
        """A capture whose parent is in the file as well keeps it."""
        for id in self._shared.captures:
            parent = self._source.need(self._read, CaptureRow, id).parent
            if parent in self._shared.captures:
                self._write.get_one(CaptureRow, id).parent = parent
        self._write.flush()

    def _document(self, key: str | None, place: str) -> str | None:
        """Copy a case with its storages, once for each capture. Returns the digest of what it became."""
        if key is None:
            return None
        if key not in self._copied:
            self._copied[key] = self._copy(key)
        new, revealing = self._copied[key]
        self._note(place, revealing)
        return new

    def _copy(self, key: str) -> tuple[str, list[str]]:
        row = self._read.get(DocumentRow, key)
        if row is None:
            raise ForeignValue("a case without its document")
        case = masked_case(validate(unpack(row.digest, row.size, row.data)), self._masks.name, lambda path: "")
        new, size, data = pack(case)
        if self._write.get(DocumentRow, new) is None:
            view = self._blobs.view(case.storages)
            self._store.insert(self._write, dict.fromkeys(case.storages, view), [])
            self._write.add(DocumentRow(digest=new, size=size, data=data))
            self._write.flush()
            self._write.add_all(DocumentBlobRow(document=new, blob=blob) for blob in sorted(case.storages))
            self._write.flush()
            self._shared.count(DocumentRow())
        return new, list(self._masks.look(_code(case)))

    def _add(self, row: _Row, place: str, **changed: Any) -> _Row:
        """Copy a row with some columns ``changed``, and search all its texts except code."""
        columns = {column.key: getattr(row, column.key) for column in row.__table__.columns}
        new = type(row)(**columns | changed)
        self._write.add(new)
        self._write.flush()
        self._shared.count(new)
        texts = {k: v for k, v in (columns | changed).items() if isinstance(v, str) and k not in ("text", "backend")}
        for column, text in texts.items():
            self._look(f"{place}: {row.__tablename__}.{column}", text)
        return new

    def _found(self, table: type[_Row], key: int | str) -> _Row:
        """The row that another one names. Raises `ForeignValue` where a file has none."""
        row = self._read.get(table, key)
        if row is None:
            raise ForeignValue(f"it names {key!r} in the table {table.__tablename__}, which has no such row")
        return row

    def _look(self, place: str, text: str) -> None:
        self._note(place, self._masks.look(text))

    def _note(self, place: str, revealing: Iterable[str]) -> None:
        if what := list(dict.fromkeys([*self._shared.found.get(place, ()), *revealing])):
            self._shared.found[place] = what

    def _of(self, table: type[_Row], *where: Any) -> Iterable[_Row]:
        return self._read.scalars(select(table).where(*where).order_by(*table.__table__.primary_key)).all()


def _code(case: Case) -> str:
    """All of a case that is code, as one text."""
    doc: Mapping[str, Any] = to_json(case)
    strings: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            strings.append(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            collect(item)

    collect({key: part for key, part in doc.items() if key != "tensors"})
    return "\n".join(strings)
