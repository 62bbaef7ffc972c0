"""What the capture hook records of a failure when a compiled graph is called."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hooked import Failed, failing, failing_at_run, inputs, model
from indexes import captures
from torch import fx

import fxminify
from fxminify.backends.running.exceptions import failure_of
from fxminify.store.failure import Failure, Phase
from fxminify.store.index import Index
from fxminify.store.signature import signature


def test_a_runtime_failure_has_the_inputs_of_its_call(db: str) -> None:
    fxminify.install(db)
    compiled = torch.compile(model, backend=failing_at_run)
    for value in (1.0, 2.0, 3.0):
        compiled(torch.full((3,), value))
    with pytest.raises(Failed) as caught:
        compiled(torch.full((3,), 50.0))
    assert caught.value.__context__ is None
    [row] = captures(db)
    assert (row.kind, row.phase) == ("runtime_error", "forward")
    assert torch.equal(inputs(db)[0], torch.full((3,), 50.0))


def test_inputs_overwritten_before_the_failure_are_those_at_entry(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: torch.Tensor) -> Any:
            args[0].add_(1)
            raise Failed("too late")

        return run

    fxminify.install(db)
    with pytest.raises(Failed):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert torch.equal(inputs(db)[0], torch.ones(3))


def test_the_state_of_the_generator_is_that_of_the_call(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: torch.Tensor) -> Any:
            result = gm(*args)
            if args[0][0] > 1:
                raise Failed("too late")
            return result

        return run

    fxminify.install(db)
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend=backend)
    compiled(torch.ones(8))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with pytest.raises(Failed):
        compiled(torch.full((8,), 2.0))

    from fxminify.backends.running import ambient

    with Index.open(db) as index:
        case = index.captures.case(1)
        blobs = index.blobs.view(case.storages)
        with ambient.applied(case.context, case.tensors, blobs):
            assert torch.equal(torch.rand(4), expected)


def test_a_symbolic_input_keeps_its_symbol_and_has_the_value_of_the_call(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if args[0] == 7:
                raise Failed("seven")
            return gm(*args)

        return run

    fxminify.install(db)
    compiled = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)
    compiled(torch.ones(3))
    with pytest.raises(Failed):
        compiled(torch.ones(7))
    with Index.open(db) as index:
        case = index.captures.case(1)
    assert case.inputs[0]["sym"]["hint"] == 7
    assert case.inputs[0]["sym"]["expr"].startswith("s")
    assert case.tensors[0].shape == (7,)


def test_one_backend_only(db: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=failing)(torch.ones(3))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=fxminify.capture(failing, db=db))(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["failing"]


def test_one_backend_by_name_with_options(db: str) -> None:
    backend = fxminify.capture("inductor", db=db, check=True)
    compiled = torch.compile(lambda x: torch.any(x), backend=backend, options={"epilogue_fusion": False})
    compiled(torch.arange(100).to(torch.uint8))
    [row] = captures(db)
    assert (row.kind, row.backend) == ("divergence", "inductor")
    with Index.open(db) as index:
        assert index.captures.case(1).backend["options"] == {"dict": [["epilogue_fusion", False]]}


#: A process for each word, forked where torch is imported.
FORKS = """
import os, sys, torch, torch._dynamo, fxminify

def fail(word):
    def broken(gm, inputs):
        raise ValueError(f"no {word}")
    fxminify.install(sys.argv[1])
    try:
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    except torch._dynamo.exc.BackendCompilerFailed:
        os._exit(0)
    os._exit(1)

children = []
for word in sys.argv[2:]:
    if (child := os.fork()) == 0:
        fail(word)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_two_processes_capture_into_one_file(db: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    subprocess.run([sys.executable, program, db, "cats", "dogs", "cats"], cwd=tmp_path, check=True)
    messages = {row.failure and row.failure.message: row.occurrences for row in captures(db)}
    assert messages == {"no cats": 2, "no dogs": 1}


def edits(gm: fx.GraphModule, returned: Callable[[fx.GraphModule], Any]) -> Any:
    for node in gm.graph.nodes:
        node.target = torch.linalg.cholesky if node.target is torch.sin else node.target
    gm.recompile()
    return returned(gm)


@pytest.mark.parametrize(
    ("returned", "origin"),
    [
        (lambda gm: gm, "<generated>"),
        (lambda gm: gm.forward, "<generated>"),
        (lambda gm: torch._C._nn.one_hot, ""),
    ],
)
def test_the_origin_is_where_the_backend_raised_and_not_who_called_it(db: str, returned: Any, origin: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        return edits(gm, returned)

    def outcome() -> Failure:
        torch._dynamo.reset()
        with pytest.raises((RuntimeError, TypeError)) as raised:
            torch.compile(model, backend=backend)(torch.zeros(2, 3))
        return failure_of(raised.value, Phase.FORWARD)

    with fxminify.capturing(db):
        observed = outcome()
    [row] = captures(db)
    assert row.failure is not None
    plain = outcome()
    assert signature(row.failure).origin == signature(plain).origin == signature(observed).origin == origin
    assert not any(frame.file in ("compiled_graph.py", "hook.py", "seam.py") for frame in observed.frames)


def names_nodes(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    found = next(n for n in gm.graph.nodes if n.target is torch.erf)

    def run(*args: Any) -> Any:
        raise Failed(f"node {found} with {list(found.users)}")

    return run() if len(gm.graph.nodes) < 4 else run


def test_nodes_that_a_message_names_are_kept_with_what_they_call(db: str) -> None:
    def many(x: torch.Tensor) -> torch.Tensor:
        first = torch.erf(x)
        after_all = first + 1
        return after_all.cos()

    fxminify.install(db)
    for function in (many, lambda x: torch.erf(x)):
        with pytest.raises(Exception, match="node"):
            torch.compile(function, backend=names_nodes)(torch.ones(2))
    late, early = (row.failure for row in captures(db))
    assert late is not None
    assert early is not None
    assert (late.detail, early.detail) == ({"nodes": {"first": "erf", "after_all": "add"}, "eager": ""}, {"eager": ""})
    assert [signature(f).message for f in (late, early)] == ["node erf with [add]", "node erf with [output]"]
