"""Failures below Dynamo: which compiler failed, its graph with real values, the backend that gives it that graph."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import team_levels as team
import torch
from desks import invoke
from torch import fx
from torch.testing._internal.two_tensor import TwoTensor

import fxminify
from fxminify.backends.capture.settings import Level, Settings
from fxminify.store.index import CaptureInfo, Index
from fxminify.store.live.build import build

PROGRAM = Path(__file__).parents[2] / "programs" / "kinds" / "levels.py"


def fail(
    db: str, level: Level, backend: Any, function: Callable[..., Any], *inputs: Any, **options: Any
) -> CaptureInfo:
    """The one capture of a program that fails."""
    with fxminify.capturing(db, level=level), pytest.raises(Exception, match=r"no lowering|the kernel for cos is gone"):
        call(backend, function, *inputs, **options)
    with Index.open(db) as index:
        (row,) = index.captures.find()
        return index.captures.get(row.id)


def call(backend: Any, function: Callable[..., Any], *inputs: Any, backward: bool = False, **options: Any) -> None:
    out = torch.compile(function, backend=backend, **options)(*inputs)
    if backward:
        out.sum().backward()


def restored(db: str) -> tuple[fx.GraphModule, list[Any]]:
    with Index.open(db) as index:
        case = index.captures.case(1)
        return build(case, index.blobs.view(case.storages))


def sine(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


def learned() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def targets(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("backend", "function", "role"),
    [("forward", sine, "forward"), ("inference", lambda x: sine(x.detach()), "inference")],
)
def test_a_failing_forward_compiler_has_its_graph_and_real_values(
    backend: str, function: Callable[..., Any], role: str, db: str
) -> None:
    capture = fail(db, "aot", getattr(team, backend), function, learned())
    assert (capture.provenance["level"], capture.provenance["aot_graph"]) == ("aot", role)
    gm, inputs = restored(db)
    assert targets(gm)[-2:] == ["aten.mul.Tensor", "aten.sin.default"]
    assert inputs[0].tolist() == [1, 2, 3]
    assert not inputs[0].requires_grad


@pytest.mark.parametrize("backend", ["backward", "boxed", "inside"])
def test_a_failing_backward_compiler_is_a_compile_error_of_its_own_graph(backend: str, db: str) -> None:
    capture = fail(db, "aot", getattr(team, backend), sine, learned(), backward=True)
    assert capture.provenance["aot_graph"] == "backward"
    assert (capture.kind, capture.phase) == ("compile_error", "compile")
    with Index.open(db) as index:
        assert "without_cos" in json.dumps(index.captures.case(1).backend["target"])
        assert not index.captures.case(1).backward
    gm, inputs = restored(db)
    assert targets(gm) == ["aten.cos.default", "aten.mul.Tensor", "aten.mul.Tensor"]
    assert torch.equal(inputs[0], learned().detach() * 2)


@pytest.mark.parametrize(
    ("function", "requires_grad", "role"),
    [
        (torch.sinh, False, "inference"),
        (torch.sinh, True, "forward"),
        pytest.param(torch.cosh, True, "backward", marks=pytest.mark.slow),
    ],
)
def test_each_of_inductors_compilers(
    function: Callable[..., Any], requires_grad: bool, role: str, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config, lowering

    def forgotten(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("no lowering for aten.sinh")

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sinh.default, forgotten)
    with config.patch(force_disable_caches=True):
        x = torch.ones(3, requires_grad=requires_grad)
        capture = fail(db, "aot", "inductor", lambda x: function(x * 2), x, backward=role == "backward")
    assert (capture.backend, capture.provenance["aot_graph"]) == ("inductor", role)
    assert (capture.kind, capture.phase) == ("compile_error", "compile")
    assert "aten.sinh.default" in targets(restored(db)[0])


def test_a_backward_graph_that_fails_when_it_runs_is_a_runtime_error(db: str) -> None:
    capture = fail(db, "aot", team.running, sine, learned(), backward=True)
    assert (capture.kind, capture.phase) == ("runtime_error", "forward")
    with Index.open(db) as index:
        assert "fails_later" in json.dumps(index.captures.case(1).backend["target"])


def test_the_dynamo_level_is_kept_where_it_can_be(db: str) -> None:
    capture = fail(db, "auto", team.backward, sine, learned(), backward=True)
    assert (capture.provenance["level"], capture.kind, capture.phase) == ("dynamo", "compile_error", "backward")
    with Index.open(db) as index:
        assert index.captures.case(1).backward


class Named(torch.Tensor):
    """Overrides nothing."""


def pair() -> torch.Tensor:
    two: torch.Tensor = TwoTensor(torch.ones(3), torch.full((3,), 2.0))
    return two


def numpy_sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], torch.Tensor], list[list[float]]]] = {
    "wrapper subclass": (sine, pair, [[1, 1, 1], [2, 2, 2]]),
    "numpy": (numpy_sine, lambda: torch.ones(3), [[1, 1, 1]]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_the_dynamo_level_refuses_falls_back(kind: str, db: str) -> None:
    function, make, values = REFUSED[kind]
    capture = fail(db, "auto", team.forward, function, make())
    assert (capture.state, capture.provenance["level"]) == ("pending", "aot")
    assert capture.provenance["refused"].startswith("dynamo: ")
    _, inputs = restored(db)
    assert [x.tolist() for x in inputs] == values


def test_a_subclass_of_functions_is_stored_as_dynamo_has_it(db: str) -> None:
    capture = fail(db, "auto", team.forward, sine, torch.ones(3).as_subclass(Named))
    assert (capture.state, capture.provenance["level"]) == ("pending", "dynamo")
    (given,) = restored(db)[1]
    assert (type(given).__name__, given.tolist()) == ("Named", [1, 1, 1])


def test_a_backward_of_subclasses_falls_back(db: str) -> None:
    capture = fail(db, "auto", team.backward, sine, pair().requires_grad_(), backward=True)
    assert (capture.state, capture.provenance["aot_graph"]) == ("pending", "backward")


def test_compiled_autograd_falls_back(db: str) -> None:
    loss = learned().sin().sum()
    with (
        fxminify.capturing(db),
        torch._dynamo.compiled_autograd._enable(torch.compile(backend=team.cosine)),
        pytest.raises(Exception, match=r"no lowering for aten\.cos"),
    ):
        loss.backward()
    with Index.open(db) as index:
        (row,) = index.captures.find()
        assert (row.state, index.captures.get(1).provenance["level"]) == ("pending", "aot")


def test_level_dynamo_refuses_with_the_reason_and_the_text(db: str) -> None:
    capture = fail(db, "dynamo", team.forward, sine, pair())
    assert capture.state == "unsupported"
    assert "TwoTensor" in capture.reason


def test_a_row_names_the_node_that_a_level_refused(db: str) -> None:
    def nameless(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    torch._dynamo.allow_in_graph(nameless)
    capture = fail(db, "auto", team.forward, lambda x: nameless(x).sin(), torch.ones(3))
    assert capture.provenance["level"] == "aot"
    assert "node 'nameless': function" in capture.provenance["refused"]


def test_without_a_graph_at_either_level_both_reasons_are_kept(db: str) -> None:
    def hide(x: torch.Tensor) -> torch.Tensor:
        return unnamed(x).sin()

    def refuses(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        raise NotImplementedError("no lowering at all")

    capture = fail(db, "auto", refuses, hide, torch.ones(3))
    assert capture.state == "unsupported"
    assert "unnamed has no name in the table" in capture.reason
    assert "AOTAutograd cannot lower the graph: ValueError: not under fake tensors" in capture.reason


def unnamed(x: torch.Tensor) -> torch.Tensor:
    from torch._subclasses.functional_tensor import FunctionalTensor

    if isinstance(x, FunctionalTensor):
        raise ValueError("not under fake tensors")  # noqa: TRY004  the test looks for it
    return x * 2


torch._dynamo.allow_in_graph(unnamed)


def test_symbols_become_the_numbers_of_the_call(db: str) -> None:
    fail(db, "aot", team.forward, lambda x: sine(x.view(x.shape[0] * 2, -1) + x.shape[0]), torch.ones(4, 6),
         dynamic=True)  # fmt: skip
    gm, inputs = restored(db)
    assert [type(x) for x in inputs] == [torch.Tensor]
    assert gm(*inputs)[0].shape == (8, 3)


def test_lowering_leaves_the_program_as_it_is(db: str) -> None:
    """The exception is the backend's own, the generator and the inputs are untouched, and Dynamo goes on."""
    raised = []

    def refuses(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        raised.append(NotImplementedError("no lowering for it"))
        raise raised[-1]

    x = torch.ones(3, requires_grad=True)
    before = torch.get_rng_state()
    counted = dict(torch._dynamo.utils.counters["aot_autograd"])
    with fxminify.capturing(db, level="aot"):
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as failed:
            torch.compile(lambda x: torch.dropout(x * 2, 0.5, True), backend=refuses)(x)
        assert failed.value.inner_exception is raised[0]
        assert torch.equal(torch.get_rng_state(), before)
        assert (x.tolist(), x.grad, x._version) == ([1, 1, 1], None, 0)
        assert dict(torch._dynamo.utils.counters["aot_autograd"]) == counted
        assert torch.equal(torch.compile(sine, backend="aot_eager")(x), sine(x))
    with Index.open(db) as index:
        assert [c.id for c in index.captures.find()] == [1]


def test_a_healthy_program_is_not_lowered(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fxminify.backends.capture import lowering

    monkeypatch.setattr(lowering, "_record", None)
    with fxminify.capturing(db, level="aot"):
        out = torch.compile(sine, backend="aot_eager")(learned())
        out.sum().backward()
    assert not Path(db).exists()


def test_another_level_is_refused() -> None:
    with pytest.raises(ValueError, match="level is one of auto, dynamo, aot, not 'fx'"):
        Settings(level="fx")


def session(directory: Path, level: str, *rows: str) -> list[dict[str, Any]]:
    """`minify capture` of the program at one level, `minify run` of some rows (all without), and what is listed."""

    def minify(*args: str) -> None:
        command = [sys.executable, "-m", "fxminify", *args]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "LEVEL": level}
        subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False)

    minify("capture", "--level", level, str(PROGRAM))
    minify("run", "--no-explain", "repro.db", *rows, "--runs", "1", "--replays", "2")
    listed: list[dict[str, Any]] = json.loads(invoke(directory, "list", "--json").stdout)
    return listed


@pytest.mark.slow
def test_a_backward_graph_of_subclasses_becomes_a_verified_script(tmp_path: Path) -> None:
    rows = session(tmp_path, "auto", "2")
    assert [r["state"] for r in rows] == ["pending", "verified", "pending", "pending", "pending"]
    assert rows[1]["nodes_after"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("level", "count"), [("aot", 7), ("auto", 5)])
def test_every_failure_below_dynamo_becomes_a_verified_script(level: str, count: int, tmp_path: Path) -> None:
    rows = session(tmp_path, level)
    captured = [row for row in rows if row["parent"] is None]
    assert [(r["state"], r["nodes_after"]) for r in captured] == [("verified", 1)] * count
