"""A call ends as a script with only what matters, where arguments and sizes must change together."""

from __future__ import annotations

import re

import pytest
from desks import Desk

from fxminify.store.index import Index, State

BACKEND = """
import torch


def calls(gm):
    return {getattr(node.target, "__name__", ""): node for node in gm.graph.nodes}


def backend(gm, inputs):
    found = calls(gm)
    if "conv2d" in found:
        raise NotImplementedError("no lowering for convolutions")
    if "conv1d" in found and (*found["conv1d"].args[6:], found["conv1d"].kwargs.get("groups", 1))[0] > 1:
        raise NotImplementedError("no lowering for groups")
    if "embedding" in found:
        raise NotImplementedError("no lowering for tables")
    return gm.forward
"""
PROGRAM = """
import sys
import torch
from torch import nn

sys.path.insert(0, "lib")
from refusing import backend

nets = [
    (nn.Sequential(nn.Tanh(), nn.Conv2d(8, 16, 3, padding=1, groups=4), nn.ReLU()), torch.randn(2, 8, 2, 2)),
    (nn.Sequential(nn.Tanh(), nn.Conv1d(12, 6, 3, groups=3), nn.ReLU()), torch.randn(2, 12, 7)),
    (nn.Sequential(nn.Embedding(9, 5, padding_idx=2), nn.Linear(5, 4)), torch.randint(9, (3, 4))),
]
for net, x in nets:
    try:
        torch.compile(net, backend=backend)(x)
    except Exception:
        torch._dynamo.reset()
"""


@pytest.mark.slow
def test_scripts_have_only_the_arguments_and_sizes_that_matter(desk: Desk) -> None:
    (desk.path / "lib").mkdir()
    (desk.path / "lib" / "refusing.py").write_text(BACKEND)
    (desk.path / "program.py").write_text(PROGRAM)
    captured = desk.minify("capture", "program.py").stderr
    assert "captured 3 failures" in captured, captured
    done = desk.minify("run", "--no-explain", "--runs", "1", "--replays", "1")
    with Index.open(str(desk.db)) as index:
        assert [capture.state for capture in index.captures.find()] == [State.VERIFIED] * 3, done.stderr
    conv, grouped, table = (desk.minify("repro", str(number)).stdout for number in (1, 2, 3))
    assert "return torch.conv2d(weight, weight)\n" in conv
    assert "weight = torch.zeros(1, 1, 1, 1)\n" in conv
    (x,) = re.findall(r"return torch\.conv1d\((\w+), weight, groups=2\)\n", grouped)
    assert f"\nweight = torch.zeros(2, 1, 1)\n{x} = torch.zeros(2, 1)\n" in grouped
    (x,) = re.findall(r"return torch\.nn\.functional\.embedding\((\w+), weight\)\n", table)
    assert f"\nweight = torch.zeros(1, 1)\n{x} = torch.zeros(1, dtype=torch.int64)\n" in table
    for number in ("1", "2", "3"):
        said = desk.minify("history", number).stdout
        (columns,) = re.findall(r"^pass +asked.*$", said, re.MULTILINE)
        place = columns.index("invalid") + len("invalid")
        counts = [line for line in said.partition(columns)[2].splitlines() if line.strip()]
        assert [line[:place].split()[-1] for line in counts] == ["0"] * len(counts), said
