"""Large graphs: how many queries the reducer asks, and how much memory it takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from made import Fails, has, ops, shrinker, tower

from fxminify.store.document.case import Case


def reduced(count: int, fails: Callable[[Case], bool]) -> tuple[int, list[str]]:
    """Queries, and the operations that are left of ``count`` nodes. `benchmarks/scale.py` measures the seconds."""
    case, trace = tower(count, {count // 4: "asinh", 3 * count // 4: "atan"})
    result = shrinker(Fails(fails)).run(case, trace)
    return result.queries, ops(result.case)


def test_two_culprits_of_a_thousand_nodes_take_few_queries() -> None:
    queries, left = reduced(1000, has("asinh", "atan"))
    assert sorted(left) == ["asinh", "atan"]
    assert queries <= 15


def test_a_failure_that_needs_any_twenty_nodes_takes_few_queries() -> None:
    queries, left = reduced(1000, lambda case: len(ops(case)) >= 20)
    assert len(left) == 20
    assert queries <= 67


def test_two_culprits_of_twenty_thousand_nodes_take_few_queries() -> None:
    queries, left = reduced(20_000, has("asinh", "atan"))
    assert sorted(left) == ["asinh", "atan"]
    assert queries <= 25


#: A path over large values of which a few are alive at a time, with two culprits; prints its peak in MiB.
PROGRAM = """
import sys
import torch
from torch import fx
import torch._dynamo  # torch itself imports it to take an operation apart, and that is no memory of the reduction
import fxminify.minifier.tracing.recorder
from fxminify.minifier.reduce import reduce

def peak():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1024

torch.set_num_threads(1)
aten, graph = torch.ops.aten, fx.Graph()
value, weights = graph.placeholder("x"), [graph.placeholder(f"w{i}") for i in range(8)]
for i in range(120):
    value = graph.call_function(aten.mul.Tensor, (value, weights[i % 8]))
    for at, target in ((30, aten.asinh.default), (90, aten.atan.default)):
        value = graph.call_function(target, (value,)) if i == at else value
graph.output((value,))
gm, inputs = fx.GraphModule({}, graph), [torch.rand(1 << 20) for _ in range(9)]
before = peak()

def fails(gm, inputs):
    gm(*inputs)
    return {aten.asinh.default, aten.atan.default} <= {n.target for n in gm.graph.nodes}

if sys.argv[1] == "eager":
    gm(*[t.clone() for t in inputs])
else:
    small, _ = reduce(gm, inputs, fails)
    assert sum(n.op == "call_function" for n in small.graph.nodes) == 2
print("peak", peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_reduction_needs_little_more_memory_than_one_eager_run() -> None:
    """120 values of 4 MiB are recorded: kept in memory they would be ten times what one run on its own inputs needs.

    glibc gives freed values back to the system: else it keeps as many as it likes.
    """

    def peak(mode: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), mode], capture_output=True, text=True, check=True,
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)},
        )  # fmt: skip
        found = re.search(r"peak ([\d.]+)", done.stdout)
        assert found is not None
        return float(found[1])

    assert peak("reduce") <= 1.5 * peak("eager")
