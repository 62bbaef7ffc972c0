"""One observation: eager first, both entries name the same failure in the same phase, state is left as it was."""

import inspect
import json
import sys
from dataclasses import replace
from typing import Any, Never

import pytest
import torch
from captured import capture, spec
from replies import failure_of
from torch import fx

from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.oracle.observation import Observation, Seen
from fxminify.minifier.oracle.observe import observe
from fxminify.minifier.tracing.source_function import source_function
from fxminify.store import codec
from fxminify.store.document.case import Case, Graph, Node
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.signature import signature

BOTH = pytest.mark.parametrize("entry", ["direct", "compile"])


def relu_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.sin() + 1).sum()


def relu_only(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


def seen(captured: tuple[Case, dict[str, bytes]], entry: str) -> tuple[Observation, list[str]]:
    """What one run shows, and the phases that it announced."""
    marks: list[str] = []
    case, blobs = captured
    return observe(case, blobs, entry, marks.append), marks


def failure(captured: tuple[Case, dict[str, bytes]], entry: str) -> Failure:
    return failure_of(seen(captured, entry)[0])


@BOTH
def test_a_healthy_backend_passes(entry: str) -> None:
    observation, marks = seen(capture(relu_sum, (torch.randn(4),), spec("healthy")), entry)
    assert observation.seen is Seen.PASS
    between = ["compile"] if entry == "direct" else ["trace", "compile", "guards"]
    assert marks == ["build", "eager", *between, "forward"]
    assert list(observation.seconds) == marks


@BOTH
def test_an_input_is_not_called_like_the_operation_that_it_stands_for(entry: str) -> None:
    case, blobs = capture(lambda x: torch.relu(x).cos(), (torch.randn(4),), spec("refuses_names"))
    assert seen((case, blobs), entry)[0].seen is Seen.FAILURE
    placeholder, relu, cos, output = case.graph.nodes
    stand_in = replace(placeholder, name=relu.name, target=relu.name)
    without = replace(case, graph=Graph((stand_in, cos, output), {}, False))
    assert seen((without, blobs), entry)[0].seen is Seen.PASS


@BOTH
def test_eager_finishes_before_the_backend_is_asked(entry: str) -> None:
    def bad(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + x.new_zeros(3)

    case, blobs = capture(bad, (torch.randn(3),), spec("cannot_lower"))
    (tensor,) = case.tensors
    case = replace(case, tensors=(replace(tensor, shape=(2,)),))
    observation, marks = seen((case, blobs), entry)
    assert observation.seen is Seen.INVALID
    assert observation.detail.startswith("eager: RuntimeError: The size of tensor a (2) must match")
    assert marks == ["build", "eager"]


FAILURES = {
    "cannot_lower": (FailureKind.COMPILE_ERROR, Phase.COMPILE, "NotImplementedError", "cannot lower relu"),
    "fails_at_run": (FailureKind.RUNTIME_ERROR, Phase.FORWARD, "RuntimeError", "no kernel for relu of [4]"),
    "exits": (FailureKind.CRASH, Phase.COMPILE, "exit 4", "the process left with exit code 4"),
    "allocates": (FailureKind.OUT_OF_MEMORY, Phase.COMPILE, "RuntimeError", None),
}


@BOTH
@pytest.mark.parametrize(("name", "expected"), FAILURES.items(), ids=FAILURES.keys())
def test_failures_are_described_alike_through_both_entries(
    name: str, expected: tuple[FailureKind, Phase, str, str | None], entry: str
) -> None:
    observation, _ = seen(capture(relu_only, (torch.randn(4),), spec(name)), entry)
    assert observation.seen is Seen.FAILURE
    found = failure_of(observation)
    *described, message = expected
    assert [found.kind, found.phase, found.type] == described
    assert message is None or found.message == message
    assert found.frames[-1].file == "faulty_backends.py"


@pytest.mark.parametrize("name", ["cannot_lower", "with_context", "fails_at_run", "exits", "diverges"])
def test_both_entries_give_one_signature(name: str) -> None:
    case = capture(relu_only, (torch.randn(4),), spec(name), compare=True)
    direct, compiled = (signature(failure(case, entry)) for entry in ("direct", "compile"))
    assert direct == compiled


def test_a_failure_in_guards_shows_through_compile_only() -> None:
    case, blobs = capture(relu_only, (torch.randn(4),), spec("healthy"))

    def bad_guards(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        def raising(*args: Any, **kwargs: Any) -> Never:
            raise IndexError("list index out of range")

        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fake_mode is not None:
            vars(context.fake_mode.shape_env)["produce_guards_verbose"] = raising
        return gm.forward

    assert observe(case, blobs, "direct", backend=bad_guards).seen is Seen.PASS
    found = failure_of(observe(case, blobs, "compile", backend=bad_guards))
    assert (found.kind, found.phase) == (FailureKind.COMPILE_ERROR, Phase.GUARDS)
    if torch.__version__ < "2.13":  # whose Dynamo raises an error of its own in its place
        wrapped = ("torch._dynamo.exc.InternalTorchDynamoError", "IndexError: list index out of range")
        assert (found.type, found.message.strip()) == wrapped
    else:
        assert (found.type, found.message.strip()) == ("IndexError", "list index out of range")


@BOTH
def test_a_failure_in_backward(entry: str) -> None:
    inputs = (torch.randn(4, requires_grad=True),)
    case, blobs = capture(relu_only, inputs, spec("fails_in_backward"))
    assert seen((case, blobs), entry)[0].seen is Seen.PASS
    observation, marks = seen((replace(case, backward=True), blobs), entry)
    assert marks[-1] == "backward"
    found = failure_of(observation)
    assert (found.phase, found.message) == (Phase.BACKWARD, "no gradient for relu")


@BOTH
def test_a_divergence_is_looked_for_only_when_asked(entry: str) -> None:
    case, blobs = capture(relu_only, (torch.randn(4),), spec("diverges"))
    assert seen((case, blobs), entry)[0].seen is Seen.PASS
    observation, marks = seen((replace(case, compare=True), blobs), entry)
    assert marks[-1] == "compare"
    found = failure_of(observation)
    assert (found.kind, found.detail["class"]) == (FailureKind.DIVERGENCE, "value")


@BOTH
@pytest.mark.parametrize(("name", "unequal"), [("inexact", "output 0"), ("healthy", "")])
def test_a_small_difference_passes_and_is_named(name: str, unequal: str, entry: str) -> None:
    observation, _ = seen(capture(relu_only, (torch.full((4,), 1e3),), spec(name), compare=True), entry)
    assert (observation.seen, observation.unequal) == (Seen.PASS, unequal)


@BOTH
@pytest.mark.parametrize("name", ["draws", "healthy"])
def test_random_numbers_are_the_same_on_both_sides(name: str, entry: str) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(4)

    case = capture(noisy, (torch.zeros(4),), spec(name), compare=True)
    before = torch.get_rng_state()
    assert seen(case, entry)[0].seen is Seen.PASS
    assert torch.equal(torch.get_rng_state(), before)


@BOTH
def test_a_backend_that_edits_graph_and_inputs_changes_nothing_for_the_next(entry: str) -> None:
    case = capture(relu_only, (torch.ones(4),), spec("edits_the_graph"))
    copy = capture(relu_only, (torch.ones(4),), spec("edits_the_graph"))
    first = seen(case, entry)[0]
    assert first.seen is Seen.PASS
    assert case == copy
    diverging = (replace(case[0], compare=True), case[1])
    assert failure(diverging, entry) == failure(diverging, entry)


@BOTH
def test_buffers_that_eager_wrote_to_are_fresh_for_the_backend(entry: str) -> None:
    norm = torch.nn.BatchNorm1d(3)
    case = capture(norm, (torch.randn(5, 3),), spec("healthy"), compare=True)
    assert seen(case, entry)[0].seen is Seen.PASS


@BOTH
def test_in_place_operators_do_not_leak_from_run_to_run(entry: str) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    case = capture(double, (torch.ones(4),), spec("value_dependent"), compare=True)
    for _ in range(8):
        assert seen(case, entry)[0].seen is Seen.PASS


@BOTH
def test_the_ambient_state_is_applied_and_taken_back(entry: str) -> None:
    states = []

    def looks(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        states.append((torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")))
        return gm.forward

    context = {"grad": False, "default_dtype": "float64", "autocast": {"cpu": {"dtype": "bfloat16", "cache": True}}}
    case, blobs = capture(relu_only, (torch.ones(4),), spec("healthy"), context=context)
    before = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"))
    assert observe(case, blobs, entry, backend=looks).seen is Seen.PASS
    assert states == [(False, torch.float64, True)]
    assert (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")) == before


@BOTH
def test_options_reach_the_backend(entry: str) -> None:
    options = spec("with_options", options={"dict": [["fuse", True]]})
    assert failure(capture(relu_only, (torch.ones(4),), options), entry).message == "cannot fuse"
    assert seen(capture(relu_only, (torch.ones(4),), spec("with_options")), entry)[0].seen is Seen.PASS


def test_an_empty_graph_never_reaches_a_backend_through_compile() -> None:
    case, blobs = capture(relu_only, (torch.ones(4),), spec("healthy"))
    name = case.graph.placeholders[0].name
    nodes = (*case.graph.placeholders, Node("output", "output", "output", ({"tuple": [{"ref": name}]},)))
    empty = replace(case, graph=Graph(nodes))

    def fails(gm: fx.GraphModule, inputs: list[Any]) -> Never:
        raise RuntimeError("asked")

    assert observe(empty, blobs, "direct", backend=fails).seen is Seen.FAILURE
    assert observe(empty, blobs, "compile", backend=fails).seen is Seen.PASS


def test_the_printed_source_can_be_inspected() -> None:
    case, blobs = capture(relu_sum, (torch.ones(4),), spec("healthy"))
    _, function = source_function(case, blobs)
    assert inspect.getsource(function).startswith("def forward(x)")
    assert torch.equal(torch.as_tensor(function(torch.ones(4))), relu_sum(torch.ones(4)))


def test_an_observation_survives_json() -> None:
    observation, _ = seen(capture(relu_only, (torch.ones(4),), spec("cannot_lower")), "direct")
    assert codec.load(json.loads(json.dumps(codec.dump(observation))), Observation) == observation


REAL = {
    "007_unfold_abs_inplace": ("aot_eager_decomp_partition", ""),
    "039_ort_lgamma": ("ort_export", "ort_export"),
    "047_ort_relu_int64": ("ort_export", "ort_export"),
}


@pytest.mark.process
@pytest.mark.parametrize(("name", "backend"), REAL.items(), ids=REAL.keys())
def test_real_failures_have_one_signature_through_both_entries(name: str, backend: tuple[str, str]) -> None:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    function, inputs = __import__(name).make()
    with torch.no_grad():
        case = capture(function, inputs, spec(*backend), context={"grad": False})
    direct, compiled = (failure(case, entry) for entry in ("direct", "compile"))
    assert signature(direct) == signature(compiled)
    assert direct.kind is FailureKind.COMPILE_ERROR
    if name == "039_ort_lgamma":
        assert "prims.lgamma" in signature(direct).message


def test_a_real_failure_that_needs_a_graph_of_dynamo_itself_shows_through_compile_only() -> None:
    case = capture(lambda x: torch.sin(x) + x, (torch.randn(4),), spec("scripted"))
    assert seen(case, "direct")[0].seen is Seen.PASS
    assert failure(case, "compile").message.strip().startswith("method cannot be used as a value")


def test_a_spec_says_where_its_module_lies() -> None:
    assert BackendSpec.from_json(spec("healthy").to_json()).modules() == ["faulty_backends"]
    assert "faulty_backends" in sys.modules


def changed_before_its_gradient(x: torch.Tensor) -> torch.Tensor:
    h = x.sigmoid()
    y = h * h
    h.mul_(2)
    return y.sum()


@BOTH
@pytest.mark.parametrize("wants", [True, False])
def test_a_derivative_that_eager_has_not_is_no_failure_of_the_backend(entry: str, wants: bool) -> None:
    """The case asks for no backward pass: AOTAutograd traces it because an input requires a gradient."""
    aot = BackendSpec("aot_eager", "registered", "aot_eager")
    captured = capture(changed_before_its_gradient, (torch.ones(4, requires_grad=wants),), aot)
    assert not captured[0].backward
    observation, marks = seen(captured, entry)
    if not wants:
        assert observation.seen is Seen.PASS
        return
    assert observation.seen is Seen.INVALID
    assert observation.refused.startswith("RuntimeError: one of the variables needed for gradient computation")
    assert marks[-2:] == ["compile", "eager"]


@BOTH
def test_a_derivative_that_eager_has_is_a_failure_of_the_backend(entry: str) -> None:
    observation, _ = seen(
        capture(relu_sum, (torch.ones(4, requires_grad=True),), spec("differentiates_wrongly")), entry
    )
    assert failure_of(observation).message.startswith("one of the variables needed for gradient computation")
