"""`fxminify.minify`: the failures of an index to verified scripts, one after the other. `minify run` is made of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from ...backends.provenance.spec import InvalidSpec
from ...backends.running.confinement import NoConfinement
from ...store.errors import LeaseLost, StoreError
from ...store.index import CaptureInfo, Index, State
from ..consent import NOT_TRUSTED, Confirm, may_run, refuse
from ..reducer.history import begin_at
from ..sandbox.cluster import connect
from . import notebook_progress
from .capture import CaptureOutcome, reduce_capture
from .events import CaptureFinished, CaptureStarted, Listener, Noted
from .options import MinifyOptions
from .resources import SharedResources
from .results import MinifyResult, MinifyResults

#: Captures in these states are minified when no ids are given.
OPEN = (State.PENDING, State.REDUCING, State.BLOCKED)
#: A capture that was done keeps this state when it is minified once more and that is interrupted.
DONE = (State.VERIFIED, State.UNVERIFIED, State.NOT_REPRODUCED, State.EAGER_REFUSES)
_DEFAULTS = MinifyOptions()


def minify(
    db: str | os.PathLike[str],
    ids: Sequence[int] | None = None,
    *,
    options: MinifyOptions = _DEFAULTS,
    listener: Listener | None = None,
    confirm: Confirm = refuse,
) -> MinifyResults:
    """Minify the failures of ``db`` and store a verified script of each. Return one result per capture, sorted by
    id.

    ``db`` is a path or a database URL. Without ``ids`` every pending capture is minified. With ``ids`` the captures
    that are not done yet are minified, or all of them with ``options.again``. ``listener`` gets each
    `fxminify.minifier.session.events.Event`; without one, a notebook shows the progress. Captures made by another
    installation run only with ``options.trust``, or if ``confirm(question)`` is true; others end as blocked.

    Other failures that are found on the way are stored as pending captures for the next call. Several processes may
    work on one index: each capture is minified by one of them. An interrupted call (``kill -9``, too) loses
    nothing, the next one continues where it stopped.

    Raises `fxminify.store.errors.StoreError` if the index cannot be used,
    `fxminify.minifier.sandbox.cluster.NoCluster` if ``options.executor`` is not available, and
    `fxminify.backends.running.confinement.NoConfinement` if ``options.sandbox`` is not available: then nothing was
    run.
    """
    tell = listener or notebook_progress.listener()
    if options.sandbox and options.executor:
        raise NoConfinement("--sandbox confines processes of this machine only, not workers of --executor: give one.")
    with (
        Index.open(os.fspath(db)) as index,
        connect(options.executor) if options.executor else nullcontext() as cluster,
    ):
        if not options.jobs and cluster is not None:
            options = replace(options, jobs=cluster.threads)
        again = options.again or options.from_step is not None
        chosen = index.captures.find(tuple(ids or ()), () if ids or again else OPEN)
        if options.from_step is not None:
            for capture in chosen:  # raises before any work is begun
                begin_at(index, capture.id, options.from_step)
        unreadable = [c for c in chosen if c.problem]
        chosen = [c for c in chosen if not c.problem]
        todo = [c for c in chosen if c.state in OPEN or (again and c.state is not State.UNSUPPORTED)]
        skipped = [c for c in chosen if c not in todo] if ids else []
        index.settle(besides={c.id for c in todo})
        others: dict[int, tuple[int, ...]] = {}
        with SharedResources(options, cluster) as resources:
            for capture in todo:
                tell(CaptureStarted(capture))
                if not index.leases.take(capture.id):
                    holders = [str(info) for info in index.leases.find() if info.capture == capture.id]
                    holder = holders[0] if holders else "another process"
                    tell(CaptureFinished(index.captures.get(capture.id), f"{holder} is working on it"))
                    continue
                now = index.captures.get(capture.id)
                why = ""
                try:
                    if now.state is capture.state or now.state in OPEN:  # else another process was quicker
                        others[capture.id] = _one(index, now, options, tell, confirm, resources).children
                except LeaseLost:
                    why = "another process took it over"
                    with suppress(LeaseLost):  # what waits to be written is dropped
                        index.verdicts.flush()
                tell(CaptureFinished(index.captures.get(capture.id), why))
                index.leases.give_back(capture.id)
                index.tasks.settle(capture.id)
        done = index.captures.find([c.id for c in todo]) if todo else []
        results = [MinifyResult(row, _script(index, row), others.get(row.id, ())) for row in done]
        results += [MinifyResult(row, _script(index, row), skipped=True) for row in skipped]
        results += [MinifyResult(row) for row in unreadable]
    return MinifyResults(sorted(results, key=lambda result: result.id))


def _script(index: Index, capture: CaptureInfo) -> str:
    repro = index.repros.get(capture.id, "script")
    return "" if repro is None else repro.text


def _one(
    index: Index,
    capture: CaptureInfo,
    options: MinifyOptions,
    listener: Listener,
    confirm: Confirm,
    resources: SharedResources,
) -> CaptureOutcome:
    """Minify one capture and write down its state, whatever happens."""
    begun: tuple[int, int] | None = None
    try:
        if options.from_step is None:
            stored = index.stored(capture.id).captured()
        else:
            reduction, stored = begin_at(index, capture.id, options.from_step)
            begun = reduction, options.from_step
        agreed = may_run(
            capture.id, stored, trust=options.trust, confirm=confirm, sandbox=options.sandbox,
            tell=lambda text: listener(Noted(capture.id, text)),
        )  # fmt: skip
    except (StoreError, InvalidSpec) as error:  # the others still get their turn
        index.captures.set_state(capture.id, State.BLOCKED, str(error))
        return CaptureOutcome(State.BLOCKED, str(error))
    if agreed is None:
        index.captures.set_state(capture.id, State.BLOCKED, NOT_TRUSTED)
        return CaptureOutcome(State.BLOCKED, NOT_TRUSTED)
    index.captures.set_state(capture.id, State.REDUCING)
    try:
        outcome = reduce_capture(index, capture, agreed, options, listener, resources, begun)
    except LeaseLost:
        raise
    except BaseException:
        if capture.state in DONE:
            index.captures.set_state(capture.id, capture.state, capture.reason)
        else:
            index.interrupted(capture.id)
        raise
    index.captures.set_state(capture.id, outcome.state, outcome.reason)
    return outcome
