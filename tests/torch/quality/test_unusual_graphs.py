"""Graphs of unusual form, as Dynamo makes them: the exact minimum, by every pass, none of which may fault.

A planted failure is a set of operations. Each candidate is built and runs in eager, as it does in a worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from captured import capture, spec
from made import REMOVALS, REPLACEMENTS, shrinker
from torch import nn

from fxminify.backends.running.execution import execute
from fxminify.minifier.candidate.hop_calls import paths, subgraph, with_distinct_names
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.tracing.recorder import record
from fxminify.minifier.tracing.study import study
from fxminify.store.document.case import Case, target_name
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode

X = torch.linspace(1.1, 2.0, 16).reshape(4, 4)


def around(x: torch.Tensor, times: int = 3) -> Any:
    for _ in range(times):
        x = torch.tanh(x) * 1.5 + x.cos()
    return x


def writes_to_views(x: torch.Tensor) -> Any:
    y = around(x)
    row = y[0]
    row.mul_(2)
    y[1].add_(row)
    return y.acosh()


def only_side_effects(x: torch.Tensor) -> None:
    x.mul_(2)
    x.acosh_()


def sets_items(x: torch.Tensor) -> Any:
    y = around(x)
    y[0:2, 1] = 0
    return around(y)


def in_autocast(x: torch.Tensor) -> Any:
    x = around(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = around(x @ x)
    return around(y.float())


def quantized(x: torch.Tensor) -> Any:
    return around(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize())


def tangent(x: torch.Tensor) -> Any:
    return torch.func.jvp(lambda row: around(row).acosh(), (around(x),), (x,))[1]


#: Program, the operations that are needed, and those that must be there for them.
PROGRAMS: list[tuple[str, Callable[..., Any], list[str], list[str]]] = [
    ("several results", lambda x: around(x).gather(1, torch.topk(around(x), 2)[1]), ["topk", "gather"], ["getitem"]),
    ("parts of a split", lambda x: [around(p) for p in torch.split(around(x), 2)], ["split"], ["getitem"]),
    ("nested results", lambda x: {"a": [around(x), None, 3], "b": (around(x).acosh(), {"c": x})}, ["acosh"], []),
    ("no inputs", lambda: around(torch.arange(8.0)).acosh(), ["acosh"], []),
    ("views written to", writes_to_views, ["mul_", "add_"], []),
    ("side effects only", only_side_effects, ["acosh_"], []),
    ("items set", sets_items, ["setitem"], []),
    ("complex numbers", lambda x: torch.view_as_real(torch.fft.fft(around(x)) * 2).cos(), ["fft"], []),
    ("lazy conjugates", lambda x: around(torch.complex(x, x).conj().imag), ["getattr"], []),
    ("a quantized tensor", quantized, ["dequantize"], []),
    ("autocast", in_autocast, ["_enter_autocast", "matmul"], ["_exit_autocast"]),
    ("nested vmap", lambda x: torch.vmap(torch.vmap(lambda e: around(e).acosh()))(around(x)), ["acosh"], []),
    ("forward mode", tangent, ["acosh"], []),
    ("random numbers", lambda x: around(F.dropout(x + torch.randn_like(x), 0.5, True)), ["randn_like", "dropout"], []),
    ("symbolic sizes", lambda x: around(x).expand(x.shape[0], *x.size()).reshape(-1, 4).acosh(), ["expand"], []),
]  # fmt: skip


class Block(nn.Module):
    """Leaf modules, a parameter, a buffer, constants."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.norm(self.linear(x) * self.weight + self.offset)).acosh() * math.pi


def calls(case: Case) -> list[str]:
    graphs = [subgraph(case.graph, path) for path in ((), *paths(case.graph))]
    return [target_name(node) for graph in graphs for node in graph.nodes if node.is_compute]


class Eager:
    """Runs a candidate, then looks at what it calls."""

    def __init__(self, needed: list[str], blobs: dict[str, bytes]) -> None:
        self.needed, self.blobs = set(needed), blobs
        self.asked, self.refused = 0, 0

    def ask(self, case: Case) -> Verdict:
        self.asked += 1
        gm, inputs = build(case, self.blobs)
        try:
            execute(gm, inputs)
        except (RuntimeError, TypeError, ValueError):
            self.refused += 1
            return Verdict(Outcome.INVALID)
        return Verdict(Outcome.SAME if self.needed <= set(calls(case)) else Outcome.PASS)


def minimal(case: Case, blobs: dict[str, bytes], needed: list[str]) -> tuple[Case, Eager]:
    case = with_distinct_names(case)
    trace = record(case, blobs, put=blobs.__setitem__)
    oracle = Eager(needed, blobs)
    assert oracle.ask(case).same
    engine = shrinker(
        oracle,
        passes=(*REMOVALS, *REPLACEMENTS),
        study=lambda smaller: study(smaller, blobs, put=blobs.__setitem__),
        strict=True,
    )
    return engine.run(case, trace).case, oracle


@pytest.mark.parametrize(("name", "program", "needed", "more"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_of_a_captured_program_only_what_is_needed_is_left(
    name: str, program: Callable[..., Any], needed: list[str], more: list[str]
) -> None:
    inputs = [] if name == "no inputs" else [X.clone()]
    case, blobs = capture(program, inputs, spec("healthy"))
    best, oracle = minimal(case, dict(blobs), needed)
    assert sorted(calls(best)) == sorted([*needed, *more])
    assert len(best.inputs) <= len(needed)
    assert oracle.refused <= 2


@pytest.mark.parametrize("needed", [["linear"], ["norm", "act"], ["mul", "add"], ["acosh"]], ids="-".join)
def test_leaf_modules_parameters_and_constants(needed: list[str]) -> None:
    encoded = encode(fx.symbolic_trace(Block().eval()), [X])
    best, _ = minimal(Case(encoded.graph, encoded.inputs, encoded.tensors), dict(encoded.blobs), needed)
    assert sorted(calls(best)) == sorted(needed)
    held = {"linear": "linear", "norm": "norm", "act": "act", "mul": "weight", "add": "offset"}
    assert set(best.graph.attrs) == {held[name] for name in needed if name in held}
