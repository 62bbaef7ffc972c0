"""Find the first node of a captured graph whose value differs by more than eager's own error.

The backend is asked about the captured graph with every value as an output. Where these values have more than `BUDGET`
bytes together, only some are outputs, spread evenly, and the search goes on between the last one that agrees and the
first one that differs, on the part of the graph up to there. The additional outputs may change what the compiler fuses,
so there may be no answer. The answer is only a hint for the search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
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
#: The most bytes of values that one run returns. There are an eager, a compiled and a float64 one of each.
BUDGET = 64 << 20
_OUTPUT = re.compile(r"output (\d+)")
_BITS = re.compile(r"\d+")


def find(
    pool: Workers, case: Case, trace: Trace, failure: Failure, entry: str, timeout: float, *, budget: int = BUDGET
) -> dict[str, Any] | None:
    """``{"node", "position", "of", "class", "error", "eager_error"}`` of the first value of ``case`` that differs, or
    None where ``failure`` is no divergence of the forward pass or the values do not show it."""
    differs = failure.kind is FailureKind.DIVERGENCE and failure.detail.get("class")
    if not differs or failure.phase is not Phase.FORWARD or entry not in tasks.ENTRIES:
        return None
    classes = VALUES if differs in VALUES else (differs,)
    window, found = tensors_of_nodes(case, trace), None
    while window:
        names = spread(window, {name: _bytes(trace, name) for name in window}, budget)
        argument = tasks.observe_argument(returning(case, names), entry)
        seen = of_reply(pool.submit("observe", argument, timeout=timeout).result()).failure
        differing = {} if seen is None else _differing(seen, len(names), classes)
        if not differing:
            break
        first = min(differing)
        found = names[first], differing[first]
        window = window[window.index(names[first - 1]) + 1 if first else 0 : window.index(names[first])]
    if found is None:
        return None
    name, item = found
    evidence: dict[str, Any] = {key: item[key] for key in ("class", "error", "eager_error") if key in item}
    compute = [node.name for node in case.graph.compute]
    return {"node": name, "position": compute.index(name) + 1, "of": len(compute), **evidence}


def _differing(seen: Failure, outputs: int, classes: Container[str]) -> dict[int, dict[str, Any]]:
    """The outputs of ``seen`` that differ in one of these ``classes``, by index."""
    if seen.kind is not FailureKind.DIVERGENCE or seen.phase is not Phase.FORWARD:
        return {}
    found = {}
    for item in [dict(seen.detail), *seen.detail.get("others", ())]:
        place = _OUTPUT.fullmatch(str(item.get("where", "")))
        if place is not None and item.get("class") in classes and int(place[1]) < outputs:
            found[int(place[1])] = item
    return found


def tensors_of_nodes(case: Case, trace: Trace) -> list[str]:
    """The names of the compute nodes with a tensor as their value, in order. Empty where a value has no meaning
    outside of its region."""
    targets = json.dumps([n.target for n in case.graph.compute])
    if any(opened in targets for opened in REGIONS):
        return []
    return [n.name for n in case.graph.compute if (v := trace.values.get(n.name)) and v.kind is ValueKind.TENSOR]


def spread(names: Sequence[str], sizes: Mapping[str, int], budget: int) -> list[str]:
    """As many of ``names`` as have at most ``budget`` bytes together, spread evenly, with the last one; two at least
    where there are two, so that a search with them ends."""
    step = 1
    while True:
        chosen = list(names[::-1][::step][::-1])
        if len(chosen) <= 2 or sum(sizes[name] for name in chosen) <= budget:
            return chosen
        step *= 2


def returning(case: Case, names: Sequence[str]) -> Case:
    """The part of ``case`` up to the last of the nodes ``names``, with their values as its outputs."""
    nodes = case.graph.nodes
    end = next(i for i, node in enumerate(nodes) if node.name == names[-1]) + 1
    kept = (*nodes[:end], *(node for node in nodes[end:-1] if node.op == "placeholder"))
    output = replace(case.graph.output, args=({"tuple": [{"ref": name} for name in names]},))
    return replace(case, graph=Graph((*kept, output), case.graph.attrs, case.graph.training), backward=False)


def _bytes(trace: Trace, name: str) -> int:
    """The size of the value of a node. Views count, because a compiler may copy what it returns."""
    spec = trace.tensor(name)
    return 0 if spec is None else spec.numel * (int(digits[0]) // 8 if (digits := _BITS.findall(spec.dtype)) else 1)


def keep(index: Index, capture: int, found: dict[str, Any]) -> None:
    index.artifacts.save(capture, ARTIFACT, found)


def stored(index: Index, capture: int) -> dict[str, Any] | None:
    """Return the artifact that `keep` stored for ``capture``, or None if it is missing or cannot be read."""
    found = index.artifacts.get(capture, ARTIFACT)
    return found if isinstance(found, dict) else None
