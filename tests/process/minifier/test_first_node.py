"""The first node whose value differs, found in real workers with a backend that is wrong in the middle."""

from typing import Any

import pytest
import torch
from captured import capture, spec
from real_failures import skip_if_gone

from fxminify.minifier.oracle import first_node
from fxminify.minifier.sandbox.pool import Pool
from fxminify.minifier.tracing.recorder import record
from fxminify.store.failure import Failure, FailureKind, Phase

WRONG = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, detail={"class": "value", "where": "output 0"})


def program(x: torch.Tensor) -> Any:
    low, high = (x * 2).relu().chunk(2)
    return (torch.acosh(low.exp() + 1e20) - high).sum()


@pytest.mark.slow
def test_the_first_node_is_named_although_all_that_follow_differ_too() -> None:
    """Row 45, with a real bug: Inductor's acosh overflows."""
    skip_if_gone("017_acosh_overflow")
    case, blobs = capture(program, [torch.linspace(-1, 1, 8)], spec("inductor", module=""), compare=True)
    with Pool(case.backend, case.imports) as pool:
        pool.scratch.put(blobs)
        trace = record(case, blobs, put=pool.scratch.write)
        found = first_node.find(pool, case, trace, WRONG, "direct", 120.0)
        assert found is not None
        assert (found["node"], found["class"]) == ("acosh", "inf")
        names = [n.name for n in case.graph.compute]
        assert (found["position"], found["of"]) == (names.index("acosh") + 1, len(names))
        gradient = Failure(FailureKind.DIVERGENCE, Phase.BACKWARD, detail={"class": "value"})
        assert first_node.find(pool, case, trace, gradient, "direct", 120.0) is None
