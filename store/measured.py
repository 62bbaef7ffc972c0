"""A divergence with the numbers of the script that showed it, in the details of its failure and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .failure import PRECISION, Failure, precision_message
from .text import count

#: In the details of a divergence: its results that differ in the run of the script, as rows of
#: `backends.comparison.mismatch.measure` with their places, and the text of the assertion.
MEASURED, SAID = "measured", "said"
#: In the details of a divergence: the figures of a comparison with a float64 run of the same case.
EVIDENCE = ("error", "eager_error", "allowed", "elements", "of")
#: The most other places that are named.
_PLACES = 20


def as_measured(failure: Failure, rows: Sequence[Mapping[str, Any]], said: str) -> Failure:
    """``failure``, a divergence, with the numbers of the script that showed it.

    ``rows`` has its results that differ, each with its place as ``where``; ``said`` is the text of its assertion.
    """
    where = str(failure.detail.get("where", ""))
    detail = {**failure.detail, MEASURED: [dict(row) for row in rows], SAID: said}
    rows = [row for row in rows if "error" in row]  # others differ in their dtype or shape alone
    row = next((row for row in rows if row["where"] == where), rows[0] if rows else None)
    message = failure.message.partition("\n")[0]
    if row is not None:
        message = measured_message(row)
        detail["where"] = row["where"]
        if detail.get("class") == PRECISION:
            message = precision_message(row["where"], message, str(detail.get("dtype")), str(detail.get("as")))
    if others := [other["where"] for other in rows if other is not row]:
        more = len(others) - _PLACES
        message += f"\nalso: {', '.join(others[:_PLACES])}" + f", {more} more" * (more > 0)
    return replace(failure, message=message, detail=detail)


def measured_message(row: Mapping[str, Any]) -> str:
    """A result that differs, in words: ``output 0 is off by 0.5 in 1 of 4 elements: 1.5 instead of 1 at [3]``."""
    values = f"{row['actual']} instead of {row['expected']}"
    at = f" at {row['at']}" if row["of"] > 1 else ""
    differ = f"{row['elements']} of {count(row['of'], 'element')}"
    error = float(row["error"])
    if not math.isfinite(error):
        return f"{row['where']} is {values}{at}" + (f"; {differ} differ" if row["of"] > 1 else "")
    return f"{row['where']} is off by {error:.3g} in {differ}: {values}{at}"
