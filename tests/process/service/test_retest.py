"""A driver with the task to retest a bug: its script is run again and, where that passes, its captured graph."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from indexes import add, failing, one_relu

from fxminify.service.workers.driver import Job, drive
from fxminify.service.workers.log import TaskLog
from fxminify.store.document.case import Case
from fxminify.store.failure import Frame
from fxminify.store.index import BugStatus, Index, State, TaskState
from fxminify.store.index.installations import OTHERS, label_of

NEW = {"torch": "99.0"}
CAN = {"trust", label_of(NEW)}
#: Fails on the operator of the captured graph, and on that of the script, each while a file says so.
BACKEND = """
import pathlib
from torch._dynamo import register_backend

FOLDER = pathlib.Path(__file__).parent

@register_backend
def team(gm, inputs):
    called = {node.target.__name__ for node in gm.graph.nodes if node.op == "call_function"}
    if any((FOLDER / f"{name}-fails").exists() for name in called):
        raise RuntimeError("planted: no lowering")
    return gm.forward
"""
SCRIPT = """
import team
import torch

torch.compile(torch.sin, backend="team")(torch.ones(4))
"""
FAILURE = failing("planted: no lowering", frames=(Frame("team.py", "team"),))


class Team:
    """A backend that a test mends and breaks, in a ``folder``, and an index with a bug of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lib"
        self.folder.mkdir()
        (self.folder / "team.py").write_text(BACKEND)
        self.place = str(folder / "repro.db")

    def case(self) -> Case:
        spec = {"name": "team", "target": "team", "module": "team", "search_path": [str(self.folder)]}
        case, _ = one_relu(**spec)
        return replace(case, tensors=(replace(case.tensors[0], storage=None, init={"fn": "randn"}),))

    def fails(self, *, script: bool, graph: bool) -> None:
        for name, asked in (("sin-fails", script), ("relu-fails", graph)):
            (self.folder / name).touch() if asked else (self.folder / name).unlink(missing_ok=True)

    def retest(self, index: Index) -> tuple[TaskState, str, BugStatus]:
        """What becomes of the next task, and of the bug."""
        task = index.tasks.claim(index.tasks.join("one", CAN), CAN)
        assert task is not None
        assert task.kind == "retest"
        assert drive(Job(self.place, task.id, task.fence, os.getpid(), tuple(CAN)), TaskLog()) == 0
        over = index.tasks.get(task.id)
        return over.state, over.why, index.bugs.get(1).status


@pytest.mark.slow
def test_a_bug_is_fixed_where_its_script_and_its_graph_pass_and_regresses_where_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    team = Team(tmp_path)
    with Index.open(team.place, create=True) as index:
        id = add(index, team.case(), FAILURE, ours=True)
        index.repros.save(id, "script", SCRIPT, verified=3, runs=3, log="", ours=True)
        index.captures.set_state(id, State.VERIFIED)
        index.tasks.settle(id)
        for task in index.tasks.page([TaskState.QUEUED]):
            index.tasks.cancel(task.id)  # its ablation is another test
        assert index.installations.announce({OTHERS: NEW}) == 1
        team.fails(script=False, graph=True)
        assert team.retest(index) == (
            TaskState.DONE, "its script: fixed; its captured graph: still failing", BugStatus.OPEN,
        )  # fmt: skip
        (again,) = index.tasks.page([TaskState.QUEUED])
        assert (again.kind, again.config) == ("minify", {"again": True})
        index.tasks.cancel(again.id)

        index.tasks.retry(3)
        team.fails(script=False, graph=False)
        assert team.retest(index) == (TaskState.DONE, "its script: fixed; its captured graph: fixed", BugStatus.FIXED)
        assert index.bugs.get(1).fixed_in == {"torch": index.retests.find([1])[-1].versions["torch"]}

        index.tasks.retry(3)
        team.fails(script=True, graph=False)
        assert team.retest(index) == (TaskState.DONE, "its script: still failing", BugStatus.REGRESSED)
    assert [retest.result.value for retest in index.retests.find()] == ["fixed", "fixed", "still failing"]
