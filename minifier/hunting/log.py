"""The results of a hunt in a file (`fxminify.minifier.results_file`), a line for each program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...store.errors import StoreError
from ..results_file import ResultsFile, header, results
from .programs import Program, ProgramResult

_WORK = "hunt"


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
    about = header(text, _WORK)
    if not about.pop("id", ""):
        raise StoreError(f"{path} is not the file of a hunt: minify hunt BACKEND --log FILE writes one")
    return EarlierHunt(about, _by_program(results(text)))


def _by_program(lines: Iterable[Any]) -> dict[Program, ProgramResult]:
    """Return the results in ``lines``, the last one of each program."""
    found = {}
    for line in lines:
        with suppress(ValueError):
            result = ProgramResult.from_json(line)
            found[result.program] = result
    return found


class ProgramLog:
    """The file at ``path``. With ``about`` it belongs to that hunt.

    Raises `StoreError` if the file is about another hunt, or if another process writes to it.
    """

    def __init__(self, path: Path, about: Mapping[str, str] | None = None) -> None:
        self._file = ResultsFile(path, _WORK, about)
        self.id = self._file.id
        self.results = _by_program(self._file.earlier)

    def add(self, result: ProgramResult) -> None:
        """Append ``result``."""
        self.results[result.program] = result
        self._file.add(result.to_json())

    def close(self) -> None:
        """Let another process write to the file."""
        self._file.close()
