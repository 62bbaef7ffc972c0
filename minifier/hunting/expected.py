"""Expected failures of a hunt, as a TOML file: with it only other failures count as new.

    [[failure]]
    program = "ops linalg.qr float16 *"   # a pattern of the program in one line
    signature = "v3:0123456789ab"
    reason = "issue 123"

Each entry has a pattern of ``program``, a ``signature``, or both; what it has must agree.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...store.errors import StoreError
from ...store.text import printable
from .. import toml_entries
from .cells import findings
from .programs import Finding, Program, ProgramResult


@dataclass(frozen=True, slots=True)
class ExpectedFailure:
    """An entry of the file. An empty field agrees with everything; ``reason`` is for people."""

    program: str = ""
    signature: str = ""
    reason: str = ""

    def agrees(self, program: Program, finding: Finding) -> bool:
        """Return whether a failure is this one."""
        return self.is_about(program) and self.signature in ("", finding.signature)

    def is_about(self, program: Program) -> bool:
        """Return whether ``program`` may show this failure."""
        return not self.program or fnmatchcase(program.text(), self.program)

    def text(self) -> str:
        """The entry in one line."""
        return " ".join(filter(None, (self.program, self.signature, self.reason)))


def read(path: Path) -> tuple[ExpectedFailure, ...]:
    """Read the file. Raises `StoreError` with the entry that is wrong."""
    found = toml_entries.read(path, "failure", ExpectedFailure)
    for number, entry in enumerate(found, 1):
        if not (entry.program or entry.signature):
            raise StoreError(f"failure {number} of {path} has neither a program nor a signature")
    return tuple(found)


def unexpected(results: Iterable[ProgramResult], expected: Sequence[ExpectedFailure]) -> tuple[Program, ...]:
    """Return the programs with a failure that no entry agrees with, in their order."""
    found = (program for program, one in findings(results) if not any(e.agrees(program, one) for e in expected))
    return tuple(dict.fromkeys(found))


def unseen(results: Sequence[ProgramResult], expected: Sequence[ExpectedFailure]) -> tuple[ExpectedFailure, ...]:
    """Return the entries about programs that were run of which none showed the failure."""
    tried = [result.program for result in results]
    shown = list(findings(results))
    return tuple(
        entry for entry in expected
        if any(map(entry.is_about, tried)) and not any(entry.agrees(program, one) for program, one in shown)
    )  # fmt: skip


def written(results: Iterable[ProgramResult]) -> str:
    """Return the file that expects every failure of ``results``, each in its own program."""
    lines = ["# The failures of a hunt: minify hunt BACKEND --expect FILE reports only others as new.", ""]
    for program, finding in dict.fromkeys((p, (f.signature, f.headline)) for p, f in findings(results)):
        entry = {"program": glob.escape(program.text()), "signature": finding[0], "reason": finding[1]}
        lines += ["[[failure]]", *(f"{name} = {_quoted(value)}" for name, value in entry.items()), ""]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(printable(text), ensure_ascii=False)
