"""`fxminify.minify` and `fxminify.install` from a Python program, on a real failure of TorchScript."""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import HERE
from captured import pending as pending_failure
from desks import invoke

import fxminify
from fxminify.minifier.oracle.replay import Replay, replay
from fxminify.minifier.reporting.emit import Emitter
from fxminify.minifier.reporting.export import stored_repro
from fxminify.minifier.session import capture, events, replays
from fxminify.minifier.session.early_script import EarlyScript
from fxminify.repro_templates.source.inputs import NeedsData
from fxminify.store.index import Index, State
from fxminify.store.index.index import INTERRUPTED

QUICK = fxminify.MinifyOptions(replays=1, runs=1, explain=False)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An index with one pending failure: TorchScript cannot read the graph module that Dynamo makes."""
    with pending_failure(tmp_path_factory.mktemp("captured"), 4) as path:
        yield path


def pending(captured: Path, copy: Path) -> Path:
    """A copy of the index in which nothing was minified yet."""
    with contextlib.closing(sqlite3.connect(captured)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("UPDATE captures SET state = 'pending'")
        for table in ("steps", "verdicts", "reductions", "repros", "artifacts", "leases"):
            target.execute(f"DELETE FROM {table}")
        target.commit()
    return copy


@pytest.fixture(scope="module")
def minified(captured: Path) -> tuple[Path, list[fxminify.MinifyResult], list[events.Event]]:
    """The index after `fxminify.minify`, what that returned, and the events it told."""
    told: list[events.Event] = []
    return captured, fxminify.minify(captured, options=QUICK, listener=told.append), told


Minified = tuple[Path, list[fxminify.MinifyResult], list[events.Event]]


def test_a_real_failure_is_minified(minified: Minified) -> None:
    _, (result,), _ = minified
    assert (result.id, result.state, result.verified, result.reason) == (1, State.VERIFIED, True, "")
    assert (result.capture.nodes_before, result.capture.nodes_after) == (2, 1)
    assert 'torch.compile(forward, backend="scripted")' in result.script
    environment = {**os.environ, "PYTHONPATH": HERE}
    command = [sys.executable, "-c", result.script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "cannot be used as a value" in done.stderr


def test_its_task_is_closed(minified: Minified) -> None:
    with Index.open(str(minified[0]), readonly=True) as index:
        tasks = [(task.kind, task.state.value) for task in index.tasks.page()]
    assert tasks == [("minify", "done"), ("ablate", "queued")]


def test_every_event_is_told(minified: Minified) -> None:
    _, (result,), told = minified
    kinds = [type(event) for event in told]
    assert kinds[:2] == [events.CaptureStarted, events.ReplayStarted]
    runs = [event.number for event in told if isinstance(event, events.ReplayRan)]
    assert runs == list(range(1, len(runs) + 1))
    replayed = told[2 + len(runs)]
    assert isinstance(replayed, events.ReplayFinished)
    assert replayed == events.ReplayFinished(1, True, replayed.entry, 1, 1)
    assert {events.QueryAnswered, events.StepAccepted} < set(kinds)
    steps = [event for event in told if isinstance(event, events.StepAccepted)]
    assert (steps[-1].nodes, steps[-1].number) == (1, len(steps))
    verified, rest, finished = told[-3:]
    assert (verified, finished) == (events.ScriptVerified(1, 1, 1), events.CaptureFinished(result.capture))
    assert isinstance(rest, events.QueryAnswered)
    assert rest.stage == "looking at the rest of the graph"


def test_what_was_done_is_left_as_it_is(minified: Minified) -> None:
    db, (first,), _ = minified
    assert fxminify.minify(db) == []
    (skipped,) = fxminify.minify(db, [1])
    assert (skipped.skipped, skipped.capture, skipped.script) == (True, first.capture, first.script)


def test_an_interrupted_second_run_leaves_a_verified_result_as_it_was(minified: Minified, tmp_path: Path) -> None:
    db, (first,), _ = minified
    copy = tmp_path / "repro.db"
    shutil.copy(db, copy)

    def interrupt(event: events.Event) -> None:
        if isinstance(event, events.QueryAnswered):
            raise KeyboardInterrupt

    again = replace(QUICK, again=True, match="origin")
    with pytest.raises(KeyboardInterrupt):
        fxminify.minify(copy, [1], options=again, listener=interrupt)
    with Index.open(str(copy), readonly=True) as index:
        row, repro = index.captures.get(1), index.repros.get(1)
    assert (row.state, row.nodes_after) == (State.VERIFIED, 1)
    assert repro is not None
    assert repro.text == first.script


@pytest.mark.slow
def test_a_run_goes_on_though_its_replays_show_another_signature(
    captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that depends on threads may show several signatures, other ones each time."""
    copy = pending(captured, tmp_path / "repro.db")

    def interrupt(event: events.Event) -> None:
        if isinstance(event, events.StepAccepted):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fxminify.minify(copy, options=QUICK, listener=interrupt)
    with Index.open(str(copy), readonly=True) as index:
        first = index.reductions.last(1)
        assert first is not None
        known = set(index.verdicts.find(first.id))

    def other(*args: Any, **options: Any) -> Replay:
        shown = replay(*args, **options)
        assert options["prefer"] == first.config["entry"]
        another = replace(shown.failures[0], type="AnotherError")
        return replace(shown, matcher=replace(shown.matcher, examples=(*shown.failures, another)))

    monkeypatch.setattr(replays, "replay", other)
    (result,) = fxminify.minify(copy, options=QUICK)
    with Index.open(str(copy), readonly=True) as index:
        last = index.reductions.last(1)
        assert last is not None
        assert (result.state, last.id) == (State.VERIFIED, first.id)
        assert {v.asks for key, v in index.verdicts.find(last.id).items() if key in known} <= {1}


@pytest.mark.slow
def test_a_first_script_is_kept_though_the_run_is_interrupted(
    captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = pending(captured, tmp_path / "repro.db")
    monkeypatch.setattr("fxminify.minifier.session.scripts.SLOW", 0.0)
    begin = EarlyScript.begin

    def wait(self: EarlyScript, emitter: Emitter, make: Any) -> None:
        begin(self, emitter, make)
        self.finish()

    def interrupt(event: events.Event) -> None:
        if isinstance(event, events.FirstScript):
            raise KeyboardInterrupt

    monkeypatch.setattr(EarlyScript, "begin", wait)
    with pytest.raises(KeyboardInterrupt):
        fxminify.minify(db, options=QUICK, listener=interrupt)
    with Index.open(str(db), readonly=True) as index:
        row = index.captures.get(1)
        assert (row.state, row.reason, row.nodes_after) == (State.VERIFIED, INTERRUPTED, 1)
        assert index.stored(1).ours
        assert [node.name for node in index.best(row).graph.compute] == ["sin"]  # type: ignore[union-attr]
        assert "```python" in stored_repro(index, 1, "issue")[0]
        for name in ("script", "pytest", "notebook", "bisect"):
            assert "torch.compile(forward" in stored_repro(index, 1, name)[0]
    (result,) = fxminify.minify(db, [1], options=replace(QUICK, again=True))
    assert (result.state, result.reason, result.capture.nodes_after) == (State.VERIFIED, "", 1)


def test_what_eager_refuses_is_no_failure_of_the_backend(tmp_path: Path) -> None:
    """A program that looks up an embedding that is not there."""
    db = tmp_path / "repro.db"
    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.functional.embedding, backend="aot_eager")
    with fxminify.capturing(db, check=False), pytest.raises(IndexError):
        compiled(torch.tensor([1, 9]), torch.ones(4, 2))
    assert fxminify.minify(db, options=QUICK) == []  # it was said when it was captured
    (result,) = fxminify.minify(db, options=replace(QUICK, again=True))
    assert (result.state, result.script) == (State.EAGER_REFUSES, "")
    raised = "IndexError: index out of range in self"
    assert result.reason.splitlines() == [f"eager refuses it, too: {raised}", f"captured: {raised}"]
    shown = invoke(tmp_path, "show", "repro.db", 1).stdout
    assert "     state  eager_refuses: eager refuses it, too: IndexError: index out of" in shown
    assert fxminify.minify(db) == []


@pytest.mark.parametrize("function", [fxminify.install, fxminify.capturing, fxminify.capture])
def test_the_settings_of_capture_are_typed(function: Any) -> None:
    annotations = {p.name: str(p.annotation) for p in inspect.signature(function).parameters.values()}
    assert "Any" not in annotations["settings"]


def test_minifying_loads_no_torch_in_the_driver() -> None:
    code = "import sys, fxminify; fxminify.minify; fxminify.MinifyOptions(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_slow_reduction_has_a_first_script(captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the reduction waits for the first script, so that this one is ready before the last stage ends.

    The values of the first case do not fit into it.
    """
    db = tmp_path / "repro.db"
    with contextlib.closing(sqlite3.connect(captured)) as source, contextlib.closing(sqlite3.connect(db)) as target:
        source.backup(target)
    monkeypatch.setattr("fxminify.minifier.session.scripts.SLOW", 0.0)
    monkeypatch.setattr(capture, "guess", lambda case, failure: None)
    begin = EarlyScript.begin

    def wait(self: EarlyScript, emitter: Emitter, make: Any) -> None:
        begin(self, emitter, make)
        self.finish()

    monkeypatch.setattr(EarlyScript, "begin", wait)
    draft = Emitter.draft
    tried: list[Any] = []

    def once_too_large(self: Emitter, case: Any, *args: Any, **options: Any) -> Any:
        tried.append(case)
        if len(tried) == 1:
            raise NeedsData("the values do not fit")
        return draft(self, case, *args, **options)

    monkeypatch.setattr(Emitter, "draft", once_too_large)
    scripts: list[tuple[events.Event, str, int]] = []

    def listen(event: events.Event) -> None:
        if isinstance(event, events.FirstScript | events.ScriptVerified):
            with Index.open(str(db), readonly=True) as index:
                kept = index.repros.get(1, "script")
            assert kept is not None
            scripts.append((event, kept.text, kept.verified))

    (result,) = fxminify.minify(db, [1], options=replace(QUICK, again=True), listener=listen)
    (first, text, verified), (last, _, _) = scripts
    assert (first, verified) == (events.FirstScript(1, 1), 1)
    assert "It failed in 1 of 1 fresh" in " ".join(text.split())
    assert last == events.ScriptVerified(1, 1, 1)
    assert result.verified
    assert len(tried) == 3
