"""Statements of a printed function, laid out in lines of at most `WIDTH` columns.

A call or tuple that does not fit is broken between its arguments; a string or a nested value is never broken, so a
line holding a long one may stay longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 110
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Call:
    """``head(items...)``; with an empty head a tuple."""

    head: str
    items: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.head}({', '.join(self.items)})"


@dataclass(frozen=True, slots=True)
class Statement:
    """``target = expression``, or the expression alone; ``depth`` counts the ``with`` blocks around it."""

    expression: str | Call
    target: str = ""
    depth: int = 0
    comment: str = ""

    def layout(self) -> str:
        indent = INDENT * (self.depth + 1)
        start = f"{indent}{self.target} = " if self.target else indent
        comment = f"  # {self.comment}" if self.comment else ""
        line = f"{start}{self.expression}"
        if len(line) + len(comment) > WIDTH and isinstance(self.expression, Call):
            return f"{start}{self.expression.head}({comment}\n{block(self.expression.items, indent)}\n{indent})"
        return line + comment


def signature(name: str, parameters: Sequence[str]) -> str:
    """``def name(parameters):``."""
    line = f"def {name}({', '.join(parameters)}):"
    return line if len(line) <= WIDTH else f"def {name}(\n{block(parameters, '')}\n):"


def block(items: Sequence[str], indent: str) -> str:
    """``items``, each with a comma behind it, filled into lines one step deeper than ``indent``."""
    indent += INDENT
    lines = [indent]
    for item in items:
        if len(lines[-1]) > len(indent) and len(lines[-1]) + len(item) + 1 > WIDTH:
            lines.append(indent)
        lines[-1] += f"{item}, "
    return "\n".join(line.rstrip() for line in lines)
