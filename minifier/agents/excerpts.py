"""Short answers: the fields of a failure that an agent needs first, and pages of long texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The fields of a failure in lists.
SHORT = (
    "id", "state", "kind", "phase", "backend", "signature", "headline", "reason", "nodes_before", "nodes_after",
    "verified", "runs", "standing",
)  # fmt: skip
#: The most characters of one page, the most results of a divergence, and the most bugs and operators of a hunt.
PAGE, _RESULTS, _BUGS, _NAMES = 8000, 4, 20, 6
_PARTS = ("failure", "captured", "minimal", "verification", "divergence", "layer", "matters", "cause", "versions")


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first fields of a failure, without empty ones."""
    return {name: row[name] for name in SHORT if row.get(name) not in (None, "")}


def detailed(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known about a failure in short: its error, its graph, and the findings in words."""
    known = {name: report.get(name) or {} for name in _PARTS}
    failure, runs, minimal, needs = (known[name] for name in ("failure", "verification", "minimal", "matters"))
    names = ("kind", "phase", "signature", "headline")
    out = {name: report.get(name) for name in ("id", "state", "backend", "reason")}
    out |= {name: failure.get(name) for name in names}
    out |= {"nodes_before": known["captured"].get("nodes"), "nodes_after": minimal.get("nodes")}
    out |= {"verified": runs.get("shown"), "runs": runs.get("runs"), "comes_from": minimal.get("comes_from")}
    out["graph"] = (minimal.get("source") or known["captured"].get("source") or "")[:PAGE]
    out["results"] = (known["divergence"].get("results") or [])[:_RESULTS]
    out["fails_in"] = known["layer"].get("fails_in")
    out["ways_around"] = ["; ".join(way["lines"]) for way in report.get("ways_around") or () if way["helps"]]
    out["matters"] = [text for text in (needs.get("summary"), *needs.get("sentences", ())) if text]
    out["cause"] = known["cause"].get("sentences")
    out["retested"] = known["versions"].get("standing")
    return {name: value for name, value in out.items() if value not in ("", [], None)}


def hunted(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a hunt in short: how many programs are in each state, and the first bugs."""
    bugs = [
        {"capture": bug["capture"], "kind": bug["kind"], "headline": bug["headline"],
         "operators": bug["names"][:_NAMES], "programs": len(bug["programs"])}
        for bug in found["bugs"]
    ]  # fmt: skip
    out = {"totals": found["totals"], "bugs": bugs[:_BUGS], "more_bugs": max(0, len(bugs) - _BUGS)}
    return out | {"stopped": found["stopped"], "versions": found["versions"]}


def bisected(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a bisection in short: the graphs that are needed, the first nodes of each, and captures."""
    graphs = [
        {**{name: one["graph"][name] for name in ("backend", "nodes", "at")}, "compiled": one["compiled"][:_BUGS],
         "more_nodes": max(0, len(one["compiled"]) - _BUGS)}
        for one in found["found"]
    ]  # fmt: skip
    out = {name: found[name] for name in ("graphs", "runs", "reason")}
    return out | {"found": graphs, "captured": [short(row) for row in found["captured"]]}


def page(text: str, offset: int) -> dict[str, Any]:
    """Return the page of ``text`` from ``offset`` on. ``next_offset`` is the start of the next one, None at the end."""
    offset = max(offset, 0)
    end = offset + PAGE
    return {"text": text[offset:end], "characters": len(text), "next_offset": end if end < len(text) else None}
