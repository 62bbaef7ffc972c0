"""Blank lines as every formatter has them: two around functions and classes, one below the docstring and the imports.

Only gaps between top-level statements change, so what stands inside of a statement, a long string above all, stays.
"""

from __future__ import annotations

import ast
import sys

_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def spaced(source: str) -> str:
    """``source``, which must be Python."""
    body = ast.parse(source).body
    lines = source.split("\n")
    ends = [node.end_lineno or 0 for node in body]
    if any(_start(node) < end for node, end in zip(body[1:], ends, strict=False)):
        return source  # two statements in one line
    out = lines[: _start(body[0])] if body else lines
    for before, node in zip([None, *body], body, strict=False):
        if before is not None:
            gap = lines[before.end_lineno or 0 : _start(node)]
            comments = [line for line in gap if line.strip()]
            out += [""] * _blank(before, node, len(gap) - len(comments)) + comments
        out += lines[_start(node) : node.end_lineno]
    return "\n".join([*out, *lines[body[-1].end_lineno or 0 :]] if body else out)


def _start(node: ast.stmt) -> int:
    """Its first line, decorators included, counted from 0."""
    decorators = node.decorator_list if isinstance(node, _BLOCKS) else []
    return min([node.lineno, *(d.lineno for d in decorators)]) - 1


def _blank(before: ast.stmt, node: ast.stmt, have: int) -> int:
    """How many blank lines belong between two statements."""
    if isinstance(before, _BLOCKS) or isinstance(node, _BLOCKS):
        return 2
    if isinstance(before, ast.Expr) and isinstance(before.value, ast.Constant) and isinstance(before.value.value, str):
        return 1
    if isinstance(before, _IMPORTS) and (not isinstance(node, _IMPORTS) or (_standard(before) and not _standard(node))):
        return max(1, have)
    return have


def _standard(node: ast.Import | ast.ImportFrom) -> bool:
    name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
    return name.partition(".")[0] in sys.stdlib_module_names
