"""The page of a hunt: a table of operators by dtype and mode, and the bugs behind the cells that fail, in one file.

It works offline. `fxminify.repro_templates.report.page` says why nothing but its own script can run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ... import __version__
from .page import environment, look


@dataclass(frozen=True, slots=True)
class HuntCell:
    """A cell: its state as a word for the style sheet, a text for people, and the number of its bug, 0 for none."""

    state: str
    title: str
    bug: int = 0


@dataclass(frozen=True, slots=True)
class HuntRow:
    """An operator, and a cell or None for each column."""

    name: str
    cells: tuple[HuntCell | None, ...]

    @property
    def states(self) -> str:
        """The states of the row, each once, with spaces between them."""
        return " ".join(dict.fromkeys(cell.state for cell in self.cells if cell is not None))


@dataclass(frozen=True, slots=True)
class HuntBug:
    """A bug under its ``number`` on the page. ``capture`` is its id in the index, 0 if it is not stored."""

    number: int
    headline: str
    kind: str
    phase: str
    signature: str
    capture: int
    programs: tuple[str, ...]
    names: tuple[str, ...]
    command: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True)
class HuntPage:
    """The content of the page. ``columns`` are modes with their dtypes, ``totals`` are states with their words."""

    backend: str
    versions: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[HuntRow, ...]
    bugs: tuple[HuntBug, ...]
    totals: tuple[tuple[str, str, int], ...]
    notes: tuple[str, ...] = ()
    version: str = field(default=__version__)


def render(page: HuntPage) -> str:
    """The page as one HTML file, without other files."""
    template = environment().get_template("hunt.html.j2")
    return template.render(page=page, look=look("report.css", "hunt.css", "hunt.js"))
