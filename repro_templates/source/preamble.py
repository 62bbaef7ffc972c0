"""The lines at the head of a script: which there are, in which order, and the names they bind."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

from ...store.document.case import Case
from ...store.failure import Failure, FailureKind
from .literals import itemsize

#: What a script that runs out of memory may take besides what its inputs need, in GiB: torch alone takes one.
MEMORY = 4


def split(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Import lines at the head, and the rest."""
    lines = list(lines)
    count = next((i for i, line in enumerate(lines) if not line.startswith(("import ", "from "))), len(lines))
    return lines[:count], lines[count:]


def ordered(lines: Iterable[str]) -> list[str]:
    """Import lines once each: the standard library, torch, everything else; comments kept."""
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


def memory_limit(case: Case, failure: Failure) -> str:
    """The line that keeps a failure which would take all memory of a machine from doing so; empty for every other."""
    if failure.kind is not FailureKind.OUT_OF_MEMORY or any(
        spec.device not in ("cpu", "meta") for spec in case.tensors
    ):
        return ""
    limit = MEMORY + 4 * sum(spec.numel * itemsize(spec.dtype) for spec in case.tensors) // 2**30
    return f"resource.setrlimit(resource.RLIMIT_DATA, ({limit} << 30, {limit} << 30))  # or it takes all there is"


def bound(lines: Iterable[str]) -> frozenset[str]:
    """Names that the lines bind at top level."""
    names = set()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names)
