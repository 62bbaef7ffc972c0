"""The results of a hunt in a file: one JSON object a line, appended as results come.

A hunt that was interrupted goes on where it was, because programs in the file are not run again. The first line may
describe the hunt: its id, its backend, and the versions that it is about. A line that was cut off by a kill is ignored.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...store.errors import StoreError
from .programs import Program, ProgramResult

_HEADER = "hunt"


@dataclass(frozen=True, slots=True)
class EarlierHunt:
    """The results of another hunt. ``about`` has its backend, and its versions by package."""

    about: Mapping[str, str]
    results: Mapping[Program, ProgramResult]


def read(path: Path) -> EarlierHunt:
    """Read the file of another hunt. Raises `StoreError` for any other file."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    about = _header(text)
    if not about.pop("id", ""):
        raise StoreError(f"{path} is not the file of a hunt: minify hunt BACKEND --log FILE writes one")
    return EarlierHunt(about, _results(text))


def _header(text: str) -> dict[str, str]:
    """Return the first line, empty if it does not describe a hunt."""
    with suppress(ValueError, KeyError, TypeError):
        return {str(key): str(value) for key, value in dict(json.loads(text.partition("\n")[0])[_HEADER]).items()}
    return {}


def _results(text: str) -> dict[Program, ProgramResult]:
    """Return the results in the lines of ``text``, the last one of each program."""
    found = {}
    for line in text.splitlines():
        with suppress(ValueError):
            result = ProgramResult.from_json(json.loads(line))
            found[result.program] = result
    return found


class ProgramLog:
    """The file at ``path``. With ``about`` it belongs to that hunt.

    Raises `StoreError` if the file is about another hunt, or if another process writes to it.
    """

    def __init__(self, path: Path, about: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.id = ""
        try:
            text = path.read_text(errors="replace") if path.exists() else ""
            self._file = path.open("a")
        except OSError as error:
            raise StoreError(f"cannot write the results of the hunt to {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StoreError(f"another hunt writes to {path}; name another file: --log FILE") from error
        if text and not text.endswith("\n"):
            self._append("")
        if about is not None:
            self._begin(text, dict(about))
        self.results = _results(text)

    def _begin(self, text: str, about: dict[str, str]) -> None:
        """Read the first line, or write it to an empty file."""
        if not text:
            self.id = secrets.token_hex(8)
            self._append(json.dumps({_HEADER: {"id": self.id, **about}}))
            return
        known = _header(text)
        self.id = known.pop("id", "")
        if not self.id:
            raise StoreError(f"{self.path} is not the file of a hunt; name another file: --log FILE")
        if known != about:
            other = ", ".join(f"{k} {known.get(k, '-')} (now {about.get(k, '-')})" for k in _differing(known, about))
            raise StoreError(
                f"{self.path} has a hunt with {other}. Start it anew with --again, or keep it and name another file: "
                "--log FILE"
            )

    def add(self, result: ProgramResult) -> None:
        """Append ``result``."""
        self.results[result.program] = result
        self._append(json.dumps(result.to_json()))

    def _append(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()

    def close(self) -> None:
        """Let another process write to the file."""
        self._file.close()


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]
