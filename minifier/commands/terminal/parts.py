"""Parts of all output on the terminal: rows, fields, source.

Everything from a database is untrusted text: it is printed without markup and without control characters, so a
message can neither colour the terminal nor move its cursor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...printable import printable, shown


def rows(items: Sequence[Mapping[str, Any]], *, console: Console | None = None) -> None:
    """A list of like-shaped mappings as a table."""
    console = console or Console()
    out = Table(box=None, pad_edge=False)
    for name in items[0] if items else ():
        out.add_column(name)
    for item in items:
        out.add_row(*(Text(shown(v)) for v in item.values()))
    console.print(out)


def field(name: str, value: object, console: Console) -> None:
    """A name and what it has, in as many lines as that takes; nothing where it has nothing."""
    if value is None or value == "":
        return
    lines = Text(shown(value)).wrap(console, max(console.width - 12, 20), overflow="fold")
    for place, line in enumerate(lines):
        line.rstrip()
        console.print(Text.assemble((f"{name if place == 0 else '':>10}  ", "bold"), line), soft_wrap=True)


def code(text: str, language: str = "python", *, console: Console | None = None) -> None:
    """Source as it is; on a terminal in colours, and without what could move its cursor."""
    console = console or Console()
    if not console.is_terminal:
        console.file.write(text if text.endswith("\n") else f"{text}\n")
        return
    from rich.syntax import Syntax  # for colours only

    drawn = Syntax("", language, theme="ansi_dark", background_color="default").highlight(printable(text, 400_000))
    drawn.rstrip()
    console.print(drawn, soft_wrap=True)
