"""The first guess is a script of the culprit alone, which runs while the workers import."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_backends  # noqa: F401  registers the backends
import pytest
import torch

import fxminify
from fxminify.minifier.oracle.replay import Replay, replay
from fxminify.minifier.reducer.guess import guess
from fxminify.minifier.reporting.emit import Draft, Emitter
from fxminify.minifier.session import capture, events, replays
from fxminify.minifier.session.early_script import EarlyScript
from fxminify.store.index import Index, State

QUICK = fxminify.MinifyOptions(replays=1, runs=1, explain=False)


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with one failure, whose message names the operator. Here the run waits for the first guess."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "repro.db"
    torch._dynamo.reset()
    with fxminify.capturing(path, check=False), pytest.raises(Exception, match="cannot lower relu"):
        torch.compile(lambda x, y: torch.relu(x @ y).sum() * x.cos(), backend="cannot_lower")(
            torch.randn(40, 30), torch.randn(30, 20)
        )
    begin = EarlyScript.begin

    def wait(self: EarlyScript, emitter: Emitter, make: Any) -> None:
        begin(self, emitter, make)
        self.finish()

    monkeypatch.setattr(EarlyScript, "begin", wait)
    return path


@pytest.mark.slow
def test_the_culprit_alone_is_a_script_before_anything_was_replayed(captured: Path) -> None:
    told: list[events.Event] = []
    first: list[tuple[str, int, int]] = []

    def listen(event: events.Event) -> None:
        told.append(event)
        if isinstance(event, events.FirstScript):
            with Index.open(str(captured), readonly=True) as index:
                kept = index.repros.get(1, "script")
            assert kept is not None
            first.append((kept.text, kept.verified, kept.runs))

    (result,) = fxminify.minify(captured, options=QUICK, listener=listen)
    assert [type(event) for event in told[:3]] == [events.CaptureStarted, events.FirstScript, events.ReplayStarted]
    ((text, verified, runs),) = first
    assert (verified, runs) == (1, 1)
    assert "x = torch.randn(40, 20)" in text or "matmul = torch.randn(40, 20)" in text
    assert (result.state, result.capture.nodes_after) == (State.VERIFIED, 1)
    assert "torch.zeros(1)" in result.script


@pytest.mark.slow
def test_a_wrong_guess_leaves_no_script_and_is_not_told(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(case: Any, failure: Any) -> Any:
        return guess(case, replace(failure, message="cannot lower cos"))

    monkeypatch.setattr(capture, "guess", wrong)
    seen: list[events.Event] = []

    def listen(event: events.Event) -> None:
        seen.append(event)
        if isinstance(event, events.ReplayStarted):
            with Index.open(str(captured), readonly=True) as index:
                assert index.repros.get(1, "script") is None

    (result,) = fxminify.minify(captured, options=QUICK, listener=listen)
    assert not [event for event in seen if isinstance(event, events.FirstScript)]
    assert (result.state, result.capture.nodes_after) == (State.VERIFIED, 1)


@pytest.mark.slow
def test_a_failure_that_the_whole_graph_does_not_show_keeps_its_first_script(
    captured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def healthy(*args: Any, **options: Any) -> Replay:
        return replace(replay(*args, **options), reproduced=False, reason="passes")

    monkeypatch.setattr(replays, "replay", healthy)
    (result,) = fxminify.minify(captured, options=QUICK)
    assert (result.state, result.reason) == (State.VERIFIED, "the culprit alone shows it, the whole graph does not")
    assert "relu" in result.script


@pytest.mark.slow
def test_a_first_script_stays_where_the_last_one_shows_nothing(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Emitter.draft

    def shows_nothing(self: Emitter, *args: Any, early: bool = False, **more: Any) -> Draft:
        made = draft(self, *args, early=early, **more)
        return made if early else replace(made, done=replace(made.done, shown=0, mismatch="it ends with exit code 0"))

    monkeypatch.setattr(Emitter, "draft", shows_nothing)
    (result,) = fxminify.minify(captured, options=QUICK)
    assert result.state is State.VERIFIED
    assert result.reason.startswith("an earlier script shows it, the last one does not: ")
    assert "torch.randn(40, 20)" in result.script
