"""The layout of printed Python: lines of at most `WIDTH` columns, import blocks, blank lines.

A call or tuple that does not fit is broken between its arguments, and so is an argument that does not fit into a line.
A string is not broken, so a line with a long one may be longer. `spaced` changes the blank lines between top-level
statements to match a formatter.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...backends.provenance.syntax import DEFINITIONS, bound_names, first_line
from ...store.parsing import parse, parse_expression

WIDTH = 110
INDENT = "    "


@dataclass(frozen=True, slots=True)
class PrintedCall:
    """``head(items...)tail``, with an empty head a tuple. ``brackets`` may contain text that is not broken."""

    head: str
    items: tuple[str, ...]
    tail: str = ""
    brackets: tuple[str, str] = ("(", ")")

    def __str__(self) -> str:
        opening, closing = self.brackets
        return f"{self.head}{opening}{', '.join(self.items)}{closing}{self.tail}"

    def then(self, tail: str) -> PrintedCall:
        """This call with ``tail`` (``.t()``) applied to its result."""
        return replace(self, tail=self.tail + tail)

    def layout(self, indent: str, room: int) -> str:
        """The text in one line if it fits into ``room`` columns, else with the items in lines of their own."""
        if len(str(self)) <= room or not self.items:
            return str(self)
        opening, closing = self.brackets
        return f"{self.head}{opening}\n{block(self.items, indent)}\n{indent}{closing}{self.tail}"


@dataclass(frozen=True, slots=True)
class Statement:
    """``target = expression``, or the expression alone, ``depth`` blocks deep."""

    expression: str | PrintedCall
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


_COMMENT = re.compile(r"  # [^\"']*$")


def fitted(source: str, width: int) -> str:
    """``source`` with assignments and returned values of more than ``width`` columns broken between arguments, as far
    as that goes. What is no Python stays as it is."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    lines = source.split("\n")
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Return)]
    for node in sorted(found, key=lambda node: -node.lineno):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        if node.value is None or max(map(len, lines[first:last])) <= width:
            continue
        comment = _COMMENT.search(lines[first])  # where a call is broken it stands behind the first line
        parts = (ast.get_source_segment(source, node.value) or "").split("\n")
        if comment is not None and len(parts) > 1:
            parts[0] = parts[0].removesuffix(comment[0])
        start, indent = lines[first][: node.value.col_offset], lines[first][: node.col_offset]
        flat = " ".join(part.strip() for part in parts)
        flat = f"({flat})" if len(_arguments(_called(flat)[1])) > 1 else flat
        head, *rest = _broken(flat, indent, width, len(start)).split("\n")
        lines[first:last] = [f"{start}{head}{'' if comment is None else comment[0]}", *rest]
    narrow = "\n".join(lines)
    return narrow if ast.dump(parse(narrow)) == ast.dump(tree) else source


def block(items: Sequence[str], indent: str, width: int = WIDTH) -> str:
    """``items`` with commas, in full lines one step deeper than ``indent``.

    Each row of a matrix has a line of its own.
    """
    indent += INDENT
    lines = [indent]
    for item in items:
        if len(lines[-1]) > len(indent) and (item.startswith("[") or len(lines[-1]) + len(item) + 1 > width):
            lines.append(indent)
        first, *rest = f"{_broken(item, indent, width)}, ".split("\n")
        lines[-1] += first
        lines += rest
    return "\n".join(line.rstrip() for line in lines)


def _broken(item: str, indent: str, width: int, used: int = 0) -> str:
    """Return the argument ``item``, over several lines if it is too long and is a tuple, a list, a dict or a call.

    The line has ``used`` columns already, by default the columns of ``indent``.
    """
    if (used or len(indent)) + len(item) + 1 <= width or "\n" in item:
        return item
    try:
        text, call = _called(item)
    except SyntaxError:  # an entry of a dict
        entry = parse_expression(f"{{{item}}}").body
        assert isinstance(entry, ast.Dict)
        columns = item.encode()
        start = entry.values[0].col_offset - len("{")
        key, value = columns[:start].decode(), columns[start:].decode()
        return key + _broken(value, indent, width, len(indent) + len(key))
    (given,) = _arguments(call)
    node = given.value if isinstance(given, ast.keyword) else given
    if not isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Call) or not (inner := _items(node)):
        return item
    columns = text.encode()  # ast counts columns in bytes
    head = columns[len("_(") : node.func.end_col_offset if isinstance(node, ast.Call) else node.col_offset].decode()
    opening, closing = _BRACKETS.get(type(node), ("(", ")"))
    inside = block([columns[first.col_offset : last.end_col_offset].decode() for first, last in inner], indent, width)
    return f"{head}{opening}\n{inside}\n{indent}{closing}"


def _called(arguments: str) -> tuple[str, ast.Call]:
    """A call with these arguments."""
    text = f"_({arguments})"
    call = parse_expression(text).body
    assert isinstance(call, ast.Call)
    return text, call


_Argument = ast.expr | ast.keyword
_BRACKETS: dict[type[ast.expr], tuple[str, str]] = {ast.List: ("[", "]"), ast.Dict: ("{", "}")}


def _items(node: ast.Tuple | ast.List | ast.Dict | ast.Call) -> list[tuple[_Argument, _Argument]]:
    """The first and the last node of each item."""
    if isinstance(node, ast.Dict):
        return [(key or value, value) for key, value in zip(node.keys, node.values, strict=True)]
    return [(item, item) for item in (_arguments(node) if isinstance(node, ast.Call) else node.elts)]


def _arguments(call: ast.Call) -> list[_Argument]:
    return [*call.args, *call.keywords]


_IMPORTS = (ast.Import, ast.ImportFrom)


def spaced(source: str) -> str:
    """``source``, which must be valid Python, with the blank lines of a formatter."""
    body = parse(source).body
    lines = source.split("\n")
    ends = [node.end_lineno or 0 for node in body]
    if any(first_line(node) - 1 < end for node, end in zip(body[1:], ends, strict=False)):
        return source  # two statements in one line
    out = lines[: first_line(body[0]) - 1] if body else lines
    for before, node in zip([None, *body], body, strict=False):
        if before is not None:
            gap = lines[before.end_lineno or 0 : first_line(node) - 1]
            comments = [line for line in gap if line.strip()]
            out += [""] * _blank(before, node, len(gap) - len(comments)) + comments
        out += lines[first_line(node) - 1 : node.end_lineno]
    return "\n".join([*out, *lines[body[-1].end_lineno or 0 :]] if body else out)


def _blank(before: ast.stmt, node: ast.stmt, have: int) -> int:
    """The number of blank lines between two statements."""
    if isinstance(before, DEFINITIONS) or isinstance(node, DEFINITIONS):
        return 2
    if isinstance(before, ast.Expr) and isinstance(before.value, ast.Constant) and isinstance(before.value.value, str):
        return 1
    if isinstance(before, _IMPORTS) and (not isinstance(node, _IMPORTS) or (_standard(before) and not _standard(node))):
        return max(1, have)
    return have


def _standard(node: ast.Import | ast.ImportFrom) -> bool:
    name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
    return name.partition(".")[0] in sys.stdlib_module_names


def split(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The import lines at the head of a source, and the rest."""
    lines = list(lines)
    count = next((i for i, line in enumerate(lines) if not line.startswith(("import ", "from "))), len(lines))
    return lines[:count], lines[count:]


def ordered(lines: Iterable[str]) -> list[str]:
    """The import lines, each once: the standard library, torch, then others; with their comments."""
    unique: dict[str, str] = {}
    for line in lines:
        statement = line.partition("  #")[0].strip()
        if len(line) >= len(unique.get(statement, "")):
            unique[statement] = line
    merged = sorted(s for s in unique if s.startswith("from math import "))
    if len(merged) > 1:
        names = ", ".join(s.removeprefix("from math import ") for s in merged)
        unique = {s: line for s, line in unique.items() if s not in merged} | {f"from math import {names}": ""}
        unique[f"from math import {names}"] = f"from math import {names}"
    rank = {"torch": 2, "pytest": 1, **dict.fromkeys(sys.stdlib_module_names, 0)}
    return [unique[s] for s in sorted(unique, key=lambda s: (rank.get(s.split()[1].partition(".")[0], 3), len(s), s))]


def bound(lines: Iterable[str]) -> frozenset[str]:
    """The names that ``lines`` bind at top level."""
    return bound_names(parse("\n".join(lines)))
