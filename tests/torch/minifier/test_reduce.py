"""`fxminify.reduce` on live graphs: the drop-in for PyTorch's call, and the recording behind it."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx, nn

import fxminify
from fxminify.minifier.candidate.trace import Trace, ValueKind
from fxminify.minifier.tracing.recorder import record
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode
from fxminify.store.live.modes import functorch_depth

torch.set_num_threads(1)

Fails = Callable[[fx.GraphModule, Sequence[Any]], bool]


def trace_of(function: Callable[..., Any], inputs: list[Any]) -> tuple[Trace, dict[str, bytes]]:
    gm = fx.symbolic_trace(function)
    live: list[object] = []
    encoded = encode(gm, inputs, live=live)
    blobs = dict(encoded.blobs)
    case = Case(encoded.graph, encoded.inputs, encoded.tensors)
    return record(case, blobs, put=blobs.__setitem__, live=live), blobs


def calls(gm: fx.GraphModule) -> list[str]:
    return [getattr(n.target, "__name__", str(n.target)) for n in gm.graph.nodes if n.op.startswith("call")]


def has(*names: str) -> Fails:
    return lambda gm, inputs: set(names) <= set(calls(gm))


def runs(fails: Fails) -> Fails:
    """Like ``fails``, but the graph has to run as well."""

    def both(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        gm(*inputs)
        return fails(gm, inputs)

    return both


# Recording


def test_values_in_place_have_versions() -> None:
    def f(x: torch.Tensor) -> Any:
        a = x * 2
        b = torch.relu_(a)
        return a + 1, b

    trace, blobs = trace_of(f, [torch.tensor([-1.0, 1.0])])
    assert [start for start, _ in trace.values["mul"].snapshots] == [2, 3]
    assert torch.frombuffer(bytearray(blobs["mul@0"]), dtype=torch.float32).tolist() == [-2, 2]
    assert torch.frombuffer(bytearray(blobs["mul@1"]), dtype=torch.float32).tolist() == [0, 2]


def test_writing_to_a_view_changes_what_it_is_a_view_of() -> None:
    def f(x: torch.Tensor) -> Any:
        a = x * 2
        a[0].add_(5)
        return a * 3

    _, blobs = trace_of(f, [torch.zeros(2, 2)])
    assert torch.frombuffer(bytearray(blobs["mul@1"]), dtype=torch.float32).tolist() == [5, 5, 0, 0]


def test_inputs_written_to_are_recorded_from_then_on() -> None:
    def f(x: torch.Tensor) -> Any:
        x.mul_(3)
        return x + 1

    trace, blobs = trace_of(f, [torch.ones(2)])
    assert trace.values["x"].snapshots == ((2, 0),)
    assert torch.frombuffer(bytearray(blobs["x@0"]), dtype=torch.float32).tolist() == [3, 3]


def test_inference_tensors_have_no_version_counter_and_still_versions() -> None:
    def f(x: torch.Tensor) -> Any:
        a = x * 2
        b = torch.relu_(a)
        return a + 1, b

    with torch.inference_mode():
        trace, _ = trace_of(f, [torch.ones(2)])
    assert len(trace.values["mul"].snapshots) == 2


def test_strides_and_gradients_are_kept() -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.sin(x.t()).t()

    trace, _ = trace_of(f, [torch.ones(2, 3, requires_grad=True)])
    spec = trace.tensor("sin")
    assert spec is not None
    assert (spec.shape, spec.stride, spec.requires_grad, spec.leaf) == ((3, 2), (1, 3), True, False)


def test_kinds_of_values() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = torch.split(x, 2)
        return a.reshape(b.size(0), -1)

    trace, _ = trace_of(f, [torch.ones(4, 2)])
    kinds = {name: value.kind for name, value in trace.values.items()}
    assert kinds["split"] is ValueKind.OPAQUE
    assert kinds["getitem"] is kinds["reshape"] is ValueKind.TENSOR
    assert (kinds["size"], trace.values["size"].literal) == (ValueKind.LITERAL, 2)


def test_recording_leaves_the_random_state_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trace_of(lambda x: torch.nn.functional.dropout(x, 0.5), [torch.ones(4)])
    assert torch.equal(torch.rand(3), expected)


def test_a_graph_that_breaks_down_is_recorded_until_there() -> None:
    trace, _ = trace_of(lambda x: torch.mm(torch.sin(x), x), [torch.ones(2, 3)])
    assert trace.values["sin"].kind is ValueKind.TENSOR
    assert "mm" not in trace.values
    assert trace.problem.startswith("RuntimeError")


def test_a_trace_survives_json() -> None:
    import json

    trace, _ = trace_of(lambda x: torch.split(torch.sin(x), 2)[0] + x.size(0), [torch.ones(4)])
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


# Reducing


def test_reduces_to_one_node_with_the_value_it_had() -> None:
    x = torch.randn(4, 4)
    gm, inputs = fxminify.reduce(
        fx.symbolic_trace(lambda x: torch.tanh(torch.asinh(x * 2) + 1)), [x], has("asinh"), stages=["remove"]
    )
    assert calls(gm) == ["asinh"]
    assert torch.equal(inputs[0], x * 2)
    assert torch.equal(gm(*inputs)[0], torch.asinh(x * 2))


def test_what_is_left_is_made_plain_as_far_as_the_predicate_confirms() -> None:
    """All stages: gelu with tanh may become anything but gelu, its input anything that has a negative number."""

    def program(x: torch.Tensor) -> Any:
        return torch.nn.functional.gelu(torch.sin(x) * 2, approximate="tanh") + x

    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    given = x.detach().clone()

    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        gm(*inputs)
        return "gelu" in calls(gm) and bool((inputs[0] < 0).any()) and inputs[0].shape[-1] >= 3

    gm, inputs = fxminify.reduce(fx.symbolic_trace(program), [x], fails)
    (node,) = (n for n in gm.graph.nodes if n.op.startswith("call"))
    assert (node.target, node.kwargs) == (torch.nn.functional.gelu, {})
    (left,) = inputs
    assert (left.shape[-1], left.dtype, left.requires_grad) == (3, torch.float32, False)
    assert left.numel() <= 3
    assert fails(gm, inputs)
    assert torch.equal(x, given)
    assert x.requires_grad


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="simplify"):
        fxminify.reduce(fx.symbolic_trace(lambda x: torch.sin(x)), [torch.ones(1)], has("sin"), stages=["simplify"])


def test_in_place_activations_do_not_spoil_the_recorded_values() -> None:
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]

    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        return any(n.target == "17" for n in gm.graph.nodes)

    gm, inputs = fxminify.reduce(
        fx.symbolic_trace(nn.Sequential(*layers)), [torch.randn(2, 4, 3, 3)], fails, stages=["remove"]
    )
    assert [n.target for n in gm.graph.nodes if n.op == "call_module"] == ["17"]
    assert len(inputs) == 1
    assert float(inputs[0].min()) < 0


def test_caller_s_graph_and_inputs_are_untouched() -> None:
    def f(x: torch.Tensor) -> Any:
        x.mul_(2)
        return torch.atan(x)

    gm, x = fx.symbolic_trace(f), torch.ones(3)
    code = gm.code

    def fails(candidate: fx.GraphModule, inputs: list[Any]) -> bool:
        candidate(*inputs)
        inputs[0].fill_(9)
        candidate.graph.eliminate_dead_code()
        return "atan" in calls(candidate)

    reduced, inputs = fxminify.reduce(gm, [x], fails, stages=["remove"])
    assert (gm.code, x.tolist()) == (code, [1, 1, 1])
    assert calls(reduced) == ["atan"]
    assert inputs[0].tolist() == [2, 2, 2]


def test_what_has_no_name_stays_a_live_object() -> None:
    def secret(x: torch.Tensor) -> Any:
        return x + 1

    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.sin, (x,))
    z = graph.call_function(secret, (y,))
    graph.output((graph.call_function(torch.cos, (z,)),))
    gm, inputs = fxminify.reduce(fx.GraphModule({}, graph), [torch.ones(2)], runs(has("secret")), stages=["remove"])
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [secret]
    assert torch.equal(inputs[0], torch.sin(torch.ones(2)))


def test_tuples_numbers_and_views() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = torch.split(torch.relu(x), 2)
        rows = b.size(0)
        return torch.asinh(a.reshape(rows, 8)) + b.reshape(rows, 8)

    gm, inputs = fxminify.reduce(fx.symbolic_trace(f), [torch.randn(4, 8)], runs(has("split", "asinh")))
    assert calls(gm) == ["split", "asinh"] or calls(gm) == ["split", "getitem", "asinh"]
    assert len(gm(*inputs)) >= 1


def test_switching_gradients_off_does_not_leak_into_the_process() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    y = graph.call_function(torch.sin, (x,))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((graph.call_function(torch.atan, (y,)),))
    gm, _ = fxminify.reduce(fx.GraphModule({}, graph), [torch.ones(2, requires_grad=True)], runs(has("sin")))
    assert calls(gm) == ["sin"]
    assert torch.is_grad_enabled()


def test_regions_that_a_candidate_does_not_leave_end_with_it() -> None:
    """Without the outer ``vmap`` the inner one raises in its midst: nothing later may run inside of what is left."""
    left = []

    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        left.append((functorch_depth(), torch.is_autocast_enabled("cpu"), torch.autocast_increment_nesting()))
        torch.autocast_decrement_nesting()
        gm(*inputs)
        return "acosh" in calls(gm)

    def program(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return torch.vmap(torch.vmap(lambda row: row.cos().acosh()))(y.float().sin())

    seen: list[tuple[fx.GraphModule, list[Any]]] = []

    def spy(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append((gm, inputs))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(program, backend=spy)(torch.rand(4, 4))
    gm, _ = fxminify.reduce(*seen[0], fails)
    assert calls(gm) == ["acosh"]
    assert set(left) == {(0, False, 1)}


def test_an_exception_of_the_predicate_is_no_failure() -> None:
    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        if "asinh" not in calls(gm):
            raise ValueError("what is this?")
        return True

    gm, _ = fxminify.reduce(fx.symbolic_trace(lambda x: torch.sin(torch.asinh(x))), [torch.ones(2)], fails)
    assert calls(gm) == ["asinh"]


def test_an_interrupt_passes() -> None:
    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        if len(calls(gm)) < 2:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        fxminify.reduce(fx.symbolic_trace(lambda x: torch.sin(torch.asinh(x))), [torch.ones(2)], fails)


def test_what_does_not_fail_cannot_be_reduced() -> None:
    with pytest.raises(RuntimeError, match="nothing to reduce"):
        fxminify.reduce(fx.symbolic_trace(lambda x: torch.sin(x)), [torch.ones(2)], lambda gm, inputs: False)


def test_the_budget_counts_every_call_and_states_are_dumped() -> None:
    asked: list[int] = []
    dumped: list[int] = []

    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        asked.append(len(calls(gm)))
        return {"asinh", "atan"} <= set(calls(gm))

    def f(x: torch.Tensor) -> Any:
        for _ in range(20):
            x = torch.sin(torch.cos(x))
        x = torch.atan(torch.exp(torch.asinh(x)))
        for _ in range(20):
            x = torch.sin(torch.cos(x))
        return x

    gm, _ = fxminify.reduce(
        fx.symbolic_trace(f), [torch.ones(2)], fails, lambda gm, _: dumped.append(len(calls(gm))), max_queries=5
    )
    assert len(asked) == 5
    assert dumped == sorted(dumped, reverse=True)
    assert dumped[-1] == len(calls(gm)) < 83


def test_symbolic_sizes_given_as_numbers_are_written_into_the_graph() -> None:
    graph = fx.Graph()
    n, x = graph.placeholder("n"), graph.placeholder("x")
    y = graph.call_method("view", (graph.call_function(torch.sin, (x,)), n, -1))
    graph.output((graph.call_function(torch.atan, (y,)),))
    gm, inputs = fxminify.reduce(fx.GraphModule({}, graph), [2, torch.ones(4)], runs(has("view")))
    assert [n.op for n in gm.graph.nodes] == ["placeholder", "call_method", "output"]
    assert len(inputs) == 1


@pytest.mark.process
def test_never_larger_than_pytorch_s_minifier_and_fewer_questions() -> None:
    from torch._functorch.fx_minifier import minifier

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        for i in range(12):
            x = torch.relu(x) * y + torch.sigmoid(x)
            x = torch.asinh(x) if i == 3 else torch.atan(x) if i == 9 else x
        return x

    gm, inputs = fx.symbolic_trace(f), [torch.randn(3, 3), torch.randn(3, 3)]
    counts = {"ours": 0, "theirs": 0}

    def counted(who: str) -> Fails:
        def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
            counts[who] += 1
            return has("asinh", "atan")(gm, inputs)

        return fails

    ours, _ = fxminify.reduce(gm, inputs, counted("ours"))
    theirs, _ = minifier(copy.deepcopy(gm), inputs, counted("theirs"), dump_state=lambda *_: None)
    assert sorted(calls(ours)) == ["asinh", "atan"]
    assert len(calls(ours)) < len(calls(theirs))
    assert counts["ours"] * 5 < counts["theirs"]


@pytest.mark.parametrize("least", [0, 4])
def test_numbers_in_a_list_that_names_no_sizes_become_plain_although_one_equals_a_size(least: int) -> None:
    def fails(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        result = gm(*inputs)
        padded = result[0] if isinstance(result, tuple) else result
        return has("pad")(gm, inputs) and padded.shape[-2] >= inputs[0].shape[-2] + least

    gm = fx.symbolic_trace(lambda x: torch.nn.functional.pad(x, (1, 1, 1, 4)))
    small, _ = fxminify.reduce(gm, [torch.randn(1, 1, 4, 4)], fails)
    (pad,) = (node for node in small.graph.nodes if node.op == "call_function")
    assert tuple(pad.args[1]) == (0, 0, 0, least)
