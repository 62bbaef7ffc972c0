"""Subgraphs of higher-order operators, and functorch regions: exact minimal graphs, of programs that Dynamo captured.

Each program has more than thirty nodes around and inside; the failure is an operation in the innermost function. Where
it may stand anywhere one node is left; where it must stand inside a subgraph, the operator stays and its subgraph has
one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import fxminify

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def around(x: torch.Tensor, times: int = 5) -> Any:
    for _ in range(times):
        x = torch.tanh(x) * 1.5 + x.cos().exp().relu()
    return x


def inside(x: torch.Tensor) -> Any:
    """The culprit is ``asinh``."""
    return around(around(x, 1).asinh() * 2, 1)


def in_true_branch(x: torch.Tensor) -> Any:
    return around(torch.cond(x.sum() > 0, inside, lambda x: around(x, 1).cos(), (around(x),)))


def in_branch_not_taken(x: torch.Tensor) -> Any:
    return around(torch.cond(x.sum() > 100, inside, lambda x: around(x, 1).cos(), (around(x),)))


def in_both_branches(x: torch.Tensor) -> Any:
    return around(torch.cond(x.sum() > 0, inside, lambda x: inside(x).cos(), (around(x),)))


def in_loop(x: torch.Tensor) -> Any:
    start = (torch.tensor(0), around(x))
    return around(while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, inside(x)), start)[1])


def in_scan(x: torch.Tensor) -> Any:
    carried, stacked = scan(lambda c, x: (c + x, inside(c * x)), x[0].clone(), around(x), dim=0)
    return around(stacked) + carried


def in_map(x: torch.Tensor) -> Any:
    mapped: Any = torch_map  # its type takes no further arguments
    return around(mapped(lambda row, y: inside(row) + y, around(x), x[0] + 1))


def in_checkpoint(x: torch.Tensor) -> Any:
    return around(checkpoint(inside, around(x), use_reentrant=False))


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> Any:
    return inside(x)


def in_invoked_region(x: torch.Tensor) -> Any:
    return around(region(around(x)) + region(x + 1))


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return inside(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * around(ctx.saved_tensors[0].cos(), 1)


def in_function(x: torch.Tensor) -> Any:
    return around(Function.apply(around(x)))  # type: ignore[no-untyped-call]


def in_score(q: torch.Tensor) -> Any:
    q = around(q)
    return around(flex_attention(q, q, q, score_mod=lambda s, b, h, m, n: around(s, 1) + (m - n).abs().asinh()))


@torch.compiler.nested_compile_region
def nested(x: torch.Tensor) -> Any:
    return around(torch.cond(x.sum() > 0, inside, lambda x: around(x, 1).cos(), (around(x, 1),)), 1)


def in_branch_in_region(x: torch.Tensor) -> Any:
    return around(nested(around(x)))


def in_vmap(x: torch.Tensor) -> Any:
    return around(torch.vmap(lambda row: inside(row).sum())(around(x)))


def in_gradient(x: torch.Tensor) -> Any:
    return around(torch.func.grad(lambda x: inside(x).sum())(around(x)))


X = torch.linspace(0.1, 1.0, 12).reshape(4, 3)
#: Program, and the compute nodes that are left in the graph and in each subgraph where one must hold the culprit.
OPERATORS: dict[str, tuple[Program, list[int]]] = {
    "cond": ((in_true_branch, (X,)), [2, 1, 0]),
    "cond not taken": ((in_branch_not_taken, (X,)), [2, 1, 0]),
    "cond both": ((in_both_branches, (X,)), [2, 0, 1]),
    "while_loop": ((in_loop, (X,)), [2, 1, 1]),
    "scan": ((in_scan, (X,)), [2, 1]),
    "map": ((in_map, (X,)), [2, 1]),
    "checkpoint": ((in_checkpoint, (X,)), [2, 1]),
    "invoke_subgraph": ((in_invoked_region, (X,)), [2, 1]),
    "autograd.Function": ((in_function, (X.clone().requires_grad_(),)), [2, 1, 0]),
    "flex_attention": ((in_score, (torch.linspace(0, 1, 256).reshape(1, 1, 16, 16),)), [2, 1, 0]),
    "nested": ((in_branch_in_region, (X,)), [2, 1, 0]),
}
TRANSFORMS: dict[str, Program] = {"vmap": (in_vmap, (X,)), "grad": (in_gradient, (X,))}


def captured(program: Program) -> tuple[fx.GraphModule, list[Any]]:
    found: list[fx.GraphModule] = []
    kept: list[list[Any]] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(gm)
        kept.append([i.detach() for i in inputs])
        return gm.forward

    function, arguments = program
    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    return found[0], kept[0]


def graphs(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """A graph module and its subgraphs, each once, in the order of their use."""
    seen: dict[int, fx.GraphModule] = {id(gm): gm}
    stack = [gm]
    while stack:
        now = stack.pop(0)
        for node in now.graph.nodes:
            subgraph = now.get_submodule(node.target) if node.op == "get_attr" and not hasattr(X, node.target) else None
            if isinstance(subgraph, fx.GraphModule) and id(subgraph) not in seen:
                seen[id(subgraph)] = subgraph
                stack.append(subgraph)
    yield from seen.values()


def operations(gm: fx.GraphModule) -> list[str]:
    return [getattr(n.target, "__name__", str(n.target)) for n in gm.graph.nodes if n.op.startswith("call")]


def counts(gm: fx.GraphModule) -> list[int]:
    return [len(operations(g)) for g in graphs(gm)]


def fails_with(culprit: str, *, in_subgraph: bool = False) -> Callable[[fx.GraphModule, list[Any]], bool]:
    """The graph runs in eager, and an operation stands in it, or in one of its subgraphs."""

    def fails(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        gm(*inputs)
        return any(culprit in operations(g) for g in list(graphs(gm))[in_subgraph:])

    return fails


@pytest.mark.process
@pytest.mark.parametrize("name", [*OPERATORS, *TRANSFORMS])
def test_what_fails_anywhere_ends_outside_of_the_operator(name: str) -> None:
    gm, inputs = captured(TRANSFORMS[name] if name in TRANSFORMS else OPERATORS[name][0])
    assert sum(counts(gm)) > 30
    asked = 0
    fails = fails_with("asinh")

    def counted(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        nonlocal asked
        asked += 1
        return fails(gm, inputs)

    gm, inputs = fxminify.reduce(gm, inputs, counted)
    assert operations(gm) == ["asinh"]
    assert counts(gm) == [1]
    assert len(inputs) == 1
    assert asked <= 20
    gm(*inputs)


@pytest.mark.process
@pytest.mark.parametrize("name", OPERATORS)
def test_what_fails_only_inside_leaves_the_operator_and_one_node(name: str) -> None:
    program, expected = OPERATORS[name]
    gm, inputs = captured(program)
    gm, inputs = fxminify.reduce(gm, inputs, fails_with("asinh", in_subgraph=True))
    assert counts(gm) == expected
    assert any("asinh" in operations(g) for g in graphs(gm))
    gm(*inputs)


@pytest.mark.parametrize(
    ("operator", "others"),
    [
        ("_vmap_increment_nesting", ["_vmap_decrement_nesting"]),
        ("_add_batch_dim", ["_vmap_decrement_nesting", "_vmap_increment_nesting"]),
        ("_remove_batch_dim", []),
    ],
)
def test_what_a_failure_needs_of_a_region_stays(operator: str, others: list[str]) -> None:
    gm, inputs = captured(TRANSFORMS["vmap"])

    def fails(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        gm(*inputs)
        return {"asinh", operator} <= set(operations(gm))

    gm, inputs = fxminify.reduce(gm, inputs, fails)
    assert sorted(operations(gm)) == sorted(["asinh", operator, *others])


def test_a_condition_that_ends_a_loop_stays() -> None:
    gm, inputs = captured(OPERATORS["while_loop"][0])
    gm, inputs = fxminify.reduce(gm, inputs, fails_with("lt", in_subgraph=True))
    assert [operations(g) for g in graphs(gm)][1:] == [["lt"], ["add"]]


def test_what_a_loop_carries_for_nothing_goes() -> None:
    def loop(x: torch.Tensor, y: torch.Tensor) -> Any:
        start = (around(y, 1), torch.tensor(0), around(x), y + 1)
        step = lambda y, i, x, z: (y * 2, i + 1, inside(x), z + y)  # noqa: E731
        return around(while_loop(lambda y, i, x, z: i < 3, step, start)[2])

    gm, inputs = captured((loop, (X, X + 1)))
    gm, inputs = fxminify.reduce(gm, inputs, fails_with("asinh", in_subgraph=True))
    assert [operations(g) for g in graphs(gm)] == [["while_loop", "getitem"], ["zeros"], ["asinh"]]
    assert [len(g.graph.find_nodes(op="placeholder")) for g in graphs(gm)] == [1, 2, 2]
    gm(*inputs)


def test_operands_that_no_body_reads_go() -> None:
    def many(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x, y, z: inside(x) + y, lambda x, y, z: z.cos(), (x, y, z))

    gm, inputs = captured((many, (X, X + 1, X + 2)))
    gm, inputs = fxminify.reduce(gm, inputs, fails_with("asinh", in_subgraph=True))
    assert counts(gm) == [2, 1, 0]
    assert [len(g.graph.find_nodes(op="placeholder")) for g in graphs(gm)] == [2, 1, 1]
