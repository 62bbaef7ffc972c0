"""Everything that an index stores about one failure, as data, for `minify show`. Runs nothing and builds no graph."""

from __future__ import annotations

from typing import Any

from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.function import print_graph
from ...store import codec
from ...store.document.case import Case
from ...store.document.program_lines import comes_from
from ...store.errors import StoreError
from ...store.index import Index
from ..oracle import ablation, first_node, rest
from ..reducer import history
from . import cause, record
from .standing import retested


def details(index: Index, capture_id: int, *, captured: bool = False) -> dict[str, Any]:
    """The failure, its minimal graph, its reduction, and the results of retests.

    ``failure`` is as it was captured, ``shown`` as the script showed it. The graph is the captured one if ``captured``
    is true or there was no reduction yet.
    """
    info = index.captures.get(capture_id)
    out: dict[str, Any] = info.to_json()
    if info.verified and (shown := record.shown(index, info)) is not None:
        out["shown"] = codec.dump(shown)
    told = history.stored(index, capture_id)
    if failed := {effort.pass_name: effort.problems for effort in (told.passes if told else ()) if effort.problems}:
        out["failed_passes"] = failed
    out |= _answers(index, capture_id)
    if lines := retested(index, info):
        out["retested"] = lines
    if (first := first_node.stored(index, capture_id)) is not None:
        out["first_node"] = first
    if info.state == "unsupported":
        return {**out, "graph": info.graph_text}
    best = index.best(info)
    if best is not None:
        out["comes_from"] = comes_from(best.graph)
        if (behind := rest.stored(index, capture_id)) is not None and (said := behind.words(best.graph)):
            out["rest"] = said
    case = index.captures.case(capture_id) if captured or best is None else best
    out["backend_spec"] = {k: v for k, v in case.backend.items() if k != "search_path"}
    out["context"] = {k: v for k, v in case.context.items() if k != "rng"}
    return {**out, "graph": _graph(case)}


def _answers(index: Index, capture_id: int) -> dict[str, Any]:
    """The answers of `minify explain` and `minify ablate`; in ``problems`` why one of them cannot be read."""
    out: dict[str, Any] = {}
    problems = []
    try:
        if (arises := cause.found(index, capture_id)) is not None:
            out["cause"] = arises.to_json() | {"sentences": arises.sentences()}
    except StoreError as error:
        problems.append(str(error))
    try:
        if (layers := ablation.stored(index, capture_id)) is not None:
            out["ablation"] = layers.to_json()
    except StoreError as error:
        problems.append(str(error))
    return out | ({"problems": problems} if problems else {})


def _graph(case: Case) -> str:
    try:
        return print_graph(case).text
    except Unprintable as error:
        return f"(cannot be printed: {error})"
