"""The bugs that a team knows: the entries ``[[known]]`` of a TOML file beside the index.

An entry has the fields of `KnownBug`. docs/guide.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import toml_entries

#: The name of the file.
FILE = "known.toml"


@dataclass(frozen=True, slots=True)
class KnownBug:
    """An entry of the file. Without ``operators`` it is about each bug with this ``signature``."""

    signature: str
    operators: str = ""
    url: str = ""
    state: str = ""
    way_around: str = ""
    note: str = ""

    def is_about(self, signature: str, operators: str) -> bool:
        """Whether this is the bug with a ``signature`` whose minimal case calls ``operators``."""
        return self.signature == signature and self.operators in ("", operators)

    def text(self) -> str:
        """The entry in one line: ``URL (fixed in 2.14)``."""
        place = self.url or self.note or "known"
        return f"{place} ({self.state})" if self.state else place


def read(folders: Iterable[Path]) -> list[KnownBug]:
    """Read the files in ``folders`` that are there. Raises `StoreError` with the entry that is wrong."""
    files = dict.fromkeys(path.resolve() for folder in folders if (path := folder / FILE).is_file())
    return [bug for path in files for bug in toml_entries.read(path, "known", KnownBug)]


def beside(db: str) -> list[KnownBug]:
    """The entries for an index: of the file beside it, and of the file in the current directory."""
    return read([Path(), *([] if "://" in db else [Path(db).parent])])


def find(known: Sequence[KnownBug], signature: str, operators: str) -> KnownBug | None:
    """The entry about a bug; one that names its operators goes before one that does not."""
    found = [bug for bug in known if bug.is_about(signature, operators)]
    return max(found, key=lambda bug: bool(bug.operators), default=None)
