"""Which candidates torch accepts, without a backend; and operators whose arguments and sizes only change together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import fxminify
from fxminify.minifier.candidate.validity import Way
from fxminify.minifier.oracle import tasks
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.minifier.tracing.validity import MOST_ELEMENTS, validity, way
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.document.strides import contiguous

torch.set_num_threads(1)

OUTPUT = Node("output", "output", "output", ({"tuple": [{"ref": "out"}]},))


def zeros(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, shape, contiguous(shape), init={"fn": "full", "value": 0})


def case(fn: str, *tensors: TensorSpec, args: tuple[Any, ...] = (), **kwargs: Any) -> Case:
    names = [f"x{i}" for i in range(len(tensors))]
    nodes = [Node(n, "placeholder", n) for n in names]
    nodes.append(Node("out", "call_function", {"fn": fn}, (*({"ref": n} for n in names), *args), kwargs))
    return Case(Graph((*nodes, OUTPUT)), tuple({"tensor": i} for i in range(len(tensors))), tensors)


@pytest.mark.parametrize(
    ("size", "expected"), [(4, Way.EAGER), (MOST_ELEMENTS, Way.FAKE)], ids=["small: eager", "large: fake tensors"]
)
def test_what_torch_refuses_is_told_in_both_ways(size: int, expected: Way) -> None:
    base = case("torch.matmul", zeros(2, size), zeros(size, 3))
    assert way(base) is expected
    wrong = replace(base, tensors=(zeros(2, size), zeros(size + 1, 3)))
    assert validity(way(base), [base, wrong]) == [True, False]


def test_nothing_is_told_where_torch_refuses_a_case_that_runs() -> None:
    """The Cholesky factor of zeros does not exist, and fake tensors do not look at values."""
    singular = case("torch.linalg.cholesky", zeros(2, 2))
    assert way(singular) is Way.FAKE
    wrong = case("torch.matmul", zeros(2, 3), zeros(2, 3))
    assert way(wrong) is Way.NONE


def test_a_loop_that_zeros_could_keep_running_is_not_run() -> None:
    base = case("torch.relu", zeros(2))
    looping = Node("loop", "call_function", {"hop": "while_loop"}, ({"ref": "x0"},))
    nodes = (*base.graph.nodes[:-1], looping, OUTPUT)
    assert way(replace(base, graph=replace(base.graph, nodes=nodes))) is Way.NONE


def test_recorded_values_are_not_read() -> None:
    held = replace(zeros(2, 3), init=None, storage="nobody has it")
    base = case("torch.softmax", held, dim=1)
    assert validity(way(base), [base, case("torch.softmax", held, dim=2)]) == [True, False]


def test_what_depends_on_values_is_not_told_by_fake_tensors() -> None:
    base = case("torch.nonzero", zeros(MOST_ELEMENTS + 1))
    assert way(base) is Way.FAKE
    assert validity(Way.FAKE, [base]) == [True]


def test_random_numbers_of_the_process_stay() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    dropout = case("torch.dropout", zeros(2, 3), args=(0.5, True))
    assert validity(way(dropout), [dropout, dropout]) == [True, True]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_worker_tells_the_same() -> None:
    base = case("torch.matmul", zeros(2, 3), zeros(3, 2))
    wrong = replace(base, tensors=(zeros(2, 3), zeros(2, 3)))
    scratch = Scratch.create()
    try:
        found = tasks.way(tasks.way_argument(base), scratch, lambda phase: None)
        assert found == {"way": Way.EAGER}
        argument = tasks.validity_argument(Way(found["way"]), [base, wrong])
        assert tasks.validity(argument, scratch, lambda phase: None) == {"valid": [True, False]}
    finally:
        scratch.remove()


# Real operators. A condition sees the values with which an operator is called.

Called = Callable[[tuple[Any, ...], dict[str, Any]], bool]


class Watching(fx.Interpreter):
    """Runs a graph and notes what it calls."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.extra_traceback = False
        self.called: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            self.called.append((getattr(n.target, "__name__", ""), args, kwargs))
        return super().run_node(n)


def minimal(function: Callable[..., Any], inputs: Sequence[torch.Tensor], name: str, needs: Called) -> str:
    """The only call that is left of ``function`` where a call of ``name`` fails that ``needs`` holds for. Tensors are
    written as their shapes."""
    asked = []

    def fails(gm: fx.GraphModule, given: list[Any]) -> bool:
        watching = Watching(gm)
        try:
            watching.run(*given)
        except (RuntimeError, ValueError, IndexError, TypeError):
            asked.append(False)
            return False
        asked.append(True)
        return any(called == name and needs(args, kwargs) for called, args, kwargs in watching.called)

    gm, given = fxminify.reduce(fx.symbolic_trace(function), inputs, fails)
    assert asked.count(False) == 0, "a query was invalid"
    shapes = {n.name: list(t.shape) for n, t in zip(gm.graph.find_nodes(op="placeholder"), given, strict=True)}
    (node,) = [n for n in gm.graph.nodes if n.op.startswith("call")]
    shown = [str(shapes[a.name]) if isinstance(a, fx.Node) else repr(a) for a in node.args]
    shown += [f"{k}={shapes[v.name] if isinstance(v, fx.Node) else v}" for k, v in node.kwargs.items()]
    return f"{getattr(node.target, '__name__', node.target)}({', '.join(shown)})"


def anything(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def argument(place: int, name: str, default: Any = None) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    return lambda args, kwargs: args[place] if len(args) > place else kwargs.get(name, default)


GROUPS, BIAS, NORM_WEIGHT = argument(6, "groups", 1), argument(2, "bias"), argument(2, "weight")


@pytest.mark.parametrize(
    ("function", "shapes", "name", "needs", "expected"),
    [
        (lambda x, w, b: F.conv2d(x, w, b, 1, 1), [(2, 8, 2, 2), (16, 8, 3, 3), (16,)], "conv2d", anything, ""),
        (lambda x, w, b: F.conv2d(x, w, b, 2, 1, 2, 4), [(2, 8, 9, 9), (16, 2, 3, 3), (16,)], "conv2d", anything, ""),
        (
            lambda x, w: F.conv1d(x, w, None, 1, 2, 1, 8),
            [(2, 8, 3), (8, 1, 5)],
            "conv1d",
            anything,
            "conv1d([1, 1, 1], [1, 1, 1])",
        ),
        (
            lambda x, w, b: F.conv2d(x, w, b, 1, 0, 1, 4),
            [(2, 8, 6, 6), (16, 2, 3, 3), (16,)],
            "conv2d",
            lambda args, kwargs: GROUPS(args, kwargs) > 1,
            "conv2d([2, 1, 1], [2, 1, 1, 1], groups=2)",
        ),
        (
            lambda x, w, b: F.conv2d(x, w, b, 1, 0, 1, 4),
            [(2, 8, 6, 6), (16, 2, 3, 3), (16,)],
            "conv2d",
            lambda args, kwargs: BIAS(args, kwargs) is not None,
            "conv2d([1, 1, 1, 1], [1, 1, 1, 1], [1])",
        ),
        (
            lambda x, w, b: F.group_norm(x.sin(), 4, w, b),
            [(2, 16, 3, 3), (16,), (16,)],
            "group_norm",
            lambda args, kwargs: args[1] > 1,
            "group_norm([2, 2], 2)",
        ),
        (
            lambda x, w, b: F.layer_norm(x.sin(), (24,), w, b),
            [(2, 5, 24), (24,), (24,)],
            "layer_norm",
            lambda args, kwargs: NORM_WEIGHT(args, kwargs) is not None,
            "layer_norm([1], (1,), weight=[1])",
        ),
        (
            lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m),
            [(2, 4, 5, 8), (2, 4, 6, 8), (5, 6)],
            "scaled_dot_product_attention",
            anything,
            "scaled_dot_product_attention([1, 1], [1, 1], [1, 1])",
        ),
    ],
)
def test_a_call_ends_with_only_what_matters(
    function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], name: str, needs: Called, expected: str
) -> None:
    torch.manual_seed(0)
    found = minimal(function, [torch.randn(*shape) for shape in shapes], name, needs)
    assert found == (expected or f"{name}([1, 1, 1, 1], [1, 1, 1, 1])")


@pytest.mark.parametrize("size", [4, MOST_ELEMENTS + 1])
def test_a_candidate_whose_backward_pass_eager_refuses_is_none(size: int) -> None:
    x = replace(zeros(size), requires_grad=True, leaf=True)
    nodes = (
        Node("x", "placeholder", "x"),
        Node("y", "call_function", {"fn": "torch.sigmoid"}, ({"ref": "x"},)),
        Node("out", "call_function", {"fn": "torch.mul"}, ({"ref": "y"}, {"ref": "y"})),
    )
    base = Case(Graph((*nodes, OUTPUT)), ({"tensor": 0},), (x,), backward=True)
    written = Node("z", "call_method", "mul_", ({"ref": "y"}, 2))
    changed = replace(base, graph=Graph((*nodes, written, OUTPUT)))
    assert validity(way(base), [base, changed, replace(changed, backward=False)]) == [True, False, True]
