"""The parts of a graph that are compiled apart: whatever range is compiled, the program computes what eager does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.debugging import aot_eager

from fxminify.backends.capture import seam
from fxminify.backends.capture.graph_parts import CannotCut, compile_range, parts_of
from fxminify.backends.capture.journal import Journal, told
from fxminify.backends.capture.selected_graphs import SelectedGraphs
from fxminify.backends.capture.selection import GraphSelection, PartRange


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    seam.detach()
    torch._dynamo.reset()


def with_autocast(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = y @ x
        y = y.relu()
    return y.float() + x


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with torch.no_grad():
        z = y.exp()
    return (y * z).cos()


def under_vmap(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z: torch.Tensor = torch.vmap(lambda row: row.softmax(-1) * 2)(y)
    return z.sum(0) + y


def with_tuples(x: torch.Tensor) -> torch.Tensor:
    values, places = x.sort(-1)
    return (values * 2).sin() + places


def writing(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    row = y[0]
    row.add_(1)
    y.mul_(2)
    return y.cos() + row


def branching(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z: torch.Tensor = torch.cond(y.sum() > 0, lambda t: t.cos(), lambda t: t.exp(), (y,))
    return z * 2 + x


def reshaping(x: torch.Tensor) -> torch.Tensor:
    n, m = x.shape
    y = x.sin().reshape(n * m)
    return y.view(m, n).t().contiguous() + x * n


PROGRAMS = (with_autocast, without_gradients, under_vmap, with_tuples, branching, reshaping)


@pytest.mark.parametrize(
    ("program", "dynamic"),
    [
        (writing, False),
        *(pytest.param(program, False, marks=pytest.mark.slow) for program in PROGRAMS),
        pytest.param(reshaping, True, marks=pytest.mark.slow),
        pytest.param(with_tuples, True, marks=pytest.mark.slow),
    ],
    ids=lambda p: getattr(p, "__name__", str(p)),
)
def test_each_range_that_is_compiled_computes_what_eager_does(program: Callable[..., Any], dynamic: bool) -> None:
    x = torch.randn(4, 4)
    wanted = x.clone().requires_grad_()
    expected = program(wanted)
    expected.sum().backward()
    met: list[int] = []
    ranges: list[tuple[int, int]] = [(0, 1)]

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        parts = parts_of(gm)
        met.append(len(parts))
        first, end = ranges[0]
        return compile_range(gm, parts[first:end], aot_eager)

    torch._dynamo.reset()
    torch.compile(program, backend=backend, dynamic=dynamic)(x.clone().requires_grad_())
    count = met[0]
    assert count > 1
    some = (
        [(0, b) for b in range(1, count)] + [(a, count) for a in range(1, count)] + [(a, a + 1) for a in range(count)]
    )
    for ranges[0] in dict.fromkeys(some):
        torch._dynamo.reset()
        given = x.clone().requires_grad_()
        result = torch.compile(program, backend=backend, dynamic=dynamic)(given)
        result.sum().backward()
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(given.grad, wanted.grad)


def test_nothing_but_tensors_and_numbers_passes_from_part_to_part() -> None:
    parts: list[list[list[str]]] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        parts.append([[node.name for node in part] for part in parts_of(gm)])
        return gm.forward

    torch.compile(with_tuples, backend=backend)(torch.randn(4, 4))
    torch.compile(under_vmap, backend=backend)(torch.randn(4, 4))
    tuples, vmap = parts
    sort = next(part for part in tuples if any("sort" in name for name in part))
    assert len(sort) > 1
    (inside,) = [part for part in vmap if any("softmax" in name for name in part)]
    assert any("increment" in name for name in inside)
    assert any("decrement" in name for name in inside)


def test_a_value_that_is_not_known_is_named() -> None:
    gm = fx.symbolic_trace(lambda x: torch.sin(x) + 1)
    with pytest.raises(CannotCut, match="x is not known"):
        compile_range(gm, parts_of(gm)[:1], aot_eager)


class Broken(nn.Module):
    """Three graphs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        y = y.sin() * 2
        torch._dynamo.graph_break()
        return y.exp()


def compiled_under(selection: GraphSelection, folder: Path) -> tuple[list[str], torch.Tensor]:
    """The operators that reached the backend, and the result."""
    seen: list[str] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
        seen.extend(node.target if isinstance(node.target, str) else node.target.__name__ for node in nodes)
        return aot_eager(gm, inputs)

    seam.attach(SelectedGraphs(selection, Journal(str(folder)), None))
    try:
        torch._dynamo.reset()
        return seen, torch.compile(Broken(), backend=backend)(torch.ones(3))
    finally:
        seam.detach()


def test_only_what_is_selected_reaches_the_backend(tmp_path: Path) -> None:
    seen, result = compiled_under(GraphSelection(), tmp_path)
    assert len(seen) == 4
    graphs = [json.loads(line) for line in told(tmp_path, "graph")]
    assert [graph["nodes"] for graph in graphs] == [1, 2, 1]
    names = [graph["name"] for graph in graphs]
    nothing, eager = compiled_under(GraphSelection({}), tmp_path)
    assert nothing == []
    second, _ = compiled_under(GraphSelection({names[1]: None}), tmp_path)
    assert len(second) == 2
    part, cut = compiled_under(GraphSelection({names[1]: PartRange(1, 2)}), tmp_path)
    assert part == second[1:] == ["mul"]
    for other in (eager, cut):
        torch.testing.assert_close(other, result)
    (noted,) = [json.loads(line) for line in told(tmp_path, "compiled_part")]
    assert (noted["graph"], [node["operator"] for node in noted["nodes"]]) == (names[1], part)


@pytest.mark.parametrize("selected", [{}, {"another": None}, {"first": PartRange(0, 1)}])
def test_guards_of_a_graph_that_is_not_selected_stay(selected: dict[str, PartRange | None], tmp_path: Path) -> None:
    """The backend wants a size to be a number, so a second size makes a second graph; and it raises in the second."""
    sizes: list[int] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        sizes.extend(int(value) for value in inputs if isinstance(value, torch.SymInt))
        if len(sizes) > 1:
            raise ValueError("no second size")
        return gm.forward

    def named(selection: GraphSelection, folder: Path) -> list[str]:
        torch._dynamo.reset()
        folder.mkdir(exist_ok=True)
        seam.attach(SelectedGraphs(selection, Journal(str(folder)), None))
        try:
            compiled = torch.compile(lambda x: x.sin() * 2, backend=backend, dynamic=True)
            torch.testing.assert_close(
                [compiled(torch.ones(n)) for n in (4, 5)], [torch.ones(n).sin() * 2 for n in (4, 5)]
            )
        finally:
            seam.detach()
        return [json.loads(line)["name"] for line in told(folder, "graph")]

    one = named(GraphSelection({}), tmp_path)
    assert (len(one), sizes) == (1, [])
    chosen = {one[0] if name == "first" else name: part for name, part in selected.items()}
    first, *more = named(GraphSelection(chosen), tmp_path / "selected")
    assert ([first], len(more), sizes) == ((one, 1, [4, 5]) if selected else (one, 0, []))
