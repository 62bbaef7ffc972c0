"""Failures that need symbolic sizes, however the program's sizes became symbolic, and those that need more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from desks import Desk

BACKENDS = """
import torch
from torch._dynamo import register_backend


@register_backend
def any_symbol(gm, inputs):
    if any(isinstance(i, torch.SymInt) for i in inputs):
        raise RuntimeError("planted: no symbolic sizes")
    return gm.forward


@register_backend
def two_symbols(gm, inputs):
    if len({str(i.node.expr) for i in inputs if isinstance(i, torch.SymInt)}) >= 2:
        raise RuntimeError("planted: two symbols are too many")
    return gm.forward


@register_backend
def symbolic_relu(gm, inputs):
    for node in gm.graph.nodes:
        shape = getattr(node.meta.get("example_value"), "shape", ())
        if "relu" in str(node.target) and any(isinstance(size, torch.SymInt) for size in shape):
            raise RuntimeError("planted: relu of a symbolic shape")
    return gm.forward


@register_backend
def first_shape(gm, inputs):
    seen = []

    def run(*args):
        seen.append([a.shape for a in args if isinstance(a, torch.Tensor)])
        if seen[0] != seen[-1]:
            raise RuntimeError("planted: another shape than the first")
        return gm.forward(*args)

    return run


@register_backend
def calibrated(gm, inputs):
    seen = []

    def run(*args):
        seen.append(max(float(a.detach().max()) for a in args if isinstance(a, torch.Tensor)))
        if seen[-1] > 2 * seen[0]:
            raise RuntimeError("planted: out of the range of the first call")
        return gm.forward(*args)

    return run


graphs = []


@register_backend
def fifth_graph(gm, inputs):
    graphs.append(gm)
    if len(graphs) == 5:
        raise RuntimeError("planted: that was one graph too many")
    return gm.forward
"""
PROGRAM = """
import torch
import symbolic

torch.set_num_threads(1)


def model(x, y):
    scaled = torch.relu((torch.sin(x) + 1) * x.shape[0])
    return scaled.sum() + torch.cos(y).view(-1, y.shape[0]).sum() + x.reshape(x.shape[0] * x.shape[1]).sum()


def call(compiled, *inputs):
    try:
        compiled(*inputs)
    except Exception as error:
        print(type(error).__name__)


def marked(*shape):
    x = torch.randn(shape)
    torch._dynamo.mark_dynamic(x, 0)
    return x


automatic = torch.compile(model, backend="any_symbol")
call(automatic, torch.randn(4, 6), torch.randn(8, 3))
call(automatic, torch.randn(5, 6), torch.randn(8, 3))
torch._dynamo.reset()
call(torch.compile(model, backend="two_symbols", dynamic=True), torch.randn(4, 6), torch.randn(8, 3))
torch._dynamo.reset()
call(torch.compile(model, backend="symbolic_relu"), marked(4, 6), torch.randn(8, 3))
torch._dynamo.reset()
stateful = torch.compile(lambda x: torch.relu(x) + 1, backend="first_shape", dynamic=True)
call(stateful, torch.randn(4, 6))
call(stateful, torch.randn(5, 6))
torch._dynamo.reset()
linear = torch.nn.Linear(6, 6)
ranged = torch.compile(lambda x: torch.relu(linear(x)) + 1, backend="calibrated")
call(ranged, torch.ones(4, 6))
call(ranged, torch.ones(4, 6) * 5)
torch._dynamo.reset()
for number in range(5):
    call(torch.compile(lambda x: torch.sin(x) + number, backend="fifth_graph"), torch.randn(4))
"""


@pytest.fixture
def desk(desk: Desk) -> Desk:
    (desk.path / "symbolic.py").write_text(BACKENDS)
    (desk.path / "sizes.py").write_text(PROGRAM)
    assert desk.minify("capture", "sizes.py").returncode == 0
    return desk


def minified(desk: Desk, *ids: int) -> list[dict[str, Any]]:
    desk.minify("run", "--no-explain", "repro.db", *ids, "--replays", "1", "--runs", "1")
    return [row for row in desk.json("list", "repro.db") if row["id"] in ids]


def marked_dimensions(desk: Desk, id_: int) -> str:
    script = desk.minify("repro", "repro.db", id_).stdout
    assert "dynamic=True" not in script
    (line,) = (line for line in script.splitlines() if "mark_dynamic" in line)
    marks = re.fullmatch(r"torch\._dynamo\.mark_dynamic\(\w+, (.*)\)", line)
    assert marks is not None
    return marks[1]


def calls_of(desk: Desk, id_: int) -> list[str]:
    script = desk.minify("repro", "repro.db", id_).stdout
    return [line for line in script.splitlines() if line.startswith("compiled(")]


@pytest.mark.slow
def test_one_symbol_and_the_call_before_stay(desk: Desk) -> None:
    rows = minified(desk, 1, 4)
    assert [(r["backend"], r["state"], r["nodes_after"]) for r in rows] == [
        ("any_symbol", "verified", 1), ("first_shape", "verified", 1)
    ]  # fmt: skip
    assert marked_dimensions(desk, 1) in ("0", "1")
    assert ["earlier_" in line for line in calls_of(desk, 4)] == [True, False]


@pytest.mark.slow
def test_symbolic_sizes_reproduce_and_only_those_that_matter_stay(desk: Desk) -> None:
    rows = minified(desk, 2, 3, 5, 6)
    assert [(r["backend"], r["state"], r["nodes_after"]) for r in rows[:3]] == [
        ("two_symbols", "verified", 1), ("symbolic_relu", "verified", 1), ("calibrated", "verified", 1)
    ]  # fmt: skip
    assert marked_dimensions(desk, 2) == "(0, 1)"
    assert marked_dimensions(desk, 3) in ("0", "1")
    assert ["earlier_" in line for line in calls_of(desk, 5)] == [True, False]
    assert rows[3]["state"] == "not_reproduced"
    assert "it was graph" in rows[3]["reason"]


STALE = """
import torch
from torch._dynamo import register_backend


@register_backend
def stale(gm, inputs):
    kept = []

    def run(*args):
        if not any("where" in str(node.target) for node in gm.graph.nodes):
            return gm(*args)
        kept.append(gm(*args))
        return tuple(o.clone() for o in kept[0])

    return run
"""
STEPS = """
import torch
import stale


def step(x, limit):
    return torch.where(torch.tanh(x) > limit, x, -x).sum(-1)


compiled = torch.compile(step, backend="stale")
for number in range(3):
    compiled(torch.randn(5, 4), torch.tensor(0.1 * number))
"""


@pytest.mark.slow
def test_a_result_of_an_earlier_call_is_wrong_in_a_later_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "stale.py").write_text(STALE)
    (tmp_path / "steps.py").write_text(STEPS)
    desk.minify("capture", "--check", "steps.py")
    (row,) = minified(desk, 1)
    assert (row["kind"], row["state"], row["nodes_after"], row["verified"]) == ("divergence", "verified", 1, 1)
    assert len(calls_of(desk, 1)) == 1
    script = desk.invoke("repro", "repro.db", 1).stdout
    assert "actual = compiled(" in script
    assert "(5, 4)" not in script
