"""The HTML report: every failure of an index in one file that works offline.

The page has a list of groups of failures with one signature, and a view of each failure that is embedded in full. Views
that are not open are in ``<template>`` elements, which cost a browser little, so a page with ten thousand failures is
quick. Jinja escapes every text. Pictures and highlighted code are markup from modules of ours, which escape texts, too.
A Content-Security-Policy names style and script by their hashes, so nothing else can run, and nothing is loaded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer, PythonLexer

from ... import __version__
from ...backends.adapters import Illustration
from ...backends.drawing import svg as drawing
from ...store.index import StepInfo
from ...store.text import count, printable
from .figures import Figures
from .phrases import points_to
from .picture import Picture

#: The number of groups on a page, and of rows of a group that are shown at first.
PAGE, ROWS = 50, 100
#: Graphs of more nodes can be searched.
SEARCHED = 20
#: The most backends, and operators, in a heading.
_NAMED = 3
#: The most characters of a text that is highlighted.
LONGEST = 400_000


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One failure in the list. Sizes are numbers of compute nodes; ``operators`` names what its smallest graph calls.
    ``embedded`` if the report has it in full, ``has_script`` if that includes a script."""

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


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The content of the page. ``name`` is that of the index without its directory. ``notes`` say what was left out."""

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
    style = _resource("report.css").replace("/* graphs */", drawing.STYLE)
    script = _resource("report.js")
    return _environment().get_template("report.html.j2").render(
        report=report, style=Markup(style), script=Markup(script), style_hash=_hash(style), script_hash=_hash(script),
        page=PAGE, rows=ROWS, searched=SEARCHED,
    )  # fmt: skip


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fxminify", "repro_templates/templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {
        "python": partial(_highlighted, lexer=PythonLexer(stripnl=False)),
        "difference": partial(_highlighted, lexer=DiffLexer(stripnl=False)),
        "drawn": Markup,  # a picture of ours, in which every text is escaped already
        "count": count, "image_address": _image_address, "points_to": points_to,
    }  # fmt: skip
    environment.finalize = _finalize
    return environment


def _finalize(value: object) -> object:
    return printable(value, "\n\t") if type(value) is str else value


def _highlighted(text: str, lexer: PythonLexer | DiffLexer) -> Markup:
    text = printable(text, "\n\t")
    if len(text) > LONGEST:
        return Markup.escape(f"{text[:LONGEST]}\n[...]")
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True, classprefix="c-")).rstrip("\n"))


def _image_address(svg: str) -> str:
    """A ``data:`` address of a picture from an index, which is shown as an image, so that nothing in it runs."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8", "replace")).decode()


@cache
def _resource(name: str) -> str:
    return (resources.files("fxminify") / "repro_templates" / "templates" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
