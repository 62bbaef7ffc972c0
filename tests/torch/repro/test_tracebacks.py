"""The phase of an exception, read from its stack, on exceptions that torch really raises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import aot_module_simplified

from fxminify.backends.running.exceptions import failure_of
from fxminify.repro_templates.source.action import (
    ALIAS_PREFIX,
    ILL_CONDITIONED_PREFIX,
)
from fxminify.repro_templates.tracebacks import failure_in_script, phase_of, phase_of_crash, phase_of_places, places
from fxminify.store.failure import FailureKind, Phase

HERE = "test_tracebacks.py"
pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def forward(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + x


def raised(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except BaseException as exc:  # noqa: BLE001  the exception is what is tested
        return exc
    raise AssertionError("nothing was raised")


def cannot_compile(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    raise KeyError("no lowering")


def compiles_what_cannot_run(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    def run(*args: Any) -> Any:
        raise IndexError("index out of bounds")

    return run


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no derivative")


def cannot_go_back(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return lambda *args: [Doubled.apply(o) for o in gm(*args)]  # type: ignore[no-untyped-call]


def cannot_compile_backward(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    refuses: Any = cannot_compile
    return aot_module_simplified(gm, inputs, fw_compiler=lambda gm, _: gm.forward, bw_compiler=refuses)


def compiles_a_backward_that_cannot_run(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    late: Any = compiles_what_cannot_run
    return aot_module_simplified(gm, inputs, fw_compiler=lambda gm, _: gm.forward, bw_compiler=late)


def spoils_guards(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt):
            value.node.shape_env.guards.append("no guard")
    return gm.forward


def test_an_error_while_compiling() -> None:
    exc = raised(lambda: torch.compile(forward, backend=cannot_compile)(torch.ones(2)))
    assert phase_of(exc) is Phase.COMPILE
    failure = failure_in_script(exc, HERE)
    assert (failure.kind, failure.type) == (FailureKind.COMPILE_ERROR, "KeyError")


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        (cannot_compile_backward, FailureKind.COMPILE_ERROR),
        (aot_autograd(fw_compiler=lambda gm, _: gm.forward, bw_compiler=cannot_compile), FailureKind.COMPILE_ERROR),
        (compiles_a_backward_that_cannot_run, FailureKind.RUNTIME_ERROR),
        (cannot_go_back, FailureKind.RUNTIME_ERROR),
    ],
)
def test_an_error_of_the_compiler_of_a_backward_graph_is_a_compile_error(backend: Any, kind: FailureKind) -> None:
    x = torch.ones(2, requires_grad=True)
    exc = raised(lambda: torch.compile(forward, backend=backend)(x).sum().backward())
    failure = failure_in_script(exc, HERE)
    assert (failure.kind, failure.phase) == (kind, Phase.BACKWARD)


def test_an_error_of_a_registered_backend_inside_autograd() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        return (x + x).unfold(1, 4, 2).abs_()

    exc = raised(lambda: torch.compile(overlapping, backend="aot_eager_decomp_partition")(torch.ones(1, 7)))
    assert phase_of(exc) is Phase.COMPILE


def test_an_error_of_the_compiled_function() -> None:
    exc = raised(lambda: torch.compile(forward, backend=compiles_what_cannot_run)(torch.ones(2)))
    assert phase_of(exc) is Phase.FORWARD
    assert failure_in_script(exc, HERE).kind is FailureKind.RUNTIME_ERROR


def test_an_error_in_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    compiled = torch.compile(forward, backend=cannot_go_back)
    assert phase_of(raised(lambda: compiled(x).sum().backward())) is Phase.BACKWARD
    assert phase_of(raised(lambda: torch.autograd.grad(compiled(x).sum(), [x]))) is Phase.BACKWARD


def test_an_error_while_guards_are_made() -> None:
    exc = raised(lambda: torch.compile(lambda n, x: x * n, backend=spoils_guards, dynamic=True)(5, torch.ones(3, 5)))
    assert phase_of(exc) is Phase.GUARDS
    assert failure_of(exc, phase_of(exc)).kind is FailureKind.COMPILE_ERROR


def test_an_error_of_eager_is_in_forward() -> None:
    assert phase_of(raised(lambda: forward("x"))) is Phase.FORWARD  # type: ignore[arg-type]  # it has no sine


@pytest.mark.parametrize(
    ("actual", "expected", "kind"),
    [
        (torch.zeros(2), torch.ones(2), "value"),
        (torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), "value"),
        (3, 4, "value"),
        (torch.ones(2, dtype=torch.int64), torch.ones(2), "dtype"),
        (torch.ones(3), torch.ones(2), "shape"),
        (torch.zeros(2, 3), torch.zeros(3, 2).t(), "stride"),
        ([torch.ones(2), None], [torch.ones(2), torch.ones(2)], "structure"),
        ([torch.ones(2)], [torch.ones(2), None], "structure"),
        (3, torch.ones(2), "structure"),
    ],
)
def test_a_failing_comparison_names_its_class(actual: Any, expected: Any, kind: str) -> None:
    exc = raised(lambda: torch.testing.assert_close(actual, expected, check_stride=True))
    failure = failure_in_script(exc, HERE)
    assert (failure.kind, failure.phase, failure.detail["class"]) == (FailureKind.DIVERGENCE, Phase.FORWARD, kind)
    rows = failure.detail["measured"]
    assert (bool(rows), any("error" in row for row in rows)) == (kind in ("value", "dtype", "shape"), kind == "value")


def test_what_is_compared_tells_mutation_gradients_and_aliasing() -> None:
    def compare(prefix: str) -> None:
        message = lambda text: prefix + text  # noqa: E731
        torch.testing.assert_close(torch.zeros(2), torch.ones(2), msg=message)

    def gradients(prefix: str = "") -> None:
        actual_grads = [torch.zeros(2)]
        torch.testing.assert_close(actual_grads, [torch.ones(2)], msg=lambda text: prefix + text)

    def inputs() -> None:
        actual_inputs = [torch.zeros(2)]
        torch.testing.assert_close(actual_inputs, [torch.ones(2)])

    def alias() -> None:
        raise AssertionError(ALIAS_PREFIX + "output 0 should lie in input 0")

    expected: dict[Callable[[], None], tuple[Phase, str]] = {
        inputs: (Phase.FORWARD, "mutation"),
        gradients: (Phase.BACKWARD, "value"),
        partial(compare, ILL_CONDITIONED_PREFIX): (Phase.FORWARD, "ill-conditioned"),
        partial(gradients, ILL_CONDITIONED_PREFIX): (Phase.BACKWARD, "ill-conditioned"),
        alias: (Phase.FORWARD, "alias"),
    }
    seen = [failure_in_script(raised(compared), HERE) for compared in expected]
    assert [(f.phase, f.detail["class"]) for f in seen] == [*expected.values()]


def test_an_assertion_of_somebody_else_is_no_divergence() -> None:
    exc = raised(lambda: torch.testing.assert_close(torch.zeros(2), torch.ones(2)))
    assert failure_in_script(exc, "repro.py").kind is FailureKind.RUNTIME_ERROR


def test_a_crash_is_placed_by_the_stack_that_faulthandler_prints() -> None:
    stack = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    compiling = [("torch/_inductor/graph.py", "run"), ("torch/_dynamo/output_graph.py", "_call_user_compiler"),
                 ("torch/_dynamo/convert_frame.py", "__call__"), ("repro.py", "<module>")]  # fmt: skip
    running = [("lib.py", "run"), ("torch/_dynamo/eval_frame.py", "_fn"), ("repro.py", "<module>")]
    root = torch.__path__[0].rpartition("/")[0]
    for frames, phase in ((compiling, Phase.COMPILE), (running, Phase.FORWARD)):
        assert phase_of_places(reversed(frames)) is phase
        text = stack + "\n".join(f'  File "{root}/{file}", line 3 in {name}' for file, name in frames)
        assert phase_of_crash(text) is phase


def test_a_stack_cut_off_inside_a_compiler_is_in_compile() -> None:
    assert phase_of_places([("torch/_inductor/graph.py", "run")], complete=False) is Phase.COMPILE
    assert phase_of_places([("torch/_inductor/graph.py", "run")]) is Phase.FORWARD


def test_an_error_of_inductor_is_in_compile_although_dynamo_hides_its_own_frames() -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no lowering")

    with (
        torch._inductor.config.patch(post_grad_custom_pre_pass=refuse),
        pytest.raises(torch._inductor.exc.InductorError) as caught,
    ):
        torch.compile(torch.sin)(torch.ones(3))
    assert ("torch/_dynamo/output_graph.py", "call_user_compiler") not in places(caught.value)
    assert phase_of(caught.value) is Phase.COMPILE


def test_no_stack_at_all_is_in_forward() -> None:
    assert phase_of_places([]) is Phase.FORWARD


def test_compiled_code_that_raises_is_in_forward_though_inductor_made_it() -> None:
    called = [
        ("torch/_dynamo/eval_frame.py", "compile_wrapper"),
        (HERE, "forward"),
        ("torch/_dynamo/eval_frame.py", "_fn"),
        ("torch/_functorch/_aot_autograd/runtime_wrappers.py", "runtime_wrapper"),
        ("torch/_inductor/output_code.py", "__call__"),
    ]
    assert phase_of_places(called) is Phase.FORWARD
    assert phase_of_places([called[0], called[-1]]) is Phase.COMPILE
