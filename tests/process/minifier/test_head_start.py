"""A small part of a large graph that fails as captured is minified, before the whole graph is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import head_starts
import pytest
import torch

import fxminify
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting.emit import Draft, Emitter
from fxminify.minifier.session import events
from fxminify.minifier.session.early_script import EarlyScript
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, State
from fxminify.store.signature import signature

QUICK = fxminify.MinifyOptions(replays=2, runs=1, explain=False)


def long_chain(x: torch.Tensor) -> torch.Tensor:
    """Sixteen operators: one `tanh`, one `exp`, the rest in pairs or more."""
    for _ in range(4):
        x = torch.sin(torch.cos(x)) + 1
    return torch.tanh(x).cos() * torch.exp(x)


def few_kinds(x: torch.Tensor) -> torch.Tensor:
    """Twenty-four operators of four kinds, six of each."""
    for _ in range(6):
        x = torch.tanh(torch.sin(torch.cos(x))) + 1
    return x


def from_nothing(x: torch.Tensor) -> torch.Tensor:
    """Ten operators; one of them needs no tensor."""
    for _ in range(4):
        x = torch.sin(torch.cos(x))
    return torch.tanh(x) + torch.arange(4)


def captured(
    path: Path, backend: str, message: str, size: int = 4, program: Callable[[torch.Tensor], torch.Tensor] = long_chain
) -> Path:
    """An index with the failure of ``backend`` on ``program``."""
    torch._dynamo.reset()
    with fxminify.capturing(path, check=False), pytest.raises(Exception, match=message):
        torch.compile(program, backend=backend)(torch.randn(size))
    return path


def minified(path: Path) -> tuple[list[fxminify.MinifyResult], list[events.Event], list[int]]:
    """The results, the events, and how many nodes the backend saw in each compilation before the final script."""
    told: list[events.Event] = []
    seen: list[int] = []

    def listen(event: events.Event) -> None:
        told.append(event)
        if isinstance(event, events.QueryAnswered) and event.stage == "verifying the script":
            seen.extend(head_starts.sizes())

    results = fxminify.minify(path, options=QUICK, listener=listen)
    return results, told, seen


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(head_starts.FOLDER, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "message"),
    [("head_starts_named", "no rule for tanh"), ("head_starts_unnamed", "not supported")],
)
def test_the_whole_graph_is_not_compiled_before_the_script(tmp_path: Path, backend: str, message: str) -> None:
    path = captured(tmp_path / "repro.db", backend, message)
    head_starts.forget()
    (result,), told, seen = minified(path)
    assert (result.state, result.capture.nodes_before, result.capture.nodes_after) == (State.VERIFIED, 16, 1)
    assert "tanh" in result.script
    replays = [event for event in told if isinstance(event, events.ReplayStarted | events.ReplayFinished)]
    assert [event.part for event in replays] == [1, 1]
    assert max(seen) < 16


@pytest.mark.slow
def test_one_of_several_operators_of_a_kind_is_found(tmp_path: Path) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_unnamed", "not supported", program=few_kinds)
    head_starts.forget()
    (result,), told, seen = minified(path)
    assert (result.state, result.capture.nodes_before, result.capture.nodes_after) == (State.VERIFIED, 24, 1)
    assert "tanh" in result.script
    assert [event.part for event in told if isinstance(event, events.ReplayStarted)] == [1]
    assert max(seen) < 24


@pytest.mark.slow
def test_where_no_small_part_fails_the_whole_graph_is_replayed(tmp_path: Path) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_pair", "two at once")
    (result,), told, _ = minified(path)
    assert (result.state, result.capture.nodes_after) == (State.VERIFIED, 2)
    replays = [event for event in told if isinstance(event, events.ReplayStarted)]
    assert replays == [events.ReplayStarted(1, 2)]


@pytest.mark.slow
def test_its_queries_are_counted_and_asked_once(tmp_path: Path) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_unnamed", "not supported")
    minified(path)
    with Index.open(str(path), readonly=True) as index:
        reduction = index.reductions.last(1)
        assert reduction is not None
        asked = index.verdicts.find(reduction.id)
    assert "slices" in {verdict.pass_name for verdict in asked.values()}
    assert reduction.queries == len(asked)


@pytest.mark.slow
def test_a_backend_that_refuses_a_graph_without_tensors_has_no_other_failure(tmp_path: Path) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_on_a_device", "not supported", program=from_nothing)
    (result,), _, _ = minified(path)
    assert (result.state, result.capture.nodes_after, result.others) == (State.VERIFIED, 1, ())
    with Index.open(str(path), readonly=True) as index:
        verdicts = index.verdicts.find(index.reductions.last(1).id).values()  # type: ignore[union-attr]
        assert any(v.outcome == Outcome.OTHER for v in verdicts)
        assert len(index.captures.find()) == 1


@pytest.mark.slow
def test_its_script_is_there_before_the_search_and_takes_random_values_where_the_recorded_ones_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_unnamed", "not supported", 4000)
    begin = EarlyScript.begin

    def wait(self: EarlyScript, emitter: Any, make: Any) -> None:
        begin(self, emitter, make)
        self.finish()

    monkeypatch.setattr(EarlyScript, "begin", wait)
    first: list[str] = []

    def listen(event: events.Event) -> None:
        if isinstance(event, events.ReplayStarted):
            with Index.open(str(path), readonly=True) as index:
                kept = index.repros.get(1, "script")
            assert kept is not None
            assert (kept.verified, kept.runs) == (1, 1)
            first.append(kept.text)

    fxminify.minify(path, options=QUICK, listener=listen)
    assert ["torch.randn(4000)" in text and "tanh" in text for text in first] == [True]


@pytest.mark.slow
def test_a_script_that_did_not_show_the_failure_is_followed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured(tmp_path / "repro.db", "head_starts_unnamed", "not supported")
    begin, draw_up, drawn = EarlyScript.begin, Emitter.early_draft, []

    def wait(self: EarlyScript, emitter: Any, make: Any) -> None:
        begin(self, emitter, make)
        self.finish()

    def draft(self: Emitter, *args: Any, **more: Any) -> Draft:
        made = draw_up(self, *args, **more)
        drawn.append(made)
        return made if len(drawn) > 1 else replace(made, done=replace(made.done, shown=0))

    monkeypatch.setattr(EarlyScript, "begin", wait)
    monkeypatch.setattr(Emitter, "early_draft", draft)
    _, told, _ = minified(path)
    assert len(drawn) == 2
    assert [type(event) for event in told if isinstance(event, events.FirstScript | events.ScriptVerified)] == [
        events.FirstScript, events.ScriptVerified,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_part_that_crashes_elsewhere_is_another_failure(tmp_path: Path) -> None:
    """The stack of the captured crash is not known. The part that is tried first crashes in another function than the
    whole graph, which is replayed in the end: two bugs, two scripts."""
    path = captured(tmp_path / "repro.db", "head_starts_unnamed", "not supported")
    crash = Failure(FailureKind.CRASH, Phase.COMPILE, "SIGABRT", "the process died of SIGABRT", signal=6)
    with Index.open(str(path)) as index:
        case = index.captures.case(1)
        second = index.captures.add(
            case=replace(case, backend=json.loads(json.dumps(case.backend).replace("unnamed", "dies"))),
            blobs=dict(index.blobs.view(case.storages)), failure=crash, signature=signature(crash), provenance={},
            ours=True,
        )  # fmt: skip
        index.captures.set_state(1, State.UNSUPPORTED)
    results, told, _ = minified(path)
    (result,) = results
    assert (result.id, result.state, result.capture.nodes_after) == (second, State.VERIFIED, 1)
    assert "tanh" in result.script
    assert "exp" not in result.script
    parts = [event.part for event in told if isinstance(event, events.ReplayStarted)]
    assert parts[0] > 0
    assert parts[-1] == 0
    with Index.open(str(path), readonly=True) as index:
        (other,) = [row for row in index.captures.find() if row.parent == second]
        assert "exp" in str(index.captures.case(other.id).graph.nodes)
