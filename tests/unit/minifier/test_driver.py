"""What becomes of a task, by what became of its capture; and the lines of the log."""

import json
import re

import pytest

from fxminify.minifier.session import events
from fxminify.service.workers.driver import outcome
from fxminify.service.workers.log import TaskLog
from fxminify.store.index import State, TaskInfo, TaskState

TASK = TaskInfo(
    id=3, kind="minify", bug=2, capture=5, state=TaskState.LEASED, why="", needs="backend=ts torch=2.11 trust",
    priority=0, attempts=0, fence=1, until=0.0, worker=1, config={}, budget=None, created="", started=None,
    finished=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "reason", "can", "expected"),
    [
        (State.VERIFIED, "", "torch=2.13", (TaskState.DONE, "")),
        (State.UNVERIFIED, "it passes", "torch=2.11", (TaskState.FAILED, "unverified: it passes")),
        (State.UNSUPPORTED, "", "torch=2.11", (TaskState.FAILED, "unsupported")),
        (
            State.NOT_REPRODUCED,
            "it passes",
            "torch=2.13",
            (
                TaskState.FAILED,
                "not reproduced: it passes; it was captured with torch 2.11, and tried with another version",
            ),
        ),
    ],
)
def test_the_outcome_of_a_task(state: State, reason: str, can: str, expected: tuple[TaskState, str]) -> None:
    assert outcome(TASK, state, reason, {can}) == expected


def test_a_line_of_the_log_is_a_sentence_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    step = events.StepAccepted(5, 1, "nodes", 4, 2, 7)
    TaskLog().told(TASK, step)
    TaskLog().told(TASK, events.QueryAnswered(5, 4, 9, 7, "nodes"))
    TaskLog().told(TASK, events.Noted(5, "two\nlines\x1b[31m"))
    TaskLog().told(TASK, events.StepAccepted(5, 1, "nodes", 1, 1, 1))
    said = capsys.readouterr()
    assert said.out == ""
    lines = [re.sub(r"^\S+ ", "", line) for line in said.err.splitlines()]
    assert lines[0] == "task 3 (capture 5): 4 nodes left after 7 queries (nodes)"
    assert lines[2] == "task 3 (capture 5): 1 node left after 1 query (nodes)"
    assert len(lines) == 3
    assert "\x1b" not in lines[1]
    TaskLog(as_json=True).told(TASK, step)
    said = capsys.readouterr()
    assert said.err == ""
    line = json.loads(said.out)
    assert {key: line[key] for key in ("event", "task", "bug", "capture", "nodes", "queries")} == {
        "event": "step", "task": 3, "bug": 2, "capture": 5, "nodes": 4, "queries": 7,
    }  # fmt: skip
