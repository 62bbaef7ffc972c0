"""What a capture holds is exchanged at every point between reading and running: only what was agreed to runs.

The trials run verbs up to the point where a process would start, and note what that would execute. An adversary on
another connection exchanges documents, scripts and tags before each statement that a verb sends, in both directions:
foreign material comes into the row of this user, and tags of this user come to foreign material.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import exchange
import pytest
from exchange import Adversary

from fxminify.minifier.oracle.ablation import ablate
from fxminify.minifier.regression.retest import RetestOptions, retest
from fxminify.minifier.reporting.emit import verify_stored
from fxminify.minifier.reporting.export import ExportRequest, export
from fxminify.minifier.session.minify import minify
from fxminify.minifier.session.options import MinifyOptions
from fxminify.service.workers.driver import Job, drive
from fxminify.service.workers.log import TaskLog
from fxminify.store.errors import StoreError
from fxminify.store.index import Index, queue


def _work(place: str, kind: str) -> None:
    """A worker without --trust does a task about capture 1."""
    with Index.open(place) as index:
        for old in index.tasks.page():
            with suppress(StoreError):
                index.tasks.cancel(old.id)
        index.tasks.add(1, kind=kind, config={"again": True})
        can = {"trust", "backend=eager", "explain", "torch=2.13"}
        task = index.tasks.claim(index.tasks.join("one", can), can)
    assert task is not None
    assert drive(Job(place, task.id, task.fence, os.getpid(), tuple(can)), TaskLog()) == 0


#: Each verb that runs something of capture 1, without --trust and with nobody to ask.
VERBS: dict[str, Callable[[str], object]] = {
    "run": lambda place: minify(place, [1], options=MinifyOptions(again=True, jobs=1, explain=False)),
    "run --from-step": lambda place: minify(place, [1], options=MinifyOptions(from_step=1, jobs=1)),
    "retest": lambda place: retest(place, [1], RetestOptions(again=True)),
    "retest --backend": lambda place: retest(place, [1], RetestOptions(backends=("aot_eager",), again=True)),
    "verify": lambda place: verify_stored(place, [1], runs=2, timeout=10),
    "ablate": lambda place: ablate(place, 1),
    "repro --format pytest": lambda place: export(place, 1, ExportRequest("pytest")),
    "work: minify": lambda place: _work(place, queue.MINIFY),
    "work: ablate": lambda place: _work(place, queue.ABLATE),
    "work: retest": lambda place: _work(place, queue.RETEST),
}
#: What is exchanged: all of it, all but the tags, and the documents of cases alone.
ALL = exchange.COLUMNS
NO_TAGS = {
    "captures": ("document",), "repros": ("text", "document"), "reductions": ("best",), "steps": ("document",),
}  # fmt: skip


#: A verb of each kind is tried in every run of the suite.
QUICK = ("run", "retest", "verify")
SLOW = [verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS]


@pytest.fixture
def victim(place: str) -> str:
    exchange.planted(place)
    return place


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exchange.planted(str(tmp_path / "repro.db"))
    return str(tmp_path / "repro.db")


def _exchange_before_each_statement(
    place: str, verb: str, columns: exchange.Columns, monkeypatch: pytest.MonkeyPatch, *, back: bool = False
) -> tuple[int, int]:
    """How many trials there were, and in how many of them something ran, which was always the victim's own.

    With ``back`` the rows have foreign material at first, and are made whole meanwhile.
    """
    adversary, own = Adversary(place, columns), 0
    for at in range(200):
        if back:
            adversary.exchange()
            assert adversary.done
        meanwhile = exchange.between(at, adversary.restore if back else adversary.exchange)
        with exchange.recorded(monkeypatch) as ran, meanwhile as sent, suppress(StoreError):
            VERBS[verb](place)
        assert not ran.evil, f"exchanged before statement {at}: {ran.seen}"
        own += bool(ran.seen)
        adversary.restore()
        assert not adversary.done
        if len(sent) <= at:
            assert exchange.tables_read(sent) >= {"captures", "documents"}
            return at + 1, own
    raise AssertionError


@pytest.mark.parametrize("verb", SLOW)
def test_what_is_exchanged_before_a_statement_never_runs(file: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the victim made does, unless it was exchanged before it was read."""
    trials, own = _exchange_before_each_statement(file, verb, NO_TAGS, monkeypatch)
    assert 0 < own < trials


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "back"), [(ALL, False), (NO_TAGS, False), (NO_TAGS, True)])
@pytest.mark.parametrize("verb", VERBS)
def test_whatever_is_exchanged_and_wherever(
    victim: str, verb: str, columns: exchange.Columns, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file and on a server, with and without the tags, and back again: foreign material gets tags meanwhile.

    A verb that refuses foreign material ends after the few statements that read it: what counts is that it read, and
    that it ran the victim's own where that was in place.
    """
    trials, own = _exchange_before_each_statement(victim, verb, columns, monkeypatch, back=back)
    assert 0 < own < trials


@pytest.mark.server
@pytest.mark.parametrize("verb", ["run", "run --from-step", "work: minify"])
def test_a_row_that_was_locked_before_and_is_exchanged_while_the_verb_waits(
    url: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adversary has the lock of the row in hand: the verb reads, waits for the row to write its state, and by the
    time it goes on the row is another one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exchange.planted(url)
    adversary, waited = Adversary(url, NO_TAGS), False
    with exchange.recorded(monkeypatch) as ran, ThreadPoolExecutor(1) as beside:
        with adversary.connected() as held:
            for text, values in adversary.statements():
                held.execute(text, values)
            verb_done = beside.submit(VERBS[verb], url)
            while not (waited or verb_done.done()):
                time.sleep(0.02)
                with adversary.connected() as look:
                    waited = look.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None
        with suppress(StoreError):
            verb_done.result(60)
    assert waited
    assert ran.seen
    assert not ran.evil, ran.seen


def test_the_trials_see_what_they_are_for(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they could not fail: with --trust, what was exchanged runs and is seen."""
    adversary = Adversary(file, ALL)
    adversary.exchange()
    with exchange.recorded(monkeypatch) as ran:
        minify(file, [1], options=MinifyOptions(again=True, trust=True, jobs=1))
        assert ran.evil
        ran.seen.clear()
        verify_stored(file, [1], runs=2, timeout=10, trust=True)
        assert ran.evil
