"""Replay a capture: ``Captured`` to ``Replayed``, or to the reason why its failure does not show.

A capture has several *variants*, ways to run it. The first one that shows the failure is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...backends.provenance.spec import BackendSpec
from ...store.document.case import Case, tag
from ...store.failure import EAGER, METADATA, Failure, FailureKind
from ...store.index import CaptureInfo, Index
from ...store.masking import mask
from ..oracle.replay import LIMIT, Replay, Shown, may_have_more_threads, replay
from .events import ReplayFinished, ReplayRan, ReplayStarted
from .options import MinifyOptions
from .services import Services
from .stages import Captured, Replayed, Step


def replays(captured: Captured, services: Services, *, part: int = 0) -> Replay:
    """Replay the case of ``captured``, and send the listener the events.

    If it is a part of the captured graph, ``part`` is its number of nodes. Raises `SandboxError` if the workers cannot
    work.
    """
    capture, options = services.capture, services.options
    services.listener(ReplayStarted(capture.id, options.replays, part))
    shown = _replay(captured.case, captured, services)
    services.listener(_finished(capture.id, shown, part))
    return shown


def replay_variants(captured: Captured, services: Services) -> tuple[Replay, Replayed | None]:
    """Replay the variants of ``captured`` up to the first that shows the failure, and send the listener the events.

    Return the last replay, and what can be reduced: None where no variant shows the failure. Raises as `replays` does.
    """
    capture, options = services.capture, services.options
    services.listener(ReplayStarted(capture.id, options.replays))
    ways = variants(captured.case, captured.failure) if captured.begun is None else [captured.case]
    for case in ways:
        shown = _replay(case, captured, services)
        if shown.reproduced:
            break
    services.listener(_finished(capture.id, shown, 0))
    return shown, Replayed(case, shown, shown.entry, begun=captured.begun) if shown.reproduced else None


def limit_of(captured: Captured, options: MinifyOptions) -> float:
    """Return the seconds that a run of the captured graph may take."""
    hang = captured.failure.detail.get("seconds")
    return options.timeout or (float(hang) if isinstance(hang, int | float) else LIMIT)


def _replay(case: Case, captured: Captured, services: Services) -> Replay:
    capture, options = services.capture, services.options
    return replay(
        services.pool,
        case,
        captured.matcher,
        runs=options.replays,
        prefer=entry_to_resume(services.index, capture.id, options, captured.begun),
        limit=limit_of(captured, options),
        again=services.again(),
        meanwhile=services.early.tell,
        ran=lambda number: services.listener(ReplayRan(capture.id, number)),
    )


def _finished(capture: int, shown: Replay, part: int) -> ReplayFinished:
    seen = shown.entries.get(shown.entry) or Shown()
    return ReplayFinished(capture, shown.reproduced, shown.entry, seen.matched, seen.runs, shown.reason, part)


def entry_to_resume(index: Index, capture_id: int, options: MinifyOptions, begun: Step | None = None) -> str:
    """The entry of the interrupted reduction that a run with these options can resume, or an empty string.

    Without it the replay picks the faster entry, which may differ from run to run. A run that went through several
    entries left several reductions; the oldest one is what it began with.
    """
    wanted = {
        "match": options.match,
        "error_regex": options.error_regex,
        "min_rate": options.min_rate,
        "from": None if begun is None else list(begun),
    }
    for reduction in index.reductions.unfinished(capture_id):
        if all(reduction.config.get(name) == value for name, value in wanted.items()):
            return str(reduction.config.get("entry", ""))
    return ""


def is_refused(provenance: Mapping[str, Any], failure: Failure, shown: Replay) -> bool:
    """Whether the program fails in eager mode as well.

    Not for a divergence: the program ran in eager. Where eager was not given the values of the program, only if it
    raises the captured error, and did not run when it was asked in the program.
    """
    if failure.kind is FailureKind.DIVERGENCE or not shown.refused:
        return False
    if provenance.get("data") != METADATA:
        return True
    return EAGER not in failure.detail and _head(shown.refused) == _head(f"{failure.type}: {failure.message}")


def _head(line: str) -> tuple[str, str]:
    """The type of an error and its first words, up to a colon, masked."""
    kind, _, said = line.partition(": ")
    return kind, mask(said.splitlines()[0].partition(":")[0] if said else "")


def variants(case: Case, failure: Failure) -> list[Case]:
    """Return the ways to replay a capture, the simplest first.

    A graph with symbolic sizes is first compiled with ``dynamic=True``, then as the program compiled it. The compiled
    graph is first called once, then as often as the program called it, and then with the inputs of earlier calls. All
    of that is done with a backend that a factory is called for, then with its copied source. At last the graph runs
    with one thread, which its script then sets.
    """
    ways = [way for with_backend in backends(case) for way in _variants(with_backend)]
    if failure.kind is FailureKind.CRASH or not may_have_more_threads(case):
        return ways
    return [*ways, replace(ways[0], context={**case.context, "threads": 1})]


def backends(case: Case) -> list[Case]:
    """``case`` with each way to have its backend back, the plainest first."""
    if "copied" not in case.backend:
        return [case]
    return [replace(case, backend=way.to_json()) for way in BackendSpec.from_json(case.backend).ways()]


def _variants(case: Case) -> list[Case]:
    symbolic = any(tag(value) == "sym" for value in case.inputs) and case.backend.get("dynamic") is None
    dynamic = replace(case, backend={**case.backend, "dynamic": True})
    ways = [dynamic, case] if symbolic else [case]
    same = [replace(way, calls=calls, earlier=()) for way in ways for calls in sorted({1, case.calls})]
    return same + [replace(way, calls=1) for way in ways if case.earlier]


def earlier(capture: CaptureInfo) -> str:
    """Describe the earlier actions of the process, which a replay may lack."""
    graphs, calls, shapes = (capture.provenance.get(key) for key in ("graph", "call", "shapes_before"))
    parts: list[str] = []
    if isinstance(graphs, int) and graphs > 1:
        parts.append(f"it was graph {graphs} that this process compiled")
    if isinstance(calls, int) and calls > 1:
        parts.append(f"it showed at call {calls}" + (f", after calls with shapes {shapes}" if shapes else ""))
    kept = capture.provenance.get("data") != METADATA
    lost = f"\nvalues that the failure may need were not kept ({_left_out(capture)}): capture it again with --data full"
    values = "" if kept else lost
    if role := capture.provenance.get("aot_graph"):
        refused = capture.provenance.get("refused")
        why = f"Dynamo's graph could not be stored ({refused})" if refused else "capture the whole with --level dynamo"
        values += f"\nit is the {role} graph of AOTAutograd alone: {why}"
    if not parts:
        return values
    happened = " and ".join(parts)
    return f"{values}\n{happened}: one graph and one call do not show a failure that depends on earlier ones"


def _left_out(capture: CaptureInfo) -> str:
    """The tensors without values, as the row names them."""
    named = capture.provenance.get("left_out")
    return named if isinstance(named, str) and named else "values of its tensors"
