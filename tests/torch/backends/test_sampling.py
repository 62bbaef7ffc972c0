"""Which calls are compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fxminify
from fxminify.backends.capture.settings import Settings
from fxminify.backends.comparison.sampling import Sampling
from fxminify.store.index import Index


@pytest.mark.parametrize(
    ("asked", "calls"),
    [
        (False, []),
        (True, [1, 2]),
        ("first:3", [1, 2, 3]),
        ("every:4", [4, 8, 12]),
        ("every:5, first:2", [1, 2, 5, 10]),
        ("first:5,every:5", [1, 2, 3, 4, 5, 10]),
        ("every:1", list(range(1, 14))),
        ("strict", [1, 2]),
        ("every:6,strict", [6, 12]),
    ],
)
def test_the_calls_that_are_due(asked: bool | str, calls: list[int]) -> None:
    sampling, due, found = Sampling.parse(asked), 0, []
    while (wait := sampling.wait(due)) and due + wait < 14:
        due += wait
        found.append(due)
    assert found == calls
    assert sampling.strict == ("strict" in str(asked))


@pytest.mark.parametrize(
    "asked", ["", "first", "first:0", "last:2", "first:1,first:2", "first:-1", "every:1.5", "3", "strict,"]
)
def test_what_is_no_sampling_names_the_grammar(asked: str) -> None:
    with pytest.raises(ValueError, match=r"write first:N, every:N, strict, or several"):
        Settings(check=asked)


def test_calls_that_are_due_are_checked_also_long_after_the_first(db: str) -> None:
    """The eleventh call goes wrong, writes to its input, and is found by its own check, with its own inputs."""
    calls = []

    def tiring(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(x: torch.Tensor) -> Any:
            calls.append(float(x[0]))
            out = gm.forward(x)
            return out if x[0] < 20 else (out[0] + 1,)

        return run

    with fxminify.capturing(db, check="first:1,every:5"):
        compiled = torch.compile(lambda x: x.add_(1) * 2, backend=tiring)
        for i in range(1, 16):
            x = torch.full((3,), float(10 * (i == 10)) + i)
            compiled(x)
            assert float(x[0]) == i + 1 + 10 * (i == 10)
    assert [calls.count(i + 10 * (i == 10)) for i in range(1, 16)] == [2, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2]
    with Index.open(db) as index:
        [row] = index.captures.find()
        assert (row.kind, row.phase) == ("divergence", "forward")
        assert index.captures.case(row.id).calls == 12


def test_gradients_are_compared_on_a_due_call(db: str) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *g: torch.Tensor) -> torch.Tensor:
            return g[0] * 3

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return lambda x: (Wrong.apply(x),)  # type: ignore[no-untyped-call]

    with fxminify.capturing(db, check="every:4"):
        compiled = torch.compile(lambda x: x.sin(), backend=backend)
        for _ in range(3):
            compiled(torch.ones(3, requires_grad=True)).sum().backward()
        assert not Path(db).exists()
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    with Index.open(db) as index:
        assert [(row.kind, row.phase) for row in index.captures.find()] == [("divergence", "backward")]


@pytest.mark.parametrize(("asked", "found"), [("first:1", [1, 4]), ("every:50", [])])
def test_the_first_call_of_twice_the_size_is_checked_too(db: str, asked: str, found: list[int]) -> None:
    """The fourth call is the first above what the backend can do."""

    def tiled(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls.append(max(a.shape[0] for a in args if isinstance(a, torch.Tensor)))
            (out,) = gm.forward(*args)
            return (torch.where(torch.arange(len(out)) < 32, out, 0),)

        return run

    calls: list[int] = []
    sizes = [8, 9, 15, 64, 65, 127]
    with fxminify.capturing(db, check=asked):
        compiled = torch.compile(lambda x: x.cos() + 2, backend=tiled, dynamic=True)
        for size in sizes:
            compiled(torch.ones(size))
    twice = [i + 1 for i in range(6) if calls.count(sizes[i]) == 2]
    assert twice == found
    rows = []
    if found:
        with Index.open(db) as index:
            rows = index.captures.find()
    assert [row.kind for row in rows] == ["divergence"] * bool(found)
