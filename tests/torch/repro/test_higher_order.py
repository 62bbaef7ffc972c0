"""Control flow reads as programs write it, and means to Dynamo what the recorded operator means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan

from fxminify.minifier.tracing.source_function import source_function
from fxminify.repro_templates.source.function import print_graph
from fxminify.repro_templates.source.higher_order import has_public_form
from fxminify.store.document.case import Blobs, Case
from fxminify.store.live.encode import encode

X = torch.arange(1.0, 5.0)


def case_of(function: Callable[..., Any], *inputs: Any) -> tuple[Case, Blobs]:
    """The case Dynamo makes of ``function``."""
    found: list[tuple[Case, Blobs]] = []

    def record(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        encoded = encode(gm, examples)
        case = Case(encoded.graph, encoded.inputs, encoded.tensors, backend={"name": "eager", "target": "eager"})
        found.append((case, encoded.blobs))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=record)(*inputs)
    return found[0]


def branches(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cond(x.sum() > y.sum(), lambda x: x.sin() * 2, lambda x: x.cos() - y, (x,))


def counts(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.while_loop(
        lambda n, z: n < 3, lambda n, z: (n + 1, z * 0.5 + y), (torch.zeros((), dtype=torch.int64), x)
    )


def sorts(x: torch.Tensor, y: torch.Tensor) -> Any:
    return map_over(lambda row, by: row * by.sum(), x.reshape(2, 2), y)  # type: ignore[attr-defined,arg-type]


def adds_pairs(x: torch.Tensor, y: torch.Tensor) -> Any:
    return map_over(lambda pair, by: pair[0] + pair[1] * by.sum(), (x, x + 1), y)  # type: ignore[attr-defined,arg-type]


def accumulates(x: torch.Tensor, y: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry + row, carry * y.sum()), x.sum(), x)


WRITTEN = {
    branches: "torch.cond(gt, cond_true, cond_false, (x, y))",
    counts: "    while_loop = torch.while_loop(cond_fn, body_fn, (zeros, x))",
    sorts: "torch._higher_order_ops.map(map_body, ",
    adds_pairs: "torch._higher_order_ops.map(lambda x, *args: map_body(*x, *args), (",
    accumulates: "scan = torch._higher_order_ops.scan(scan_combine_fn, ",
}


@pytest.mark.parametrize("program", WRITTEN, ids=lambda program: program.__name__)
def test_control_flow_is_written_as_programs_write_it(program: Callable[..., Any]) -> None:
    case, _ = case_of(program, X, X + 1)
    text = print_graph(case).text
    assert WRITTEN[program] in text
    assert "torch.ops.higher_order" not in text
    assert "symbolic_trace" not in text
    assert "torch.ops.higher_order" in print_graph(case, public=False).text
    assert has_public_form(case.graph)


@pytest.mark.parametrize("program", WRITTEN, ids=lambda program: program.__name__)
@pytest.mark.parametrize("public", [True, False])
def test_dynamo_records_the_same_graph_again(program: Callable[..., Any], public: bool) -> None:
    case, blobs = case_of(program, X, X + 1)
    _, function = source_function(case, blobs, public=public)
    again, _ = case_of(function, X, X + 1)
    assert [node.target for node in again.graph.compute] == [node.target for node in case.graph.compute]
    assert again.graph.count == case.graph.count
    torch._dynamo.reset()
    expected = program(X, X + 1)
    torch.testing.assert_close(torch.compile(function, backend="eager")(X, X + 1), expected)


def test_graphs_without_control_flow_have_one_form() -> None:
    case, _ = case_of(lambda x: x.sin(), X)
    assert not has_public_form(case.graph)
    assert print_graph(case).text == print_graph(case, public=False).text


def test_a_function_that_closes_over_a_value_is_inside() -> None:
    case, _ = case_of(counts, X, X + 1)
    assert print_graph(case).text.splitlines() == [
        "def forward(x, y):",
        "    zeros = torch.zeros((), dtype=torch.int64)  # i64[]",
        "    def cond_fn(x_1, x_2):",
        "        return x_1 < 3",
        "    def body_fn(x_1, x_2):",
        "        add = x_1 + 1  # i64[]",
        "        mul = x_2 * 0.5  # f32[4]",
        "        add_1 = mul + y  # f32[4]",
        "        return (add, add_1)",
        "    while_loop = torch.while_loop(cond_fn, body_fn, (zeros, x))",
        "    getitem = while_loop[0]  # i64[]",
        "    getitem_1 = while_loop[1]  # f32[4]",
        "    return (getitem, getitem_1)",
    ]
