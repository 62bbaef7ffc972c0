"""Files of people in TOML that are a list of entries of one kind: ``[[failure]]``, ``[[known]]``."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ..store import codec
from ..store.errors import StoreError

_T = TypeVar("_T")


def read(path: Path, name: str, kind: type[_T]) -> list[_T]:
    """Return the entries ``[[name]]`` of a file, each a dataclass ``kind``.

    Raises `StoreError` with the entry that is wrong.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is not TOML: {error}") from error
    entries = document.pop(name, [])
    if document or not isinstance(entries, list):
        raise StoreError(f"{path} has something else than entries [[{name}]]")
    return [_entry(entry, f"{name} {number} of {path}", kind) for number, entry in enumerate(entries, 1)]


def _entry(entry: Any, what: str, kind: type[_T]) -> _T:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(entry) - names) if isinstance(entry, dict) else ["not a table"]
    if unknown:
        raise StoreError(f"{what} has {unknown[0]!r}; known are {', '.join(sorted(names))}")
    try:
        return codec.load(entry, kind)
    except ValueError as error:
        raise StoreError(f"{what} cannot be read: {error}") from error
