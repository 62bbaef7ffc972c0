"""``fxminify_ort`` and the operators of torch's own database: the same as eager, or left to PyTorch with a reason."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.hunting.hunt import hunt, listed
from fxminify.minifier.hunting.log import ProgramLog
from fxminify.minifier.hunting.programs import CallOutcome, Program, ProgramResult, Selection
from fxminify.minifier.hunting.trial import run_program
from fxminify.minifier.sandbox.pool import Pool

pytest.importorskip("expecttest", reason="torch's operator database imports it")
pytest.importorskip("onnxscript")
ORT = BackendSpec(
    name="fxminify_ort", how="entry_point", target="fxminify_ort", distribution="fxminify",
    entry_point="fxminify.backends.shipped.onnxrt:compile_fx",
)  # fmt: skip
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
#: Where a run of all operators that was interrupted goes on. `make clean` removes it.
LOG = Path(__file__).parents[3] / "build" / "operators.jsonl"


def failures(result: ProgramResult) -> list[str]:
    """What is wrong with the calls of a program, and that there are none."""
    if result.problem or not result.calls:
        return [f"{result.program.text()}: {result.problem or 'no calls'}"]
    bad = (call for call in result.calls if call.outcome in (CallOutcome.FAILS, CallOutcome.INFRA))
    return [f"{result.program.text()} call {call.number}: {call.detail}" for call in bad]


def program(text: str) -> Program:
    """The inverse of `Program.text`."""
    suite, name, dtype, gradient, dynamic = text.split()
    return Program(suite, name, dtype, gradient == "gradient", dynamic == "dynamic")


#: Each of them failed once.
MENDED = (
    "ops diagonal_scatter float32 forward dynamic",  # a decomposition that writes to a view
    "ops logdet float32 forward static",
    "ops lcm int64 forward static",
    "ops nn.functional.avg_pool2d float32 gradient static",  # divisors
    "ops unsafe_chunk float32 forward static",  # memory that is shared with the input
    "ops special.i1 float32 gradient static",
)
MORE_MENDED = (
    "ops addmm float32 forward static",  # another value without elements
    "ops addr float32 gradient static",  # another value from two operators that ONNX Runtime fuses
    "ops copysign float32 forward static",  # a dtype that the graph does not promise
    "ops linalg.qr float32 gradient static",
    "ops linalg.svd float32 gradient static",
    "ops native_batch_norm float32 forward static",
    "ops nn.functional.conv_transpose2d float32 gradient static",  # output_padding
    "ops scatter_reduce.mean float32 forward static",
    "ops special.i1e float32 gradient static",
    "ops var.unbiased float32 forward static",
)


@pytest.mark.parametrize("text", [*MENDED, *(pytest.param(text, marks=pytest.mark.slow) for text in MORE_MENDED)])
def test_what_failed_once_is_as_in_eager(text: str) -> None:
    torch.set_num_threads(1)
    result = run_program(program(text), ORT)
    assert failures(result) == []
    assert {call.outcome for call in result.calls} <= {CallOutcome.OK, CallOutcome.REFUSED}


@pytest.mark.slow
def test_a_draw_of_operators_is_as_in_eager() -> None:
    with Pool(ORT.to_json()) as pool:
        chosen = listed(pool, "ops", Selection(dtypes=DTYPES, seed=1))
        drawn = random.Random(0).sample(chosen, 150)
        log = ProgramLog(Path(pool.scratch.root) / "log")
        hunt(pool, ORT.to_json(), drawn, log)
    assert [line for result in log.results.values() for line in failures(result)] == []


@pytest.mark.operators
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_is_as_in_eager(dtype: str) -> None:
    LOG.parent.mkdir(exist_ok=True)
    log = ProgramLog(LOG)
    with Pool(ORT.to_json(), jobs=2) as pool:
        chosen = listed(pool, "ops", Selection(dtypes=(dtype,)))
        assert len(chosen) > 300
        hunt(pool, ORT.to_json(), chosen, log)
    assert [line for one in chosen for line in failures(log.results[one])] == []
