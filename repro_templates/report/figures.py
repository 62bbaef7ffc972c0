"""Figures for a table: the errors of the results of a divergence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...store.failure import NUMERIC, Failure, FailureKind
from .phrases import one_line


@dataclass(frozen=True, slots=True)
class Figures:
    """The error of one result.

    ``error`` is the error of the compiled result against a float64 run, ``eager`` eager's own. ``elements`` of
    ``of`` elements differ.
    """

    where: str
    kind: str
    error: str
    eager: str
    elements: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Values:
    """A result of a script that differs in ``elements``.

    At the index ``at`` it differs most, by ``difference``: the compiled function gives ``actual``, eager ``expected``.
    ``all_actual`` and ``all_expected`` have all values of a small result. ``form`` is its dtype and its shape.
    """

    where: str
    elements: str
    difference: str
    at: str
    actual: str
    expected: str
    all_actual: str = ""
    all_expected: str = ""
    form: str = ""


def form(dtype: object, shape: object, expected_dtype: object, expected_shape: object) -> str:
    """The dtype and the shape of a result: ``float32[4]``, or ``int64[4] instead of int32[4]``; empty if unknown."""
    actual, expected = (
        f"{name}[{', '.join(map(str, sizes))}]" if name and isinstance(sizes, list | tuple) else ""
        for name, sizes in ((dtype, shape), (expected_dtype, expected_shape))
    )
    return actual if actual == expected or not expected else f"{actual} instead of {expected}"


def short(text: object) -> str:
    """A number with six digits; other texts as they are."""
    try:
        return f"{float(str(text)):.6g}"
    except ValueError:
        return str(text)


def figures(failure: Failure) -> Iterator[Figures]:
    """The figures of a divergence and of those beside it, in their order."""
    for item in evidence(failure):
        elements = f"{item.get('elements', '?')} of {item.get('of', '?')}"
        texts = [one_line(str(item.get(key, "")), 40) for key in ("where", "class", "dtype")]
        errors = number(item["error"]), number(item["eager_error"])
        yield Figures(texts[0], texts[1], *errors, one_line(elements, 40), texts[2])


def evidence(failure: Failure) -> Iterator[Mapping[str, Any]]:
    """The details of a divergence and of those beside it that have errors against a float64 run."""
    if failure.kind is not FailureKind.DIVERGENCE:
        return
    others = failure.detail.get("others", ())
    for item in [dict(failure.detail), *(others if isinstance(others, list | tuple) else ())]:
        known = isinstance(item, dict) and item.get("class") in (*NUMERIC, "mutation")
        if known and number(item.get("error")) and number(item.get("eager_error")):
            yield item


def number(value: object) -> str:
    """A stored number with three digits, empty for anything else."""
    try:
        return f"{float(str(value)):.3g}"
    except ValueError:
        return ""
