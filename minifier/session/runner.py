"""`minify run`: every pending capture of an index, one after the other, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from ...backends.provenance.spec import InvalidSpec
from ...store.errors import StoreError
from ...store.index import CaptureInfo, Index, State
from ...store.index.trust import is_ours
from ..commands import console
from ..reducer.history import begin_at
from ..sandbox.cluster import Cluster, connect
from .capture import CaptureOutcome, reduce_capture
from .options import MinifyOptions

#: What a plain `minify run` takes up.
OPEN = (State.PENDING, State.REDUCING, State.BLOCKED)


def run_pending(
    db: str,
    ids: Sequence[int],
    options: MinifyOptions,
    *,
    again: bool = False,
    quiet: bool = False,
    confirm: Callable[[str], bool] = lambda question: False,
) -> list[CaptureInfo]:
    """Minify the captures of ``db`` that are pending, or those of ``ids`` that are; their rows afterwards.

    Of ``ids``, a capture that was done before is left as it is unless ``again`` or gone on with from a step of its
    history; its row is among the answers.
    Several processes may do this at once: each capture is minified by one of them.
    Captures made elsewhere run only with ``options.trust`` or when ``confirm(question)`` says so. Other failures
    found on the way are stored as pending captures and left for the next run. ``KeyboardInterrupt`` leaves the
    capture at work pending; everything learned so far is kept.
    """
    with (
        Index.open(db) as index,
        connect(options.executor) if options.executor else nullcontext() as cluster,
        index.claims() as claims,
        console.RunProgress(quiet=quiet) as progress,
    ):
        if not options.jobs:
            options = replace(options, jobs=1 if cluster is None else cluster.threads)
        chosen = index.captures(ids)
        if options.from_step is not None:
            again = True
            for capture in chosen:  # said before anything is begun
                begin_at(index, capture.id, options.from_step)
        todo = [c for c in chosen if c.state in OPEN or (again and c.state is not State.UNSUPPORTED)]
        skipped = [c for c in chosen if c not in todo] if ids else []
        children: list[int] = []
        for capture in todo:
            progress.begin(capture)
            if not claims.take(capture.id):
                progress.end("another process is at work on it")
                continue
            now = index.capture(capture.id)
            if now.state is not capture.state and now.state not in OPEN:  # another process was quicker
                progress.end(console.outcome(now))
            else:
                outcome = _one(index, now, options, progress, confirm, cluster)
                children += outcome.children
                progress.end(console.outcome(index.capture(capture.id)))
            claims.give_back(capture.id)
        done = index.captures([c.id for c in todo]) if todo else []
    if not quiet:
        console.summary(done, children, db, skipped=skipped)
    return sorted([*done, *skipped], key=lambda row: row.id)


def _one(
    index: Index,
    capture: CaptureInfo,
    options: MinifyOptions,
    progress: console.RunProgress,
    confirm: Callable[[str], bool],
    cluster: Cluster | None,
) -> CaptureOutcome:
    """Minify one capture and write down its state, whatever happens."""
    try:
        case = index.case(capture.id)
        question = console.question(capture, case)
    except (StoreError, InvalidSpec) as error:  # the others still get their turn
        index.set_state(capture.id, State.BLOCKED, str(error))
        return CaptureOutcome(State.BLOCKED, str(error))
    if not options.trust and not is_ours(case, capture.provenance.get("origin")):
        with progress.paused():
            agreed = confirm(question)
        if not agreed:
            outcome = CaptureOutcome(State.BLOCKED, "not run: it was captured elsewhere, and was not trusted (--trust)")
            index.set_state(capture.id, outcome.state, outcome.reason)
            return outcome
    index.set_state(capture.id, State.REDUCING)
    try:
        outcome = reduce_capture(index, capture, options, progress, cluster)
    except BaseException:
        index.set_state(capture.id, State.PENDING)
        raise
    index.set_state(capture.id, outcome.state, outcome.reason)
    return outcome
