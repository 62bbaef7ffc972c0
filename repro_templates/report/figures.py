"""How far the results of a divergence are off, in figures for a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...store.failure import NUMERIC, Failure, FailureKind
from .phrases import one_line


@dataclass(frozen=True, slots=True)
class Figures:
    """How far one result is off: ``error`` is that of the compiled result against a float64 run, ``eager`` eager's
    own; ``elements`` of ``of`` differ."""

    where: str
    kind: str
    error: str
    eager: str
    elements: str
    dtype: str


def figures(failure: Failure) -> Iterator[Figures]:
    """The figures of a divergence and of those beside it, in their order."""
    if failure.kind is not FailureKind.DIVERGENCE:
        return
    others = failure.detail.get("others", ())
    for item in [dict(failure.detail), *(others if isinstance(others, list | tuple) else ())]:
        if not isinstance(item, dict) or item.get("class") not in (*NUMERIC, "mutation"):
            continue
        error, eager = number(item.get("error")), number(item.get("eager_error"))
        if error and eager:
            elements = f"{item.get('elements', '?')} of {item.get('of', '?')}"
            texts = [one_line(str(item.get(key, "")), 40) for key in ("where", "class", "dtype")]
            yield Figures(texts[0], texts[1], error, eager, one_line(elements, 40), texts[2])


def number(value: object) -> str:
    """A stored number with three digits, empty for anything else."""
    try:
        return f"{float(str(value)):.3g}"
    except ValueError:
        return ""
