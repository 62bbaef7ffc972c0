"""Find the first node of a captured graph whose value differs by more than eager's own error.

The backend is asked once about the captured graph with every value as an output. The additional outputs may change what
the compiler fuses, so there may be no answer. The answer is only a hint for the search.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from ...store.document.case import Case, Graph
from ...store.failure import VALUES, Failure, FailureKind, Phase
from ...store.index import Index
from ..candidate.graph_view import REGIONS
from ..candidate.trace import Trace, ValueKind
from ..sandbox.pool import Workers
from . import tasks
from .observation import of_reply

#: The kind of the artifact.
ARTIFACT = "first-node"
_OUTPUT = re.compile(r"output (\d+)")


def find(
    pool: Workers, case: Case, trace: Trace, failure: Failure, entry: str, timeout: float
) -> dict[str, Any] | None:
    """``{"node", "position", "of", "class", "error", "eager_error"}`` of the first value of ``case`` that differs, or
    None where ``failure`` is no divergence of the forward pass or the values do not show it."""
    differs = failure.kind is FailureKind.DIVERGENCE and failure.detail.get("class")
    if not differs or failure.phase is not Phase.FORWARD or entry not in tasks.ENTRIES:
        return None
    classes = VALUES if differs in VALUES else (differs,)
    asked, names = returning_all(case, trace)
    if not names:
        return None
    seen = of_reply(pool.submit("observe", tasks.observe_argument(asked, entry), timeout=timeout).result()).failure
    if seen is None or seen.kind is not FailureKind.DIVERGENCE or seen.phase is not Phase.FORWARD:
        return None
    found = {}
    for item in [dict(seen.detail), *seen.detail.get("others", ())]:
        place = _OUTPUT.fullmatch(str(item.get("where", "")))
        if place is not None and item.get("class") in classes and int(place[1]) < len(names):
            found[int(place[1])] = item
    if not found:
        return None
    first = min(found)
    evidence = {key: found[first][key] for key in ("class", "error", "eager_error") if key in found[first]}
    compute = [node.name for node in case.graph.compute]
    return {"node": names[first], "position": compute.index(names[first]) + 1, "of": len(compute), **evidence}


def returning_all(case: Case, trace: Trace) -> tuple[Case, list[str]]:
    """``case`` with the tensor of every compute node as an output, and their names in order.

    There are no names where a value has no meaning outside of its region.
    """
    names = [n.name for n in case.graph.compute if (v := trace.values.get(n.name)) and v.kind is ValueKind.TENSOR]
    targets = json.dumps([n.target for n in case.graph.compute])
    if any(opened in targets for opened in REGIONS):
        return case, []
    output = replace(case.graph.output, args=({"tuple": [{"ref": name} for name in names]},))
    graph = Graph((*case.graph.nodes[:-1], output), case.graph.attrs, case.graph.training)
    return replace(case, graph=graph, backward=False), names


def keep(index: Index, capture: int, found: dict[str, Any]) -> None:
    index.artifacts.save(capture, ARTIFACT, found)


def stored(index: Index, capture: int) -> dict[str, Any] | None:
    """Return the artifact that `keep` stored for ``capture``, or None if it is missing or cannot be read."""
    found = index.artifacts.get(capture, ARTIFACT)
    return found if isinstance(found, dict) else None
