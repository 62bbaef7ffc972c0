"""Parse Python source, one thread at a time.

CPython counts the depth of a syntax tree for all threads of an interpreter together. Two of them that parse at the same
time now and then get ``SystemError: AST constructor recursion depth mismatch``:
https://github.com/python/cpython/issues/106905 and its successors.
"""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.RLock()


def parse(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The syntax tree of a module. Raises what `ast.parse` raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, name)


def parse_expression(source: str) -> ast.Expression:
    """The syntax tree of an expression. Raises what `ast.parse` raises."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode="eval")
