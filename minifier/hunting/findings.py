"""Store the failures that a hunt finds in an index, as `minify capture` stores the failures of a program.

One capture is enough for a bug: a failure whose signature the index knows is counted. Few signatures tell divergences,
hangs and full memories apart, so these are one bug only in the same program of a suite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...store.failure import ALIKE
from ...store.index import CaptureInfo, Index
from ...store.recording import Recording, backend_of
from ...store.spool.upload import InvalidUpload
from . import recordings
from .programs import CallResult, Finding, Program, ProgramResult


def bug_of(program: Program, finding: Finding) -> tuple[str, str]:
    """Return the key by which failures of a hunt are one bug: the signature, and for some kinds the program."""
    return finding.signature, f"{program.suite} {program.name}" if finding.kind in ALIKE else ""


class FindingStore:
    """Stores the findings of the hunt ``id`` in the index ``db``, which is made at the first one.

    A finding that was stored before is not counted again.
    """

    def __init__(self, db: str, id: str) -> None:
        self._db = db
        self._id = id
        self._index: Index | None = None
        self._known: dict[tuple[str, str, str], int] = {}

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()
        self._index = None

    def keep(self, result: ProgramResult, folder: Path) -> ProgramResult:
        """Store the failures of ``result``, which are in ``folder``. Returns it with the ids of their captures."""
        calls = tuple(self._call(result.program, call, folder) for call in result.calls)
        return replace(result, calls=calls)

    def _call(self, program: Program, call: CallResult, folder: Path) -> CallResult:
        found = tuple(self._kept(program, call.number, n, one, folder) for n, one in enumerate(call.findings))
        return replace(call, findings=found)

    def _kept(self, program: Program, call: int, number: int, finding: Finding, folder: Path) -> Finding:
        try:
            met = recordings.read(folder, call, number)
            return replace(finding, capture=self._store(program, call, number, finding, met))
        except (InvalidUpload, ValueError) as error:  # a backend that writes into memory may have changed it
            return replace(finding, headline=f"{finding.headline} (not stored: {error})")

    def _store(self, program: Program, call: int, number: int, finding: Finding, met: Recording) -> int:
        if self._index is None:
            self._index = Index.open(self._db, create=True)
        captures = self._index.captures
        key = hashlib.sha256(f"{self._id} {program!r} {call} {number}".encode()).hexdigest()
        backend = backend_of(met.case, met.provenance)
        bug = str(backend.get("name", "")), *bug_of(program, finding)
        if bug not in self._known:
            stored = captures.find(backend=bug[0], signatures=[finding.signature])
            if (known := next(iter(_of_program(stored, bug[2])), None)) is not None:
                self._known[bug] = known.id
        if bug in self._known:
            captures.seen_again(self._known[bug], 1, met.provenance, key=key)
            return self._known[bug]
        self._known[bug] = captures.receive(met.masked(), ours=True, key=key).capture
        return self._known[bug]


def _of_program(stored: Iterable[CaptureInfo], program: str) -> Iterable[CaptureInfo]:
    """Return the captures that a hunt found in ``program``, or all if that is empty."""
    return [one for one in stored if not program or one.provenance.get(recordings.HUNTED) == program]
