"""Which translations are used: patterns of calls, the check of a single call, and the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxminify.backends.shipped.onnxrt import alone, trust
from fxminify.backends.shipped.onnxrt.options import OnnxrtOptions
from fxminify.backends.shipped.onnxrt.patterns import CallPattern, may_be_empty, pattern_of
from fxminify.backends.shipped.onnxrt.trust import Table, Trust

from .conftest import Comparison

r = torch.randn
CPU = ("CPUExecutionProvider",)


def calls(function: Callable[..., Any], *args: torch.Tensor, symbolic: bool = False) -> list[torch.fx.Node]:
    """The calls of ATen operators that compute tensors."""
    gm = make_fx(function, tracing_mode="symbolic" if symbolic else "fake")(*args)
    found = [n for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    return [n for n in found if not isinstance(n.meta["val"], torch.SymInt)]


def halved(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """ONNX Runtime forgets the factor where the matrices have no elements."""
    return torch.addmm(c, a, b, beta=0.5)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any pattern, as with another onnxscript than the table's."""
    monkeypatch.setattr(trust, "table", lambda: Table({}))
    monkeypatch.setattr(trust, "_checked", {})


@pytest.mark.parametrize(
    ("function", "args", "pattern"),
    [
        (lambda x: x + 1, (r(2, 3),), "aten::add.Tensor f32 0[2] 1"),
        (lambda x, y: x * y, (r(2, 3, 4, 5).half(), torch.tensor(2)), "aten::mul.Tensor f16,i64 0[2] 1[0]"),
        (lambda x: x.sum(-1, True), (r(2, 3),), "aten::sum.dim_IntList f32 0[2] [1:-] T"),
        (lambda x: torch.cat([x, x, x, x], 1), (r(2, 3),), "aten::cat f32 (0[2] x3) 1"),
        (lambda x, y: x.mm(y), (r(2, 0), r(0, 3)), "aten::mm f32 0[2e] 0[2e]"),
        (lambda: torch.full((2,), 0.5, dtype=torch.float64), (), "aten::full >f64 [1:+] +. dtype=f64"),
        (lambda x: x.topk(2)[0], (r(4),), "aten::topk f32 0[1] + -> 0,1"),
        (lambda x, k: x[:, k], (r(2, 3), torch.tensor([0])), "aten::index.Tensor f32,i64 0[2] (None 1[1])"),
        (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), (r(2),), "aten::gelu f32 0[1] approximate='tanh'"),
    ],
)
def test_patterns(function: Callable[..., Any], args: tuple[torch.Tensor, ...], pattern: str) -> None:
    (node,) = calls(function, *args)
    assert str(pattern_of(node)) == pattern


def test_a_tensor_without_elements_is_possible_where_sizes_depend_on_data() -> None:
    sliced, product = calls(lambda x: x[2:] * 2, r(6, 4), symbolic=True)
    assert not may_be_empty(sliced)
    assert str(pattern_of(sliced)) == "aten::slice.Tensor f32 0[2~] 0 + +"
    assert may_be_empty(product)
    assert str(pattern_of(product)) == "aten::mul.Tensor f32 0[2~] +"
    assert str(pattern_of(product, empty=True)) == "aten::mul.Tensor f32 0[2~e] +"


def test_only_results_that_are_used_count() -> None:
    def values(x: torch.Tensor) -> Any:
        return torch.ops.aten.native_layer_norm(x, [4], None, None, 1e-5)[0]

    gm = make_fx(values, tracing_mode="fake")(r(3, 4))
    gm.graph.eliminate_dead_code()
    (node,) = (n for n in gm.graph.nodes if n.target is torch.ops.aten.native_layer_norm.default)
    assert str(pattern_of(node)) == "aten::native_layer_norm f32 0[2] [1:+] None None +. -> 0"
    assert len(alone.graph_of(node).graph.output_node().all_input_nodes) == 1


@pytest.mark.usefixtures("unknown")
def test_a_translation_is_checked_where_the_table_knows_nothing() -> None:
    doubt = Trust(OnnxrtOptions(), CPU).why_not
    (node,) = calls(torch.addmm, r(2, 3), r(2, 5), r(5, 3))
    assert doubt(node) == ""
    (node,) = calls(halved, r(2, 3), r(2, 0), r(0, 3))
    assert doubt(node) == "its translation gives another value than eager"
    (node,) = calls(torch.erf, r(2).double())
    assert doubt(node) == "ONNX Runtime has no kernel for Erf"
    (node,) = calls(lambda x, k: x.index_select(0, k), r(5, 2), torch.tensor([4, 4]))
    assert doubt(node) == ""


@pytest.mark.usefixtures("unknown")
def test_what_cannot_be_checked_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    doubt = Trust(OnnxrtOptions(), CPU).why_not
    monkeypatch.setattr(alone, "MOST_ELEMENTS", 5)
    (node,) = calls(torch.sin, r(2, 3))
    assert doubt(node) == "its translation could not be checked: its arguments have more than 5 elements"


@pytest.mark.usefixtures("unknown")
def test_each_pattern_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    made_up = alone.made_up

    def noted(node: torch.fx.Node, **more: Any) -> Any:
        asked.append(node.name)
        return made_up(node, **more)

    monkeypatch.setattr(alone, "made_up", noted)
    for size in (3, 4):
        (node,) = calls(torch.sin, r(size))
        assert Trust(OnnxrtOptions(), CPU).why_not(node) == ""
    assert asked == ["sin"]
    assert Trust(OnnxrtOptions(target_opset=20), CPU).why_not(node) == ""
    assert asked == ["sin", "sin"], "another opset is another translation"


@pytest.mark.usefixtures("unknown")
def test_a_wrong_translation_is_an_island_and_an_error_with_strict(compare: Comparison) -> None:
    with torch.no_grad():
        compare(halved, (r(2, 3), r(2, 0), r(0, 3)))
    assert compare.islands == ["aten.addmm.default"]
    with pytest.raises(Exception, match="its translation gives another value"):
        compare(halved, (r(2, 3), r(2, 0), r(0, 3)), strict=True)


def test_the_shipped_table_is_that_of_the_tested_versions() -> None:
    """If this fails, make the table again: python -m fxminify.minifier.hunting.translations --shipped FOLDER."""
    shipped = Table.from_json(trust.SHIPPED.read_text())
    assert shipped.versions == trust.installed()
    assert shipped.to_json() == trust.SHIPPED.read_text()
    assert shipped.known[CallPattern("aten::mm", "f32", "0[2] 0[2]")] == ""
    assert shipped.known[CallPattern("aten::addmm", "f32", "0[2] 0[2e] 0[2e] alpha=+. beta=+.")] != ""


def test_a_table_survives_being_written(tmp_path: Any) -> None:
    known = {
        CallPattern("aten::mm", "f32", "0[2] 0[2]"): "",
        CallPattern("aten::mm", "f64", "0[2] 0[2]"): "",
        CallPattern("aten::erf", "f64", "0[2]"): "ONNX Runtime has no kernel for Erf",
        CallPattern("aten::erf", "f64", "0[0]"): "ONNX Runtime has no kernel for Erf",
    }
    table = Table({"torch": "2.13.0"}, known)
    assert Table.from_json(table.to_json()) == table
    with pytest.raises(ValueError, match="no table of translations"):
        Table.from_json('{"versions": {}}')
