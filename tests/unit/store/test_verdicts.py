"""Queries and answers are written in batches."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from index_tasks import add, small_case
from sqlalchemy.orm import Session

from fxminify.store.index import Index, StepInfo, StoreError, verdicts
from fxminify.store.index.verdicts import StoredVerdict


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True) as index:
        add(index, *small_case())
        index.reductions.begin(1, {})
    return path


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written because time has passed."""
    monkeypatch.setattr(verdicts, "WAIT", 1e6)


def stored(path: str) -> dict[str, StoredVerdict]:
    with Index.open(path, readonly=True) as other:
        return other.verdicts.find(1)


def ask(index: Index, *keys: str, outcome: str = "same") -> None:
    for key in keys:
        index.verdicts.asked(1, key, "nodes")
        index.verdicts.answered(1, key, outcome, None, 0.5, "")


def test_an_answer_is_written_after_a_moment(path: str) -> None:
    with Index.open(path) as index:
        ask(index, "a")
        end = time.monotonic() + 60
        while "a" not in stored(path):
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.usefixtures("patient")
def test_a_full_batch_is_written_at_once(path: str) -> None:
    with Index.open(path) as index:
        ask(index, *map(str, range(verdicts.MOST - 1)))
        assert stored(path) == {}
        ask(index, "last")
        assert len(stored(path)) == verdicts.MOST - 1  # the last is only noted as asked
    assert len(stored(path)) == verdicts.MOST


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("step", ["add_step", "accept", "finish", "close"])
def test_what_a_step_rests_on_is_written_before_it(path: str, step: str) -> None:
    with Index.open(path) as index:
        ask(index, "a")
        assert stored(path) == {}
        if step == "add_step":
            index.reductions.add_step(1, StepInfo(1, "nodes", "a", 1, 1))
        elif step == "accept":
            index.reductions.accept(1, *small_case(1))
        elif step == "finish":
            index.reductions.finish(1, queries=1, nodes_before=1, nodes_after=1, seconds=0.5, finished=False)
        else:
            index.close()
        assert list(stored(path)) == ["a"]


@pytest.mark.usefixtures("patient")
def test_a_later_answer_replaces_an_earlier_one_and_a_question_none(path: str) -> None:
    with Index.open(path) as index:
        ask(index, "a", outcome="infra")
        index.verdicts.flush()
        index.verdicts.asked(1, "a", "nodes")
        index.verdicts.flush()
        assert (stored(path)["a"].outcome, stored(path)["a"].asks) == ("infra", 2)
        ask(index, "a", outcome="same")
    assert (stored(path)["a"].outcome, stored(path)["a"].asks, stored(path)["a"].seconds) == ("same", 3, 0.5)


@pytest.mark.usefixtures("patient")
def test_what_could_not_be_written_is_not_forgotten(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def full() -> Iterator[Session]:
        raise StoreError("no space left")
        yield

    with Index.open(path) as index:
        ask(index, "a")
        with monkeypatch.context() as patch:
            patch.setattr(index.database, "writing", full)
            with pytest.raises(StoreError, match="no space left"):
                index.verdicts.flush()
            index.verdicts._later()  # in a thread of its own, where nobody would see an error
        ask(index, "b")
    assert list(stored(path)) == ["a", "b"]


def test_threads_share_one_log(path: str) -> None:
    def work(number: int) -> None:
        ask(index, *(f"{number} {each}" for each in range(40)))

    with Index.open(path) as index:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index.verdicts.find(1)) == 160
