"""Large storages are shared by the runs of a graph, and nothing changes them."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import fxminify
from fxminify.backends.comparison import wide
from fxminify.backends.comparison.compare import Differences
from fxminify.backends.comparison.reference import Reference
from fxminify.backends.comparison.wide import Noise, run_wide
from fxminify.backends.running import shared as shared_module
from fxminify.backends.running.effects import draws, reads_only
from fxminify.backends.running.execution import execute, storage_of
from fxminify.backends.running.shared import SharedStorages
from fxminify.store.index import Index


def all_shared(graph: fx.GraphModule, inputs: list[Any]) -> SharedStorages:
    return SharedStorages(graph, inputs, large=1, copied=-1)


def traced(function: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


# Which runs share


def test_small_graphs_share_nothing() -> None:
    x = torch.ones(4)
    shared = SharedStorages(traced(lambda x: x * 2), [x])
    assert shared.numbers == set()
    assert shared.inputs()[0].data_ptr() != x.data_ptr()


def test_of_a_large_graph_small_storages_are_copied() -> None:
    weight, bias = torch.ones(256, 256), torch.ones(256)
    shared = SharedStorages(
        traced(lambda x, w, b: F.linear(x, w, b)), [weight, weight.t(), bias], large=1 << 17, copied=1 << 17
    )
    given = shared.inputs()
    assert [a.data_ptr() == b.data_ptr() for a, b in zip(given, shared.given, strict=True)] == [True, True, False]
    assert [t.stride() for t in given] == [(256, 1), (1, 256), (1,)]
    assert given[0] is not weight


def test_a_shared_parameter_is_a_parameter_without_the_history_of_the_programs() -> None:
    weight = nn.Parameter(torch.ones(4))
    (given,) = all_shared(traced(lambda w: w * 2), [weight]).inputs()
    assert type(given) is nn.Parameter
    assert given.data_ptr() == weight.data_ptr()
    before = given._version
    with torch.no_grad():
        given.mul_(1)
    assert (weight._version, given._version) == (0, before + 1)


def test_tensors_that_a_graph_holds_are_shared_too() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    graph = fx.symbolic_trace(module)
    made = all_shared(graph, [torch.ones(2, 4)]).graph()
    assert made is not graph
    assert {p.data_ptr() for p in made.parameters()} == {p.data_ptr() for p in module.parameters()}
    assert not {id(p) for p in made.parameters()} & {id(p) for p in module.parameters()}


# Eager runs


def in_place(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.mul_(2)
    return x + w


def batch_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x.view(2, 2), w[:2], w[2:], training=True)


@torch.library.custom_op("shared_test::silent", mutates_args=())
def silent(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.mul_(2)
    return x + w


@pytest.mark.parametrize("written", [in_place, batch_norm, silent])
def test_what_eager_writes_to_is_restored_and_copied_from_then_on(written: Callable[..., Any]) -> None:
    x, w = torch.arange(4.0), torch.arange(4.0) + 1
    graph = fx.Graph()
    operands = graph.placeholder("x"), graph.placeholder("w")
    if written is silent:
        graph.output(graph.call_function(torch.ops.shared_test.silent.default, operands))
        module = fx.GraphModule({}, graph)
    else:
        module = traced(written)
    shared = all_shared(module, [x, w])
    run, plain = shared.eager(), execute(module, [x.clone(), w.clone()])
    assert shared.numbers == {storage_of(x)}
    assert torch.equal(w, torch.arange(4.0) + 1)
    assert torch.equal(run.outputs[0], plain.outputs[0])
    assert torch.equal(run.inputs[1], plain.inputs[1])
    assert not torch.equal(run.inputs[1], w)


def test_what_eager_has_written_to_is_restored_if_it_fails() -> None:
    def fails(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        w.mul_(2)
        return x.view(3, 5) + w

    w = torch.ones(4)
    with pytest.raises(RuntimeError, match="invalid for input of size 4"):
        all_shared(traced(fails), [torch.ones(4), w]).eager()
    assert torch.equal(w, torch.ones(4))


def test_writes_through_a_view_and_in_a_module_are_seen() -> None:
    x, held = torch.ones(2, 2), nn.BatchNorm1d(2)
    for module in (traced(lambda x: x.view(4)[:2].add_(1)), fx.GraphModule({"m": held}, _calls_module())):
        shared = all_shared(module, [x])
        shared.eager()
        assert torch.equal(x, torch.ones(2, 2))
        assert torch.equal(held.running_mean, torch.zeros(2))  # type: ignore[arg-type]
        assert len(shared.numbers) < len(all_shared(module, [x]).numbers)


def _calls_module() -> fx.Graph:
    graph = fx.Graph()
    graph.output(graph.call_module("m", (graph.placeholder("x"),)))
    return graph


def test_random_numbers_are_drawn_once_although_a_graph_runs_again() -> None:
    def drawing(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * torch.rand_like(x)

    x, module = torch.ones(4), traced(drawing)
    torch.manual_seed(0)
    run = all_shared(module, [x]).eager()
    torch.manual_seed(0)
    assert torch.equal(run.outputs[0], execute(module, [x.clone()]).outputs[0])


# Compiled runs


def test_a_checksum_sees_every_change() -> None:
    t = torch.arange(1000.0)
    shared = all_shared(traced(lambda x: x), [t[100:990]])
    before = shared.checksums()
    assert shared.changed(before) == frozenset()
    for i, j in ((100, 101), (500, 989)):
        t[[i, j]] = t[[j, i]]
        assert shared.changed(before) == {0}
        t[[i, j]] = t[[j, i]]
    t[0] = -1  # outside of what the graph reads
    assert shared.changed(before) == frozenset()


@pytest.mark.parametrize("words", [0, 1, 10, 25])
def test_a_checksum_on_another_device_depends_on_the_order(monkeypatch: pytest.MonkeyPatch, words: int) -> None:
    monkeypatch.setattr(shared_module, "PIECE", 10)
    t = torch.arange(words)
    whole = shared_module._checksum_of_words(t)
    assert whole == shared_module._checksum_of_words(t.clone())
    for i in range(words - 1):
        other = t.clone()
        other[[i, words - 1]] = other[[words - 1, i]]
        assert shared_module._checksum_of_words(other) != whole


def overwriting(gm: fx.GraphModule, inputs: Any) -> Any:
    def run(*given: torch.Tensor) -> Any:
        result = gm(*given)
        max(given, key=torch.numel).detach().flatten()[7] += 1
        return result

    return run


def test_a_backend_that_writes_to_a_weight_is_found(tmp_path: Path) -> None:
    model = nn.Linear(4200, 4200, bias=False)
    with fxminify.capturing(tmp_path / "repro.db", check=True, data="none"), torch.no_grad():
        torch.compile(model, backend=overwriting)(torch.ones(1, 4200))
    with Index.open(str(tmp_path / "repro.db")) as index:
        (row,) = index.captures.find()
    assert row.failure is not None
    assert row.failure.detail["class"] == "mutation"
    place = row.failure.detail["where"]
    assert row.failure.message.endswith(f"{place} is written to by the compiled call, not by eager")


def test_a_healthy_backend_on_large_weights_is_compared_without_a_copy(tmp_path: Path) -> None:
    model = nn.Linear(4200, 4200)
    seen: set[int] = set()

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        def run(*given: torch.Tensor) -> Any:
            seen.update(t.data_ptr() for t in given if t.dim() == 2 and t.shape[0] == 4200)
            return gm(*given)

        return run

    with fxminify.capturing(tmp_path / "repro.db", check=True):
        torch.compile(model, backend=backend)(torch.ones(1, 4200)).sum().backward()
    assert seen == {model.weight.data_ptr()}
    assert not (tmp_path / "repro.db").exists()


# Runs in float64


def attention(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ w.t() + b).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v)


GRAPHS: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (lambda x, w, b: F.linear(x, w, b).tanh(), [(3, 4), (5, 4), (5,)]),
    (lambda x, w, b: torch.addmm(b, x, w.t()).softmax(-1), [(3, 4), (5, 4), (5,)]),
    (lambda x, w: F.embedding(torch.tensor([1, 2]), w) @ x, [(4,), (5, 4)]),
    (lambda x, w: (w[1:3].transpose(0, 1)[None] * x).sum(), [(4, 2), (5, 4)]),
    (lambda x, w: w.half().float().mul(w).sum(0) + x, [(4,), (5, 4)]),
    (lambda x, w: (x.add_(w), w), [(4,), (4,)]),
    (lambda x, w: x.masked_fill(w > 0, 0), [(4,), (4,)]),
    (lambda x, w, b: F.layer_norm(x @ w, (5,), b), [(3, 4), (4, 5), (5,)]),
    (lambda x, w: x.sum() + w.view(2, 10).contiguous().exp().sum(1), [(4,), (5, 4)]),
    (attention, [(2, 6, 4), (12, 4), (12,)]),
]


@pytest.mark.parametrize("number", range(len(GRAPHS)))
@pytest.mark.parametrize("backward", [False, True])
def test_float64_results_are_the_same_where_storages_are_shared(number: int, backward: bool) -> None:
    function, shapes = GRAPHS[number]
    torch.manual_seed(number)
    inputs = [torch.randn(shape) for shape in shapes]
    if backward:
        inputs = [inputs[0].requires_grad_() * 1.0, *map(nn.Parameter, inputs[1:])]
    graph = traced(function)
    wanted = range(len(inputs)) if backward else ()
    copied, lazy = (
        run_wide(shared, gradients=wanted) for shared in (SharedStorages(graph, inputs), all_shared(graph, inputs))
    )
    assert len(copied.outputs) == len(lazy.outputs)
    for one, other in zip(copied.outputs, lazy.outputs, strict=True):
        assert torch.equal(one, other)
        assert (one.dtype, one.stride(), one.requires_grad) == (other.dtype, other.stride(), other.requires_grad)
    assert (copied.gradients is None) == (lazy.gradients is None)
    for one, other in zip(copied.gradients or (), lazy.gradients or (), strict=True):
        assert one is other or (one is not None and other is not None and torch.equal(one, other))


def test_one_weight_at_a_time_is_there_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    values = wide._Lazy.values

    def counted(lazy: Any) -> torch.Tensor:
        nonlocal most
        made = values(lazy)
        alive.append(weakref.ref(made))
        most = max(most, sum(each() is not None for each in alive))
        return made

    monkeypatch.setattr(wide._Lazy, "values", counted)
    model = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(6)])
    graph = fx.Graph()
    x, weights = graph.placeholder("x"), [graph.placeholder(f"w{i}") for i in range(6)]
    for weight in weights:
        x = graph.call_function(torch.tanh, (graph.call_function(F.linear, (x, weight)),))
    graph.output((x,))
    inputs = [torch.ones(2, 8), *model.parameters()]
    shared = SharedStorages(fx.GraphModule({}, graph), inputs, large=200, copied=0)
    run_wide(shared)
    assert (len(alive), most) == (6, 1)
    alive.clear()
    run = run_wide(shared, gradients=[1])
    assert most == 1
    assert len(alive) == 6 + 5  # and again in the backward pass, down to the first one
    assert run.gradients is not None
    assert [g is None for g in run.gradients] == [True, False, True, True, True, True, True]


PRODUCTS: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (lambda x, w, b: F.linear(x, w, b), [(2, 3, 4), (50, 4), (50,)]),
    (lambda x, w: F.linear(x, w), [(4,), (50, 4)]),
    (lambda x, w, b: torch.addmm(b, x, w.t(), alpha=2, beta=3), [(3, 4), (50, 4), (3, 1)]),
    (lambda x, w, b: torch.ops.aten.addmm.default(b, x, w), [(3, 4), (4, 50), (50,)]),
    (lambda x, w: x @ w[1:], [(2, 3, 4), (5, 50)]),
    (lambda x, w: x.mm(w), [(3, 4), (4, 50)]),
]


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_a_product_with_a_large_matrix_is_computed_in_blocks(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = PRODUCTS[number]
    torch.manual_seed(number)
    inputs = [torch.randn(shape) for shape in shapes]
    shared = SharedStorages(traced(function), inputs, large=400, copied=0)
    (expected,) = run_wide(SharedStorages(traced(function), inputs)).outputs
    monkeypatch.setattr(wide, "_BLOCK", 64)
    monkeypatch.setattr(wide._Lazy, "values", lambda self: pytest.fail("all of the matrix is widened"))
    (exact,), (noisy,), (again,) = (run_wide(shared, noise).outputs for noise in (None, Noise(1, 8), Noise(1, 8)))
    torch.testing.assert_close(exact, expected, rtol=1e-14, atol=1e-14)
    assert torch.equal(noisy, again)
    assert not torch.equal(noisy, exact)


def test_of_two_large_matrices_neither_is_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [torch.ones(4, 4), torch.ones(4, 4)]
    monkeypatch.setattr(wide, "_BLOCK", 4)
    functions: list[Callable[..., Any]] = [lambda x, w: x @ w, lambda x, w: w @ w + x]
    for function in functions:
        (result,) = run_wide(all_shared(traced(function), inputs)).outputs
        assert torch.equal(result, function(*inputs).double())


def test_the_module_that_a_node_calls_is_wide_while_it_runs() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    graph = fx.symbolic_trace(module)
    x = torch.randn(3, 4, requires_grad=True)
    shared = all_shared(graph, [x])
    (result,) = run_wide(shared, gradients=[0]).outputs
    (expected,) = run_wide(SharedStorages(graph, [x]), gradients=[0]).outputs
    assert torch.equal(result, expected)
    assert module[0].weight.dtype is torch.float32


def test_noise_changes_what_is_computed_with_shared_tensors() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(8, 16), torch.randn(16, 16)]
    for function in (lambda x, w: x @ w, lambda x, w: w.t().sum(0), lambda x, w: F.embedding(torch.tensor([3]), w)):
        shared = all_shared(traced(function), inputs)
        (exact,), (noisy,), (again,), (other,) = (
            run_wide(shared, noise).outputs for noise in (None, Noise(1, 8), Noise(1, 8), Noise(2, 8))
        )
        assert torch.equal(noisy, again)
        assert not torch.equal(noisy, other)
        moved = (noisy - exact).abs().max() / torch.finfo(torch.float32).eps
        assert 1 < moved < 300


def test_only_what_is_wanted_is_computed() -> None:
    def two(x: torch.Tensor, w: torch.Tensor) -> Any:
        kept = x.clone()
        kept.add_(1)
        return (x @ w).exp(), x.sin(), torch.rand_like(x), kept

    module = traced(two)
    wide.without(module, [1])
    calls = [node.name for node in module.graph.nodes if node.op.startswith("call")]
    assert calls == ["clone", "add_", "sin", "rand_like"]  # writes and random numbers may matter
    first, second, third, last = module(torch.ones(2, 2), torch.ones(2, 2))
    assert (first, third, last) == (None, None, None)
    assert torch.equal(second, torch.ones(2, 2).sin())


# Judging


def test_of_very_many_values_those_that_may_be_divergent_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    e = torch.randn(60, 50)
    graph, x = traced(lambda x: (x * 1.5,)), e / 1.5
    wrong = {
        "few": torch.where(e > 2, e * 1.01, e),
        "none": e * (1 + 3e-6),
        "all": e * 1.5,
        "nan": torch.where(e > 2.5, torch.nan, e),
    }

    def judged(a: torch.Tensor) -> Any:
        expected = execute(graph, [x.clone()])
        actual = execute(lambda x: (a.clone(),), [x.clone()])
        reference = Reference(SharedStorages(graph, [x]))
        found = Differences(expected, actual).judged(reference)
        return found and (
            found.kind,
            found.detail["error"],
            found.detail["elements"],
            found.detail["of"],
            found.message,
        )

    whole = {name: judged(a) for name, a in wrong.items()}
    monkeypatch.setattr("fxminify.backends.comparison.values.MANY", 2000)
    monkeypatch.setattr("fxminify.backends.comparison.values._PIECE", 700)
    parts = {name: judged(a) for name, a in wrong.items()}
    assert {name: parts[name] for name in ("few", "none", "nan")} == {n: whole[n] for n in ("few", "none", "nan")}
    assert whole["none"] is None
    assert "about" in parts["all"][-1]
    assert parts["all"][2] == pytest.approx(whole["all"][2], abs=2)


def test_where_storages_are_shared_no_more_is_judged_after_the_first_divergence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fxminify.backends.comparison.compare.JUDGED", 20)
    x = torch.ones(16)
    graph = traced(lambda x: (x * 2, x * 3, x * 4))

    def judged(shared: SharedStorages, *results: torch.Tensor) -> Any:
        expected, actual = execute(graph, [x.clone()]), execute(lambda x: results, [x.clone()])
        found = Differences(expected, actual).judged(Reference(shared))
        return found and [found.where, *(other.where for other in found.others)]

    wrong = (x * 2 * (1 + 1e-6), x * 5, x * 6)
    assert judged(SharedStorages(graph, [x]), *wrong) == ["output 1", "output 2"]
    assert judged(all_shared(graph, [x]), *wrong) == ["output 1"]


# What nodes do


def nodes() -> Iterator[tuple[bool, fx.Node]]:
    graph = fx.Graph()
    x = graph.placeholder("x")
    aten = torch.ops.aten
    called: list[tuple[bool, Any, tuple[Any, ...], dict[str, Any]]] = [
        (True, torch.tanh, (x,), {}),
        (True, F.linear, (x, x), {}),
        (True, torch._C._nn.scaled_dot_product_attention, (x, x, x), {}),
        (True, F.embedding, (x, x), {}),
        (False, F.embedding, (x, x), {"max_norm": 1.0}),
        (True, F.relu, (x,), {}),
        (False, F.relu, (x, True), {}),
        (False, F.dropout, (x, 0.5, True, True), {}),
        (False, F.batch_norm, (x, x, x), {}),
        (False, torch.batch_norm, (x, x, x, x, x, True, 0.1, 1e-5, False), {}),
        (True, aten.mm.default, (x, x), {}),
        (False, aten.mm.out, (x, x), {"out": x}),
        (False, torch.mm, (x, x), {"out": x}),
        (False, aten.add_.Tensor, (x, x), {}),
        (False, aten.native_batch_norm.default, (x, x, x, x, x, True, 0.1, 1e-5), {}),
        (False, torch._foreach_add_, ([x], 1), {}),
    ]
    for reads, target, args, kwargs in called:
        yield reads, graph.call_function(target, args, kwargs)
    for reads, target in ((True, operator.add), (True, operator.getitem), (False, operator.iadd), (False, print)):
        yield reads, graph.call_function(target, (x, x))
    for reads, name in ((True, "t"), (True, "float"), (False, "add_"), (False, "__iadd__"), (False, "unheard_of")):
        yield reads, graph.call_method(name, (x,))
    yield False, graph.call_function(torch.ops.shared_test.silent.default, (x, x))


def test_what_nodes_write_to() -> None:
    wrong = [(node.format_node(), reads) for reads, node in nodes() if reads_only(node) is not reads]
    assert wrong == []


def test_which_nodes_draw() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    drawing = [
        graph.call_function(torch.rand_like, (x,)),
        graph.call_function(F.dropout, (x, 0.5)),
        graph.call_function(torch.ops.aten.bernoulli.default, (x,)),
        graph.call_method("normal_", (x,)),
    ]
    assert all(map(draws, drawing))
    assert not draws(graph.call_function(torch.tanh, (x,)))
