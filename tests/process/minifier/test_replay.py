"""Replays in real workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from captured import capture, spec

from fxminify.minifier.oracle.replay import healthy, replay
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.sandbox.pool import Pool
from fxminify.store.document.case import Case
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import Signature, signature

ERROR = Failure(
    FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "cannot lower relu", frames=(Frame("be.py", "f"),)
)
HANG = Failure(FailureKind.HANG, Phase.COMPILE, message="no answer within 60 s")


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(spec("healthy").to_json(), memory=1536 << 20) as pool:
        yield pool


def captured(pool: Pool, backend: str, function: Callable[..., object] = relu) -> Case:
    case, blobs = capture(function, (torch.ones(4),), spec(backend))
    pool.scratch.put(blobs)
    return case


def test_a_healthy_graph_is_healthy(pool: Pool) -> None:
    found = replay(pool, healthy(captured(pool, "healthy")), FailureMatcher((ERROR,)), runs=1)
    assert (found.reproduced, found.rate) == (False, 0.0)


@pytest.mark.parametrize(
    ("backend", "failure"),
    [
        ("segfaults", Failure(FailureKind.CRASH, Phase.COMPILE, signal=11)),
        ("aborts_at_run", Failure(FailureKind.CRASH, Phase.FORWARD, signal=8)),
        ("generic", Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "compilation failed",
                            frames=(Frame("faulty_backends.py", "generic"),))),
        ("allocates", Failure(FailureKind.OUT_OF_MEMORY, Phase.COMPILE)),
    ],
)  # fmt: skip
def test_from_capture_to_verdicts(pool: Pool, backend: str, failure: Failure) -> None:
    case = captured(pool, backend)
    found = replay(pool, case, FailureMatcher((failure,)), runs=2)
    assert (found.reproduced, found.rate) == (True, 1.0)
    oracle = found.oracle(pool)
    assert oracle.ask(case).same
    assert oracle.ask(case, fresh=True).same
    assert oracle.ask(healthy(case)).same
    harmless = captured(pool, backend, lambda x: x * 2)
    assert oracle.ask(harmless).outcome is Outcome.PASS


def test_a_slip_is_another_bug(pool: Pool) -> None:
    failure = Failure(
        FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "compilation failed",
        frames=(Frame("faulty_backends.py", "generic"),),
    )  # fmt: skip
    oracle = replay(pool, captured(pool, "generic"), FailureMatcher((failure,)), runs=1).oracle(pool)
    verdict = oracle.ask(captured(pool, "generic", lambda x: torch.sin(x * 2)))
    assert verdict.outcome is Outcome.OTHER
    assert verdict.signature is not None
    assert verdict.signature.diagnostics.endswith("'torch.aten.sin'")


@pytest.mark.slow
def test_a_real_hang_is_replayed_within_its_time(pool: Pool) -> None:
    case = captured(pool, "hangs")
    found = replay(pool, case, FailureMatcher((HANG,)), runs=1, limit=3.0)
    assert (found.reproduced, found.timeout) == (True, 3.0)
    assert found.oracle(pool).ask(captured(pool, "hangs", torch.cos)).outcome is Outcome.PASS
    assert signature(found.failures[0]) == Signature("hang", "compile")


def test_a_flaky_backend_is_voted_on(pool: Pool) -> None:
    failure = Failure(
        FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "now and then",
        frames=(Frame("faulty_backends.py", "every_other"),),
    )  # fmt: skip
    case = captured(pool, "every_other")
    found = replay(pool, case, FailureMatcher((failure,)), runs=3)
    assert found.reproduced
    assert 0 < found.rate < 1
    assert math.isclose(found.rate, 0.5, abs_tol=0.2)
    assert found.oracle(pool).ask(case).same
    assert found.oracle(pool).ask(captured(pool, "every_other", torch.cos)).outcome is Outcome.PASS
