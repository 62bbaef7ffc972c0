"""The HTML report: every failure of an index in one file that works offline.

The page has a list of groups of failures with one signature, and a view of each failure that is embedded in full. Views
that are not open are in ``<template>`` elements, which cost a browser little, so a page with ten thousand failures is
quick. `fxminify.repro_templates.report.page` says why nothing else can run; nothing is loaded, either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ... import __version__
from ...backends.adapters import Illustration
from ...store.index import StepInfo
from .figures import Figures, Values
from .page import environment, look
from .picture import Picture

#: The number of groups on a page, and of rows of a group that are shown at first.
PAGE, ROWS = 50, 100
#: What the look of a box in a picture says.
_LOOKS = {
    "culprit": "what the failure needs", "kept": "in the minimized graph under the same name", "input": "input",
    "constant": "constant", "output": "output",
}  # fmt: skip
#: The most backends, and operators, in a heading.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A failure in the list. Sizes are numbers of compute nodes.

    ``operators`` are the operators that its smallest graph calls. ``embedded`` is true if the report has the
    failure in full, ``has_script`` if that includes a script.
    """

    id: int
    state: str
    backend: str
    before: int | None
    after: int | None
    seen: int
    headline: str
    operators: str = ""
    embedded: bool = False
    has_script: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Failures of one signature, which are one bug."""

    signature: str
    headline: str
    kind: str
    phase: str
    rows: tuple[FailureRow, ...]

    @property
    def seen(self) -> int:
        return sum(row.seen for row in self.rows)

    @property
    def backends(self) -> list[str]:
        return sorted({row.backend for row in self.rows})

    @property
    def about(self) -> str:
        """The backends, and what the smallest graph calls: ``inductor: softmax:``."""
        operators = next((row.operators for row in self.rows if row.operators), "")
        return "".join(f"{text}: " for text in (_few(self.backends), _few(operators.split(", "))) if text).rstrip()

    @property
    def script(self) -> int | None:
        """The first failure whose script the report has."""
        return next((row.id for row in self.rows if row.has_script), None)

    @property
    def states(self) -> list[tuple[str, int]]:
        """Each state with the number of its rows."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.state] = found.get(row.state, 0) + 1
        return sorted(found.items())

    @property
    def largest(self) -> int | None:
        return max((row.before for row in self.rows if row.before is not None), default=None)

    @property
    def smallest(self) -> int | None:
        return min((row.after for row in self.rows if row.after is not None), default=None)


@dataclass(frozen=True, slots=True)
class Detail:
    """The content of the view of one failure. Texts are plain; ``curve`` is SVG of `repro_templates.report.curve`."""

    row: FailureRow
    title: str
    facts: tuple[tuple[str, str], ...]
    message: str = ""
    frames: tuple[str, ...] = ()
    stderr: str = ""
    figures: tuple[Figures, ...] = ()
    values: tuple[Values, ...] = ()
    said: str = ""
    before: Picture | None = None
    after: Picture | None = None
    source: str = ""
    minimal: str = ""
    script: str = ""
    script_note: str = ""
    curve: str = ""
    steps: tuple[StepInfo, ...] = ()
    layers: tuple[tuple[str, ...], ...] = ()
    enters: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    illustration_heading: str = ""
    illustrations: tuple[Illustration, ...] = ()
    matters: tuple[str, ...] = ()
    passes: str = ""
    passing: str = ""
    notes: tuple[str, ...] = ()

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Describe the looks of the boxes in the pictures."""
        there = {look for drawn in (self.before, self.after) if drawn is not None for look in drawn.looks}
        return [(look, text) for look, text in _LOOKS.items() if look in there]


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The content of the page. ``name`` is the name of the index without its directory. ``notes`` list omissions."""

    name: str
    groups: tuple[Group, ...]
    details: tuple[Detail, ...] = ()
    notes: tuple[str, ...] = ()
    version: str = field(default=__version__)

    @property
    def count(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    @property
    def states(self) -> list[str]:
        return sorted({row.state for group in self.groups for row in group.rows})

    @property
    def kinds(self) -> list[str]:
        return sorted({group.kind for group in self.groups})

    @property
    def backends(self) -> list[str]:
        return sorted({row.backend for group in self.groups for row in group.rows})


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def render(report: FailureReport) -> str:
    """The page as one HTML file, without other files."""
    template = environment().get_template("report.html.j2")
    return template.render(report=report, look=look("report.css", "pictures.js", "report.js"), page=PAGE, rows=ROWS)
