"""OpenVINO's backend ``openvino``. It re-traces the graph, which leaves guards that Dynamo cannot build; for what it
does not support it falls back to eager or to Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .conftest import calls, imports, needs

if TYPE_CHECKING:
    from .conftest import Journey

pytestmark = needs("openvino")


@pytest.mark.parametrize(
    ("program", "name", "headline"),
    [
        ("models.py", "vit", "AssertionError: sources must not be empty for symbol"),
        ("models.py", "llama", "IndexError: list index out of range"),
    ],
)
def test_guards_that_cannot_be_built(journey: Journey, program: str, name: str, headline: str) -> None:
    captured = journey.capture(program, "openvino", name)[0]
    assert (captured["kind"], captured["phase"]) == ("compile_error", "guards")
    assert captured["headline"].startswith(headline)
    row = journey.run(1)[0]
    assert (row["state"], row["nodes_after"]) == ("verified", 1)
    script = journey.script(1)
    assert imports(script) == ["torch"]
    assert "Error while creating guard" not in script


@pytest.mark.parametrize(
    ("name", "nodes", "operators"),
    [
        ("set_row", 2, []),  # y = x * 1; y[0] = 0.0 is lost
        ("masked_row", 1, ["torch.nn.functional.scaled_dot_product_attention"]),  # NaN
    ],
)
def test_other_numbers_than_eager(journey: Journey, name: str, nodes: int, operators: list[str]) -> None:
    captured = journey.capture("plain.py", "openvino", name, check=True)[0]
    assert captured["kind"] == "divergence"
    row = journey.run(1)[0]
    assert (row["state"], row["nodes_after"]) == ("verified", nodes)
    assert calls(journey.script(1)) == operators
