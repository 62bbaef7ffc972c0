"""The results of long work in a file: one JSON object a line, appended as results come.

Work that was interrupted goes on where it was, because what is in the file is not done again. The first line describes
the work: its id, and what it is about, such as a backend and versions. A line that was cut off by a kill is ignored.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..store.document.case import Json
from ..store.errors import StoreError


def header(text: str, work: str) -> dict[str, str]:
    """Return the first line of a file, empty if it does not describe such ``work``."""
    with suppress(ValueError, KeyError, TypeError):
        return {str(key): str(value) for key, value in dict(json.loads(text.partition("\n")[0])[work]).items()}
    return {}


def results(text: str) -> list[Any]:
    """Return the values of the lines of ``text`` that are JSON."""
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


class ResultsFile:
    """The file at ``path``, of ``work`` in a noun: ``hunt``. With ``about`` it belongs to that work.

    ``earlier`` are the values of its lines. Raises `StoreError` if the file is about something else, or if another
    process writes to it.
    """

    def __init__(self, path: Path, work: str, about: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.id = ""
        self._work = work
        try:
            text = path.read_text(errors="replace") if path.exists() else ""
            self._file = path.open("a")
        except OSError as error:
            raise StoreError(f"cannot write the results of the {work} to {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StoreError(f"another {work} writes to {path}; name another file: --log FILE") from error
        if text and not text.endswith("\n"):
            self._append("")
        if about is not None:
            self._begin(text, dict(about))
        self.earlier = results(text)

    def _begin(self, text: str, about: dict[str, str]) -> None:
        """Read the first line, or write it to an empty file."""
        if not text:
            self.id = secrets.token_hex(8)
            self._append(json.dumps({self._work: {"id": self.id, **about}}))
            return
        known = header(text, self._work)
        self.id = known.pop("id", "")
        if not self.id:
            raise StoreError(f"{self.path} is not the file of a {self._work}; name another file: --log FILE")
        if known != about:
            other = ", ".join(f"{k} {known.get(k, '-')} (now {about.get(k, '-')})" for k in _differing(known, about))
            raise StoreError(
                f"{self.path} has a {self._work} with {other}. Start it anew with --again, or keep it and name "
                "another file: --log FILE"
            )

    def add(self, result: Json) -> None:
        """Append ``result``."""
        self._append(json.dumps(result))

    def _append(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()

    def close(self) -> None:
        """Let another process write to the file."""
        self._file.close()


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]
