"""Short answers: the fields of a failure that an agent needs first, and pages of long texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The fields of a failure in lists.
SHORT = (
    "id", "state", "kind", "phase", "backend", "signature", "headline", "reason", "nodes_before", "nodes_after",
    "verified", "runs", "standing",
)  # fmt: skip
#: The most characters of one page.
PAGE = 8000


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first fields of a failure, without empty ones."""
    return {name: row[name] for name in SHORT if row.get(name) not in (None, "")}


def detailed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known about a failure in short: its error, its graph, and the findings in words."""
    out = short(row) | {"comes_from": row.get("comes_from", ""), "graph": str(row.get("graph", ""))[:PAGE]}
    explanation, cause = row.get("explanation") or {}, row.get("cause") or {}
    out["explanation"] = [text for text in (explanation.get("summary"), *explanation.get("sentences", ())) if text]
    out["cause"] = cause.get("sentences", [])
    out["retested"] = row.get("retested", [])
    return {name: value for name, value in out.items() if value not in ("", [])}


def page(text: str, offset: int) -> dict[str, Any]:
    """Return the page of ``text`` from ``offset`` on. ``next_offset`` is the start of the next one, None at the end."""
    offset = max(offset, 0)
    end = offset + PAGE
    return {"text": text[offset:end], "characters": len(text), "next_offset": end if end < len(text) else None}
