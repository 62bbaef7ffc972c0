"""The cells of a running notebook as one program.

Cells are run in any order, and again after an edit. The program is what they amount to: each cell where it was run
last, in the order of these runs, without the definitions and assignments that a later cell has made anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ...store.live import ipython
from ...store.parsing import parse
from . import syntax

_REPLACED = (*syntax.DEFINITIONS, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True)
class CellProgram:
    """The ``lines`` of the program, and before which of them, counted from 0, the cell with a text ``starts``."""

    lines: list[str] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)

    def line(self, cell: str, line: int) -> int:
        """The line in the program of line ``line`` of a cell; 0 if the cell is not part of it."""
        start = self.starts.get(_bare(cell))
        return 0 if start is None else start + line


def program() -> CellProgram:
    """Return the program of the cells that were run so far. It is empty before the first cell."""
    return _program(ipython.cells())


@lru_cache(maxsize=2)
def _program(cells: tuple[str, ...]) -> CellProgram:
    last = {_bare(text): number for number, text in enumerate(cells) if text.strip()}
    out = CellProgram()
    bound: set[frozenset[str]] = set()
    kept: list[tuple[str, list[str]]] = []
    for text in sorted(last, key=lambda text: last[text], reverse=True):
        try:
            tree = parse(text)
        except (SyntaxError, ValueError):
            continue  # it did not run either
        lines = text.split("\n")
        for first, end in _made_anew(tree, bound):
            lines[first - 1 : end] = [""] * (end - first + 1)
        bound |= {names for node in tree.body if (names := _binds(node)) and not _reads(node, names)}
        kept.append((text, lines))
    for text, lines in reversed(kept):
        out.starts[text] = len(out.lines)
        out.lines.extend(lines)
    return out


def _made_anew(tree: ast.Module, later: set[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """First and last lines of the statements that bind just the names that a statement of a later cell binds."""
    spans = [(syntax.first_line(node), node.end_lineno or node.lineno) for node in tree.body]
    for node, (first, end) in zip(tree.body, spans, strict=True):
        alone = sum(a <= end and b >= first for a, b in spans) == 1  # no `a = 1; b = 2`
        if alone and _binds(node) in later:
            yield first, end


def _binds(node: ast.stmt) -> frozenset[str]:
    """The names that a definition, an import or an assignment binds; none for other statements."""
    return frozenset(syntax.names_bound_by(node) if isinstance(node, _REPLACED) else ())


def _reads(node: ast.stmt, names: frozenset[str]) -> bool:
    """Whether an assignment makes the new values of ``names`` of the old ones."""
    value = getattr(node, "value", None)
    return value is not None and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(value))


def _bare(text: str) -> str:
    """The text without what IPython and `linecache` add or leave out at its end."""
    return text.rstrip()
