"""The file a maintainer gets, for every kind of failure and every format."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.repro_templates.context import Header
from fxminify.repro_templates.formats import OURS
from fxminify.repro_templates.render import render
from fxminify.repro_templates.source.expressions import public_function
from fxminify.repro_templates.tracebacks import failure_in_script
from fxminify.store.document.case import Case
from fxminify.store.document.names import table
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.live.encode import encode

X = torch.tensor([1.0, 1e30])
DIVERGENCE = Failure(
    FailureKind.DIVERGENCE,
    Phase.FORWARD,
    message="output 0 is off by 0.159 (eager by 3.1e-08) in 1 of 2 elements",
    detail={"class": "value", "where": "output 0"},
)
GRADIENT = replace(DIVERGENCE, phase=Phase.BACKWARD)
DETACHED = replace(GRADIENT, message="output 0 requires a gradient in eager, and none compiled",
                   detail={"class": "gradient", "where": "output 0"})  # fmt: skip
ALIAS = replace(DIVERGENCE, detail={"class": "alias", "where": "output 0", "expected": "input 0", "actual": "no input"})
MUTATION = replace(DIVERGENCE, detail={"class": "mutation"})
ERROR = Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, "RuntimeError", "index out of bounds: 37")
HEADER = Header(ERROR, "v1:ab12cd34ef56", "2.13.0+cpu", "3.11", "Linux x86_64", nodes=214, queries=14, timeout=60)


def case_of(function: Callable[..., Any], *inputs: Any, backend: str = "inductor", **fields: Any) -> tuple[Case, Any]:
    """The case Dynamo makes of ``function``."""
    found: list[tuple[Case, Any]] = []

    def record(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        encoded = encode(gm, inputs)
        spec = BackendSpec(name=backend, how="registered", target=backend, dynamic=fields.pop("dynamic", None))
        case = Case(encoded.graph, encoded.inputs, encoded.tensors, backend=spec.to_json(), **fields)
        found.append((case, encoded.blobs))
        return lambda *args: gm.forward(*(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args))

    torch._dynamo.reset()
    torch.compile(function, backend=record)(*inputs)
    return found[0]


def script(
    function: Callable[..., Any], *inputs: Any, failure: Failure = ERROR, format: str = "script", **fields: Any
) -> str:
    case, blobs = case_of(function, *inputs, **fields)
    text = render(case, blobs, format=format, header=replace(HEADER, failure=failure)).text
    return re.sub(r"test_render\.py:\d+ <lambda>", "model.py:16 forward", text)


def code(text: str) -> str:
    """Everything after the docstring."""
    return text.split('"""\n', 1)[1].split('"""\n')[-1]


def test_a_minimal_divergence_reads_as_a_person_would_write_it() -> None:
    assert (
        script(lambda energy: torch.acosh(energy), X, failure=DIVERGENCE)
        == '''\
"""inductor: divergence in forward: output 0 is off by 0.159 (eager by 3.1e-08) in 1 of 2 elements

From model.py:16 forward of the program.
Minified by fxminify 0.1.0 from 214 nodes to 1 (14 queries). Signature v1:ab12cd34ef56 of acosh.
torch 2.13.0+cpu, Python 3.11, Linux x86_64.
Run it: it fails while the bug is there; exit code 0 means the bug is gone.
"""

import torch


def forward(energy):
    return torch.acosh(energy)


energy = torch.tensor([1.0, 1e+30])

expected = forward(energy)
actual = torch.compile(forward, backend="inductor")(energy)
torch.testing.assert_close(actual, expected)
'''
    )


@pytest.mark.parametrize(
    ("nodes", "complete", "said"),
    [
        (1, True, "; its only node is needed (14 queries)."),
        (1, False, " (14 queries, the search was stopped)."),
        (214, False, " from 214 nodes to 1 (14 queries, the search was stopped)."),
    ],
)
def test_what_cannot_go_is_said_only_of_a_search_that_came_to_its_end(nodes: int, complete: bool, said: str) -> None:
    case, blobs = case_of(torch.acosh, X)
    text = render(case, blobs, header=replace(HEADER, nodes=nodes, complete=complete)).text
    assert f"Minified by fxminify 0.1.0{said} Signature" in text


def test_a_value_is_named_after_the_operator_that_a_search_has_put_there() -> None:
    case, blobs = case_of(lambda x: torch.relu(x).exp() + 1, X)
    relu = case.graph.compute[0]
    nodes = tuple(replace(n, target={"fn": "torch.neg"}) if n is relu else n for n in case.graph.nodes)
    text = render(replace(case, graph=replace(case.graph, nodes=nodes)), blobs, header=HEADER).text
    assert "    neg = torch.neg(x)" in text
    assert "    exp = neg.exp()" in text


LONG = Failure(
    FailureKind.COMPILE_ERROR,
    Phase.COMPILE,
    "torch._inductor.exc.InductorError",
    "LoweringException: AssertionError: expected a size that 4 divides, found 17, in the lowering of "
    "aten.convolution.default",
    causes=(("AssertionError", "expected a size that 4 divides"),),
    diagnostics="kernel.cpp:12:3: error: no member named 'foo'\n",
)


def about(failure: Failure) -> str:
    """The docstring of a script without its last four lines: the line of the program, how it was minified, versions,
    what the exit code means."""
    return "\n".join(script(lambda x: x.sin(), X, failure=failure).split('"""')[1].rstrip().split("\n")[:-4])


def test_an_error_that_does_not_fit_the_first_line_is_cut_there_and_stands_whole_below_it() -> None:
    assert " ".join(about(LONG).splitlines()).split("  ") == [
        "inductor: compile error: AssertionError: expected a size that 4 divides, found 17, in the lowering of ...",
        "InductorError: LoweringException: AssertionError: expected a size that 4 divides, "
        "found 17, in the lowering of aten.convolution.default "
        "On standard error: error: no member named 'foo'",
    ]


def test_the_diagnosis_of_a_generic_message_is_the_headline() -> None:
    generic = replace(LONG, type="RuntimeError", message="JIT compilation failed. See diagnostics.", causes=())
    assert about(generic) == "inductor: compile error: RuntimeError: no member named 'foo'\n"
    long = "error: failed to legalize operation 'torch.aten.foo' that was explicitly marked illegal for this one target"
    told = " ".join(about(replace(generic, diagnostics=long)).split())
    assert told.startswith(
        "inductor: compile error: RuntimeError: failed to legalize operation 'torch.aten.foo' that was explicitly ... "
        "RuntimeError: failed to legalize operation"
    )
    assert told.count("for this one target") == 1


def test_what_the_message_says_already_is_not_said_again() -> None:
    short = replace(LONG, message="expected a size that 4 divides, but error: no member named 'foo'")
    assert about(short) == (
        "inductor: compile error: InductorError: expected a size that 4 divides, but error: no member named 'foo'\n"
    )
    other = replace(short, message="no kernel")
    assert about(other).splitlines()[2:] == [
        "On standard error: error: no member named 'foo'", "Cause: AssertionError: expected a size that 4 divides",
    ]  # fmt: skip


def test_a_cause_that_does_not_fit_the_first_line_is_cut() -> None:
    message = "Failed to convert the exported program to an ONNX model. Next steps:\n- report it"
    cause = "No ONNX function found for an operator that nobody has ever registered with the registry of functions"
    causes = (("torch.onnx.errors.DispatchError", cause),)
    wrapped = replace(LONG, type="torch.onnx.errors.ConversionError", message=message, causes=causes, diagnostics="")
    assert about(wrapped).splitlines()[0] == (
        "inductor: compile error: DispatchError: No ONNX function found for an operator that nobody has ever "
        "registered ..."
    )
    assert "Next steps" not in about(wrapped)


def test_numbers_of_a_divergence_are_said_once() -> None:
    detail = {"class": "value", "where": "output 0", "error": "0.159", "eager_error": "3.1e-08"}
    message = "output 0 is off by 0.159 (eager by 3.1e-08) in 1 of 2 elements"
    told = replace(DIVERGENCE, message=message, detail=detail)
    assert about(told) == f"inductor: divergence in forward: {told.message}\n"
    untold = replace(told, message="output 0 is wrong in 1 of 2 elements")
    assert about(untold).splitlines()[2] == "Largest error against float64: 0.159 compiled, 3.1e-08 in eager."


def test_a_hang_states_one_time() -> None:
    text = script(lambda x: x.sin(), X, failure=Failure(FailureKind.HANG, Phase.COMPILE, message="no answer in 40 s"))
    assert text.startswith('"""inductor: hang in compile\n\nFrom model.py:16 forward of the program.\nMinified by')
    assert "SIGALRM ends it after 60 s" in text
    assert "40" not in text


def test_an_operator_of_aten_reads_as_the_function_where_it_is_lowered_again() -> None:
    def function(x: torch.Tensor) -> object:
        return torch.ops.aten._to_copy.default(torch.ops.aten.amax.default(x, [0], True), dtype=torch.float64)

    text = script(function, X)
    assert "    amax = torch.amax(x, [0], True)\n" in text
    assert "    return torch.ops.aten._to_copy.default(amax, dtype=torch.float64)\n" in text
    assert "torch.ops.aten.amax.default(x, [0], True)" in script(function, X, backend="eager")


@pytest.mark.parametrize(
    ("operator", "written"),
    [
        ("gelu", "torch.nn.functional.gelu"),
        ("special_ndtr", "torch.special.ndtr"),
        ("linalg_det", "torch.linalg.det"),
        ("fft_fft", "torch.fft.fft"),
    ],
)
def test_an_operator_of_a_module_of_torch_reads_as_the_function(operator: str, written: str) -> None:
    called = getattr(torch.ops.aten, operator).default
    assert f"    return {written}(x)\n" in script(lambda x: called(x), torch.eye(2))


def test_long_arguments_of_a_backend_are_broken() -> None:
    case, blobs = case_of(torch.sin, X)
    operators = ["aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "aten.native_layer_norm.default"]
    options = {"dict": [["operators", operators]]}
    case = replace(case, backend={**case.backend, "options": options})
    text = render(case, blobs, header=HEADER).text
    assert max(map(len, text.splitlines())) <= 118
    assert 'compiled = torch.compile(\n    forward, backend="inductor",\n    options={\n' in text


def test_functions_that_read_as_operators_are_those_that_dynamo_keeps() -> None:
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import TorchInGraphFunctionVariable
    from torch._dynamo.variables.torch import constant_fold_functions

    public = [name for name in map(public_function, table().ops) if name]
    assert len(public) > 400
    for name in public:
        function = attrgetter(name.removeprefix("torch."))(torch)
        assert type(function) is type(torch.amax), name
        assert trace_rules.lookup(function) is TorchInGraphFunctionVariable, name
        assert function not in constant_fold_functions, name
    handled = TorchInGraphFunctionVariable._get_handlers()
    assert [n for n in public if attrgetter(n.removeprefix("torch."))(torch) in handled] == ["torch.full"]


def test_one_slice_reads_as_a_person_writes_it() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[::2,] + x[...,] + x[i,] + x[None,]

    text = script(function, torch.ones(1), torch.zeros(1, dtype=torch.int64))
    assert [line for line in text.splitlines() if " = x[" in line] == [
        "    getitem = x[::2]  # f32[1]",
        "    getitem_1 = x[...]  # f32[1]",
        "    getitem_2 = x[i]  # f32[1]",
        "    getitem_3 = x[None]  # f32[1, 1]",
    ]


def test_a_title_in_a_comment_keeps_its_hyphens() -> None:
    failure = replace(ERROR, message="--no-op --> a-b <!-- 1->2 --!> end")
    text = script(lambda x: x.sin(), X, failure=failure, format="issue")
    expected = "[inductor] sin: runtime error: RuntimeError: - -no-op - -> a-b <!- - 1->2 - -!> end"
    assert text.splitlines()[0] == f"<!-- Title: {expected} -->"


def test_an_issue_about_a_backend_of_torch_proposes_labels() -> None:
    text = script(lambda x: torch.acosh(x), X, failure=DIVERGENCE, format="issue")
    proposed = "`oncall: pt2`, `module: inductor`, `module: correctness (silent)`"
    assert f"\nLabels that may fit, a proposal: {proposed}.\n\n### Versions\n" in text
    case, blobs = case_of(lambda x: x.sin(), X)
    other = replace(case, backend={"name": "acme", "how": "registered", "target": "acme", "module": "acme"})
    assert "Labels" not in render(other, blobs, format="issue", header=HEADER).text


def test_an_error_needs_one_call() -> None:
    assert code(script(lambda x: x.sin(), X)).endswith('\ntorch.compile(forward, backend="inductor")(x)\n')


def test_context_managers_stand_around_the_call_alone() -> None:
    context = {"grad": False, "autocast": {"cpu": {"dtype": "bfloat16"}}, "threads": 1}
    text = script(lambda x: x.sin(), X, context=context, failure=DIVERGENCE)
    assert "\ntorch.set_num_threads(1)\n" in text
    assert text.split("energy")[-1].endswith("torch.testing.assert_close(actual, expected)\n")
    assert 'with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):\n    expected = forward(x)\n' in text


AUTOCAST = {"autocast": {"cpu": {"dtype": "bfloat16"}}}


def test_a_backward_pass_is_outside_of_autocast() -> None:
    error = replace(ERROR, phase=Phase.BACKWARD)
    expected = """
with torch.autocast("cpu", dtype=torch.bfloat16):
    output = torch.compile(forward, backend="inductor")(x)
output.sum().backward()
"""
    assert code(script(lambda x: x.sin(), X, context=AUTOCAST, failure=error)).endswith(expected)
    text = code(script(lambda x: x.sin(), X, context=AUTOCAST, failure=GRADIENT))
    with_block = 'with torch.autocast("cpu", dtype=torch.bfloat16):\n        outputs = [function(x)]\n'
    assert f"\ndef gradients(function):\n    {with_block}" in text
    assert "\nexpected_grads = gradients(forward)\n" in text
    assert text.count("autocast") == 1


def test_inputs_that_are_written_to_are_made_for_each_run() -> None:
    text = code(script(lambda x: x.mul_(2), X, failure=DIVERGENCE))
    assert "def make_inputs():\n    return [torch.tensor([1.0, 1e+30])]\n" in text
    assert "expected = forward(*make_inputs())\n" in text
    assert "make_inputs" not in script(lambda x: x.mul_(2), X, failure=ERROR)


def test_random_graphs_draw_from_one_seed() -> None:
    text = code(script(lambda x: torch.rand_like(x) + x, X, failure=DIVERGENCE))
    assert text.count("torch.manual_seed(0)\n") == 2


def test_dynamic_shapes_are_asked_for() -> None:
    assert 'torch.compile(forward, backend="inductor", dynamic=True)(x)' in script(lambda x: x.sin(), X, dynamic=True)


def test_strides_are_compared_where_they_differ() -> None:
    failure = replace(DIVERGENCE, detail={"class": "stride"})
    assert "assert_close(actual, expected, check_stride=True)" in script(lambda x: x.sin(), X, failure=failure)


@pytest.mark.parametrize("failure", [DIVERGENCE, GRADIENT, replace(DIVERGENCE, detail={"class": "mutation"})])
def test_nan_counts_as_nan_where_eager_gives_one(failure: Failure) -> None:
    case, blobs = case_of(lambda x: x.sin(), X)
    text = render(case, blobs, header=replace(HEADER, failure=failure)).text
    assert "equal_nan" not in text
    with_nan = replace(failure, detail={**failure.detail, "eager_nan": True})
    text = render(case, blobs, header=replace(HEADER, failure=with_nan)).text
    assert ", equal_nan=True)" in text


def test_a_crash_has_nothing_around_it_and_a_hang_an_alarm() -> None:
    crash = Failure(FailureKind.CRASH, Phase.FORWARD, message="the process died of SIGFPE", signal=8)
    text = script(lambda x: x.sin(), X, failure=crash)
    assert "Run it: it dies of SIGFPE while the bug is there" in text
    assert "import signal" not in text
    hang = Failure(FailureKind.HANG, Phase.COMPILE, message="no answer within 60 s")
    assert "import signal\n\nimport torch\n\nsignal.alarm(60)\n" in script(lambda x: x.sin(), X, failure=hang)


@pytest.mark.process
def test_who_runs_a_script_keeps_some_memory() -> None:
    killed = Failure(FailureKind.OUT_OF_MEMORY, Phase.COMPILE, message="9 GiB resident")
    limit = "resource.setrlimit(resource.RLIMIT_DATA, ({0} << 30, {0} << 30))  # or it takes all there is\n"
    assert "import resource\n\nimport torch\n\n" + limit.format(4) in script(lambda x: x.sin(), X, failure=killed)
    large = torch.empty(1 << 28, device="meta")
    assert limit.format(8) in script(lambda x: x.sin(), large, failure=replace(killed, type="MemoryError"))
    assert "resource" not in script(lambda x: x.sin(), X, failure=ERROR)


def test_an_error_in_backward_goes_backward() -> None:
    failure = replace(ERROR, phase=Phase.BACKWARD)
    x = X.clone().requires_grad_()
    text = script(lambda x: x.sin(), x, failure=failure, backward=True)
    assert text.endswith('output = torch.compile(forward, backend="inductor")(x)\noutput.sum().backward()\n')
    text = script(lambda x: (x.sin(), x.shape[0], x.cos()), x, failure=failure, backward=True)
    assert "sum(o.sum() for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad).backward()" in text


# Each fault of these backends is one that a comparison must find.

FAULTY_BACKEND = """\
import torch
from torch._dynamo import register_backend


class Negated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@register_backend
def wrong_gradient(gm, inputs):
    return lambda *args: [Negated.apply(o) for o in gm(*args)]


@register_backend
def detaches(gm, inputs):
    return lambda *args: [gm(*args)[0].detach(), *gm(*args)[1:]]


@register_backend
def unwritten(gm, inputs):
    return lambda *args: gm(*[a.clone() for a in args])


@register_backend
def copies(gm, inputs):
    return lambda *args: [o.clone() for o in gm(*args)]


def later(faulty):
    # Right until it is called with other values than at first.
    def backend(gm, inputs):
        kept, wrong = [], faulty(gm, inputs)

        def run(*args):
            kept.append(torch.cat([a.detach().flatten() for a in args]).clone())
            return gm(*args) if torch.equal(kept[0], kept[-1]) else wrong(*args)
        return run
    return backend


stale = register_backend(later(lambda gm, inputs: lambda *args: [o + 1 for o in gm(*args)]), name="stale")
later_unwritten = register_backend(later(unwritten), name="later_unwritten")
later_copies = register_backend(later(copies), name="later_copies")
later_gradient = register_backend(later(wrong_gradient), name="later_gradient")
later_error = register_backend(later(lambda gm, inputs: lambda *args: [].pop()), name="later_error")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a script in this process, the faulty backends beside it."""
    (tmp_path / "faulty.py").write_text(FAULTY_BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(text: str) -> None:
        (tmp_path / "repro.py").write_text(text)
        torch._dynamo.reset()
        runpy.run_path(str(tmp_path / "repro.py"), run_name="__main__")

    return run


def faulty(
    name: str,
    function: Callable[..., Any],
    *inputs: Any,
    failure: Failure,
    backend: str = "",
    summed: bool = False,
    **fields: Any,
) -> str:
    case, blobs = case_of(function, *inputs, **fields)
    spec = BackendSpec(name=name, how="registered", target=name, module="faulty")
    good = BackendSpec(name="eager", how="registered", target="eager")
    case = replace(case, backend=(good if backend == "eager" else spec).to_json())
    return render(case, blobs, header=replace(HEADER, failure=failure, summed=summed)).text


@pytest.mark.parametrize(
    ("name", "function", "failure", "message"),
    [
        ("wrong_gradient", lambda x: x.sin(), GRADIENT, "Tensor-likes are not close"),
        ("wrong_gradient", lambda x: (x.sin(), x.cos()), GRADIENT, "Tensor-likes are not close"),
        ("detaches", lambda x: x.sin(), DETACHED, "gradients are missing"),
        ("detaches", lambda x: (x.sin(), x.cos()), DETACHED, "gradients are missing"),
        ("unwritten", lambda x: x.mul_(2), MUTATION, "Tensor-likes are not close"),
        ("copies", lambda x: x[1:], ALIAS, "alias: output 0 should lie in input 0"),
    ],
)  # fmt: skip
def test_faults_that_only_a_comparison_finds(
    name: str, function: Callable[..., Any], failure: Failure, message: str, run: Callable[[str], None]
) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=name in ("wrong_gradient", "detaches"))
    with pytest.raises(AssertionError, match=f"^{message}") as caught:
        run(faulty(name, function, x, failure=failure))
    seen = failure_in_script(caught.value, "repro.py")
    assert (seen.kind, seen.phase, seen.detail["class"]) == (
        FailureKind.DIVERGENCE,
        failure.phase,
        failure.detail["class"],
    )
    run(faulty(name, function, x, failure=failure, backend="eager"))


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y)


def several(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, x.sin()


def views(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x[1:], y.sin()


@pytest.mark.parametrize(
    ("name", "function", "failure", "message"),
    [
        ("stale", adds, DIVERGENCE, "Tensor-likes are not close"),
        ("stale", writes, DIVERGENCE, "Tensor-likes are not close"),
        ("later_unwritten", writes, MUTATION, "Tensor-likes are not close"),
        ("later_gradient", adds, GRADIENT, "Tensor-likes are not close"),
        ("later_gradient", several, GRADIENT, "Tensor-likes are not close"),
        ("later_copies", views, ALIAS, "alias: output 0 should lie in input 0"),
        ("later_error", writes, ERROR, "pop from empty list"),
    ],
)  # fmt: skip
def test_faults_that_only_a_call_with_other_values_shows(
    name: str, function: Callable[..., Any], failure: Failure, message: str, run: Callable[[str], None]
) -> None:
    """The earlier call has another ``x`` and the same ``y``. Without it nothing is wrong."""
    inputs = [torch.tensor(v, requires_grad=failure is GRADIENT) for v in ([1.0, 2.0], [3.0, 4.0])]
    before = ({"l_x_": {"tensor": 1}},)
    for summed in (False, failure is GRADIENT):
        text = faulty(name, function, *inputs, failure=failure, earlier=before, summed=summed)
        with pytest.raises((AssertionError, IndexError), match=message):
            run(text)
    run(faulty(name, function, *inputs, failure=failure))
    run(faulty(name, function, *inputs, failure=failure, earlier=before, backend="eager"))


@pytest.mark.parametrize("function", [lambda x: x.sin(), lambda x: (x.sin(), x.cos())])
def test_where_it_shows_in_the_sum_the_gradients_are_asked_for_as_a_person_would(
    function: Callable[..., Any], run: Callable[[str], None]
) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    text = faulty("wrong_gradient", function, x, failure=GRADIENT, summed=True)
    assert ".sum()" in text
    assert "cotangents" not in text
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        run(text)
    run(faulty("wrong_gradient", function, x, failure=GRADIENT, backend="eager", summed=True))


def test_cotangents_are_those_of_the_worker() -> None:
    from fxminify.backends.running.execution import cotangents
    from fxminify.repro_templates.source.action import COTANGENTS

    outputs = [torch.zeros(3, 2), torch.zeros(5, dtype=torch.float64), torch.zeros((), dtype=torch.bfloat16)]
    scope: dict[str, Any] = {"torch": torch, "outputs": outputs}
    exec(COTANGENTS, scope)  # noqa: S102  the text under test
    for printed, worked in zip(scope["cotangents"], cotangents(outputs), strict=True):
        assert torch.equal(printed, worked)
        assert printed.dtype == worked.dtype


@pytest.mark.parametrize("format", OURS)
def test_hostile_messages_stay_text(format: str) -> None:
    hostile = 'a """\nimport evil\n\\ \x1b]0;x\u2028 ``` \r \u202e at /home/me/secret/file.py:3'
    failure = Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, 'Bad"""', hostile)
    case, blobs = case_of(lambda x: x.sin(), X)
    header = replace(HEADER, failure=failure, torch='2"""\n', backend="\\")
    text = render(case, blobs, format=format, header=header).text
    assert text.isascii()
    assert "/home" not in text
    assert "\x1b" not in text
    if OURS[format].language != "markdown":
        compile(text, "script", "exec")
        assert "\nimport evil" not in text


def test_a_report_holds_the_script_the_error_and_the_versions() -> None:
    text = script(lambda x: x.sin(), X, format="issue")
    assert text.startswith("<!-- Title: [inductor] sin: runtime error: RuntimeError: index out of bounds: 37 -->\n")
    assert (
        "\n### Describe the bug\n\nWhat the backend `inductor` compiled raises when it runs; eager does not.\n" in text
    )
    assert "```python\nimport torch\n" in text
    assert "\n### Error logs\n\n```\nRuntimeError: index out of bounds: 37\n```\n" in text
    assert text.endswith("### Versions\n\n```\ntorch 2.13.0+cpu\nPython 3.11\nLinux x86_64\n```\n")


STANDARD_ERROR = "terminate called after throwing an instance of 'Broken'\n  what():  the tile is odd"
CRASH = Failure(FailureKind.CRASH, Phase.FORWARD, message="the process died of SIGABRT", signal=6)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ERROR, "index out of bounds: 37"),
        (replace(ERROR, causes=(("KeyError", "index out of bounds: 37"),)), "index out of bounds: 37"),
        (replace(ERROR, message="no way " * 30, causes=(("KeyError", "the tile is odd"),)), "the tile is odd"),
        (replace(ERROR, kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE), "index out of bounds: 37"),
        (DIVERGENCE, "off by 0.159"),
        (replace(DIVERGENCE, message="dtype is a, b compiled", detail={"class": "dtype"}), "dtype is a, b compiled"),
        (replace(CRASH, diagnostics=STANDARD_ERROR), "the tile is odd"),
        (CRASH, "the process died of SIGABRT"),
    ],
)
def test_an_error_stands_in_a_report_twice(failure: Failure, said: str) -> None:
    text = script(lambda x: x.sin(), X, failure=failure, format="issue")
    assert text.count(said) == 2


def test_addresses_of_objects_are_left_out_of_every_text() -> None:
    message = "no lowering for <team.Kernel object at 0x7f3a12bc9e10> in 0x00007f3a12bc9e10, code 0x1f"
    failure = replace(ERROR, message=message, diagnostics="Check failed: at 0x7f3a12bc9e10")
    for format in OURS:
        text = script(lambda x: x.sin(), X, failure=failure, format=format)
        assert "7f3a12bc9e10" not in text
        assert "no lowering for <team.Kernel object> in 0x..., code 0x1f" in text.replace("\n", " ")
    assert failure.headline() == "RuntimeError: no lowering for <team.Kernel object> in 0x..., code 0x1f"


@pytest.mark.process
def test_the_pytest_file_expects_the_failure_and_fails_once_the_bug_is_gone(tmp_path: Path) -> None:
    case, blobs = case_of(lambda x: x.mul_(2), X)
    (tmp_path / "faulty.py").write_text(FAULTY_BACKEND)
    header = replace(HEADER, failure=replace(DIVERGENCE, detail={"class": "mutation"}))
    for name, module in (("unwritten", "faulty"), ("eager", ""), ("nowhere", "")):
        spec = BackendSpec(name=name, how="registered", target=name, module=module)
        text = render(replace(case, backend=spec.to_json()), blobs, format="pytest", header=header).text
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rfxX"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("XFAIL", "FAILED"))]
    assert sorted(lines) == [
        "FAILED test_eager.py::test_eager_mul_divergence",
        "FAILED test_nowhere.py::test_nowhere_mul_divergence",  # not the exception that is expected
        "XFAIL test_unwritten.py::test_unwritten_mul_divergence",
    ]


@pytest.mark.process
@pytest.mark.parametrize(("body", "status"), [("", 0), ("raise RuntimeError('index out of bounds: 4')", 1),
                                              ("raise KeyError('other')", 125), ("import nowhere", 125)])  # fmt: skip
def test_the_bisect_file_answers_gone_there_or_cannot_tell(body: str, status: int, tmp_path: Path) -> None:
    text = script(lambda x: x.sin(), X, format="bisect")
    head, mark, _ = text.partition("\nimport torch\n")
    assert mark
    (tmp_path / "bisect_me.py").write_text(f"{head}\n{body}\n")
    assert (
        subprocess.run(
            [sys.executable, "bisect_me.py"], cwd=tmp_path, stderr=subprocess.DEVNULL, check=False
        ).returncode
        == status
    )


@pytest.mark.process
def test_the_bisect_file_knows_a_signal(tmp_path: Path) -> None:
    crash = Failure(FailureKind.CRASH, Phase.FORWARD, message="the process died of SIGFPE", signal=8)
    head = script(lambda x: x.sin(), X, format="bisect", failure=crash).partition("\nimport torch\n")[0]
    for number, status in ((8, 1), (11, 125)):
        (tmp_path / "bisect_me.py").write_text(f"{head}\nimport os\nos.kill(os.getpid(), {number})\n")
        assert subprocess.run([sys.executable, "bisect_me.py"], cwd=tmp_path, check=False).returncode == status


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "said", "crash"),
    [
        ("assert 0", "expected failures=1", False),
        pytest.param("", "unexpected successes=1", False, marks=pytest.mark.slow),
        pytest.param("assert 0", "expected failures=1", True, marks=pytest.mark.slow),
        pytest.param("", "unexpected successes=1", True, marks=pytest.mark.slow),
    ],
)
def test_the_upstream_test_is_one_of_pytorch(body: str, said: str, crash: bool, tmp_path: Path) -> None:
    died = Failure(FailureKind.CRASH, Phase.FORWARD, message="the process died of SIGFPE", signal=8)
    given = {"failure": died} if crash else {}
    text = script(lambda x: x.sin(), X, format="upstream-test", **given)
    assert text.startswith('# Owner(s): ["module: inductor"]\n"""')
    body = "import os; os.kill(os.getpid(), 8)" if body and crash else body
    before, _, after = text.partition("    torch.compile(")
    assert after
    (tmp_path / "test_upstream.py").write_text(f"{before}    {body or 'pass'}\n{after.partition(chr(10))[2]}")
    command = [sys.executable, "test_upstream.py"]
    env = {name: value for name, value in os.environ.items() if name != "CI"}  # there torch's run_tests wants xmlrunner
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert said in done.stderr, done.stderr
    assert (done.returncode == 0) is bool(body)


def test_scripts_import_nothing_of_this_tool() -> None:
    text = script(lambda x: x.sin(), X)
    assert not [line for line in text.splitlines() if line.startswith(("import", "from")) and "torch" not in line]


def test_an_embedded_script_comes_with_its_file() -> None:
    case, blobs = case_of(lambda x: x.sin(), torch.randn(100))
    rendered = render(case, blobs, header=HEADER, embed=True)
    assert list(rendered.files) == ["repro.safetensors"]
    assert 'data = load_file(pathlib.Path(__file__).with_name("repro.safetensors"))\n' in rendered.text


def flaky(format: str, runs: str = "6 of 20", replays: str = "2 of 9") -> str:
    case, blobs = case_of(lambda x: x.neg(), torch.ones(2))
    return render(case, blobs, format=format, header=replace(HEADER, runs=runs, replays=replays)).text


def test_a_failure_that_comes_and_goes_says_how_many_runs_mean_that_it_is_gone() -> None:
    text = flaky("script")
    assert (
        "Run it often: it fails now and then while the bug is there; 31 runs in a row with exit code 0 mean it is gone."
    ) in text
    assert "It failed in 6 of 20 fresh runs, and in 2 of 9 replays of the whole graph." in " ".join(text.split())
    assert "31 runs in a row with exit code 0 mean it is gone" in flaky("issue")
    assert "exit code 0 says nothing." in flaky("script", runs="0 of 20")
    assert "11 runs in a row with exit code 0 mean" in flaky("script", runs="3 of 3")
    assert "exit code 0 means the bug is gone." in flaky("script", runs="3 of 3", replays="")


def test_tests_and_bisections_of_a_failure_that_comes_and_goes_run_it_often() -> None:
    text = flaky("pytest")
    assert "    strict=False,\n" in text
    assert "31 runs in a row that pass (xpass)\nmean the bug is gone.\n" in text
    assert "    strict=True,\n" in flaky("pytest", "3 of 3", "")
    assert "        for _ in range(31):  # it comes and goes\n            repro()\n" in flaky("upstream-test")
    text = flaky("bisect")
    assert "    return next(filter(None, (run(python) for _ in range(31))), 0)\n" in text
    assert "range(" not in flaky("bisect", "3 of 3", "")
