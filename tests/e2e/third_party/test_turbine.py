"""IREE's backend ``turbine_cpu``. For every operator it does not know it raises one message, ``JIT compilation failed.
See diagnostics.``, and names the operator on file descriptor 2 only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .conftest import calls, imports, needs

if TYPE_CHECKING:
    from .conftest import Journey

pytestmark = needs("turbine_cpu")


def test_two_bugs_with_one_message_are_two(journey: Journey) -> None:
    captured = journey.capture("plain.py", "turbine_cpu", "lgamma", "erfinv")
    assert [row["kind"] for row in captured] == ["compile_error", "compile_error"]
    assert ["aten.lgamma" in captured[0]["headline"], "aten.erfinv" in captured[1]["headline"]] == [True, True]
    ran = journey.run()
    assert [row["state"] for row in ran] == ["verified", "verified"]
    assert ["lgamma" in ran[0]["headline"], "erfinv" in ran[1]["headline"]] == [True, True]
    lgamma, erfinv = journey.script(1), journey.script(2)
    assert (calls(lgamma), calls(erfinv)) == (["torch.lgamma"], ["torch.erfinv"])
    assert ("torch.aten.lgamma" in lgamma, "torch.aten.erfinv" in erfinv) == (True, True)
    assert imports(lgamma) == ["torch"]


def test_a_reduction_does_not_slip_from_one_bug_to_the_other(journey: Journey) -> None:
    (captured,) = journey.capture("models.py", "turbine_cpu", "bert_with_two")
    assert captured["nodes_before"] > 50
    first, second = journey.run()
    assert (first["state"], calls(journey.script(1))) == ("verified", ["torch.lgamma"])
    assert (second["state"], second["parent"]) == ("pending", 1)
    assert "failed to legalize operation 'torch.aten.erfinv'" in second["headline"]
    assert journey.run()[1]["state"] == "verified"
    assert calls(journey.script(2)) == ["torch.erfinv"]


def test_missing_operators_of_torch_and_of_a_library(journey: Journey) -> None:
    (captured,) = journey.capture("models.py", "turbine_cpu", "mixtral")
    assert captured["nodes_before"] > 200
    assert [row["state"] for row in journey.run()] == ["verified", "pending"]
    assert calls(journey.script(1)) == ["torch.histc"]
    assert journey.run()[1]["state"] == "verified"
    script = journey.script(2)
    assert calls(script) == ["torch.ops.transformers.grouped_mm_fallback"]
    assert "transformers" in " ".join(imports(script))


def test_an_error_that_is_no_missing_operator(journey: Journey) -> None:
    journey.capture("models.py", "turbine_cpu", "wav2vec")
    row = journey.run()[0]
    assert (row["kind"], row["state"]) == ("compile_error", "verified")
    script = journey.script(1)
    assert calls(script) == ["torch._weight_norm"]
    assert "are cast incompatible" in script


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("acosh", "torch.acosh"),  # infinite where x * x is
        ("interpolate", "torch.nn.functional.interpolate"),  # scale_factor is not honoured
    ],
)
def test_other_numbers_than_eager(journey: Journey, name: str, operator: str) -> None:
    journey.capture("plain.py", "turbine_cpu", name, check=True)
    row = journey.run()[0]
    assert (row["kind"], row["state"], row["nodes_after"]) == ("divergence", "verified", 1)
    assert calls(journey.script(1)) == [operator]
