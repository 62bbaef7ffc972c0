"""The number of workers changes the time of a run, and nothing that it tells."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import head_starts  # noqa: F401  registers the backends
import psutil
import pytest
import torch

import fxminify
from fxminify.minifier.session import resources
from fxminify.minifier.session.services import WORTH_MORE, workers_at_a_time
from fxminify.store.document.case import Case, Graph, TensorSpec
from fxminify.store.index import Index, State

OPTIONS = fxminify.MinifyOptions(replays=1, runs=1, explain=False)


@pytest.mark.slow
def test_queries_that_were_asked_ahead_in_vain_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "repro.db"
    torch._dynamo.reset()
    with fxminify.capturing(path, check=False), pytest.raises(Exception, match="two at once"):
        torch.compile(lambda x: torch.sin(torch.cos(x).exp() + 1).tanh() * 2, backend="head_starts_pair")(
            torch.randn(3)
        )
    told = []
    for jobs in (1, 3):
        copy = tmp_path / f"{jobs}.db"
        shutil.copy(path, copy)
        (result,) = fxminify.minify(copy, options=replace(OPTIONS, jobs=jobs))
        assert result.state is State.VERIFIED
        with Index.open(str(copy), readonly=True) as index:
            reduction = index.reductions.last(1)
            assert reduction is not None
            told.append((reduction.queries, [step.queries for step in index.reductions.steps(reduction.id)]))
            asked = len(index.verdicts.find(reduction.id))
    assert told[0] == told[1]
    assert asked > told[1][0]


def test_more_workers_than_one_where_queries_are_slow_and_memory_allows() -> None:
    assert workers_at_a_time(0, 3, WORTH_MORE / 2, 0) == 1
    assert workers_at_a_time(0, 3, WORTH_MORE, 0) == 2
    assert workers_at_a_time(0, 1, WORTH_MORE, 0) == 1
    assert workers_at_a_time(0, 3, WORTH_MORE, 1 << 50) == 1
    assert workers_at_a_time(5, 3, WORTH_MORE / 2, 0) == 5


def test_large_tensors_start_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("", (), {"available": 32 << 30}))
    small, large = (TensorSpec("float32", (n,), (1,), init={"fn": "randn"}) for n in (4, 1 << 30))
    assert resources.affordable(Case(Graph(()), (), (small,))) == resources.MOST_JOBS
    assert resources.affordable(Case(Graph(()), (), (small, large))) == 1
