"""Statements of a printed function, laid out in lines of at most `WIDTH` columns.

A call or tuple that does not fit is broken between its arguments; a string or a nested value is never broken, so a
line holding a long one may stay longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

WIDTH = 110
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Call:
    """``head(items...)tail``; with an empty head a tuple. ``brackets`` may hold what never moves to another line."""

    head: str
    items: tuple[str, ...]
    tail: str = ""
    brackets: tuple[str, str] = ("(", ")")

    def __str__(self) -> str:
        opening, closing = self.brackets
        return f"{self.head}{opening}{', '.join(self.items)}{closing}{self.tail}"

    def then(self, tail: str) -> Call:
        """This call with ``tail`` (``.t()``) applied to its result."""
        return replace(self, tail=self.tail + tail)

    def layout(self, indent: str, room: int) -> str:
        """In one line if that leaves it within ``room`` columns, else with the items in lines of their own."""
        if len(str(self)) <= room or not self.items:
            return str(self)
        opening, closing = self.brackets
        return f"{self.head}{opening}\n{block(self.items, indent)}\n{indent}{closing}{self.tail}"


@dataclass(frozen=True, slots=True)
class Statement:
    """``target = expression``, or the expression alone, ``depth`` blocks deep."""

    expression: str | Call
    target: str = ""
    depth: int = 0
    comment: str = ""

    def layout(self) -> str:
        indent = INDENT * self.depth
        start = f"{indent}{self.target} = " if self.target else indent
        comment = f"  # {self.comment}" if self.comment else ""
        if isinstance(self.expression, str):
            return f"{start}{self.expression}{comment}"
        laid_out = self.expression.layout(indent, WIDTH - len(start) - len(comment))
        first, newline, rest = laid_out.partition("\n")
        return f"{start}{first}{comment}{newline}{rest}"


def signature(name: str, parameters: Sequence[str]) -> str:
    """``def name(parameters):``."""
    line = f"def {name}({', '.join(parameters)}):"
    return line if len(line) <= WIDTH else f"def {name}(\n{block(parameters, '')}\n):"


def block(items: Sequence[str], indent: str) -> str:
    """``items``, each with a comma behind it, filled into lines one step deeper than ``indent``.

    Rows of a matrix stand in lines of their own.
    """
    indent += INDENT
    lines = [indent]
    for item in items:
        if len(lines[-1]) > len(indent) and (item.startswith("[") or len(lines[-1]) + len(item) + 1 > WIDTH):
            lines.append(indent)
        lines[-1] += f"{item}, "
    return "\n".join(line.rstrip() for line in lines)
