"""The capture hook: harmless to a healthy program, and what it records of a failing one."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fxminify
from fxminify.backends.exceptions import failure_of
from fxminify.store.build import build
from fxminify.store.failure import Failure, Phase, signature
from fxminify.store.index import CaptureInfo, Index, State


def captures(db: str) -> list[CaptureInfo]:
    if not Path(db).exists():
        return []
    with Index.open(db) as index:
        return index.captures()


def names(db: str, id: int = 1) -> list[str]:
    """The functions a captured graph calls."""
    with Index.open(db) as index:
        targets = [n.target for n in index.case(id).graph.compute]
    return [target if isinstance(target, str) else str(next(iter(target.values()))) for target in targets]


def inputs(db: str, id: int = 1) -> list[Any]:
    """The inputs of a capture, live again."""
    with Index.open(db) as index:
        case = index.case(id)
        return build(case, index.blobs(case.storages))[1]


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2 + x.sum()


class Failed(Exception):
    pass


def failing(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    raise Failed("cannot lower sin")


def failing_at_run(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    def run(*args: torch.Tensor) -> Any:
        if args[0].sum() > 100:
            raise Failed("too large")
        return gm(*args)

    return run


# --- a healthy program ------------------------------------------------------------------------------------------


def returns_function(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return lambda *args: gm(*args)


def returns_bound_method(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return gm.forward


def returns_graph_module(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return gm


def returns_partial(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return functools.partial(gm.forward)


class Wrapper(torch.nn.Module):
    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__()
        self.gm = gm

    def forward(self, *args: Any) -> Any:
        return self.gm(*args)


def returns_module(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return Wrapper(gm)


def edits_in_place(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward


@pytest.mark.parametrize(
    "backend",
    [
        returns_function,
        returns_bound_method,
        returns_graph_module,
        returns_partial,
        returns_module,
        edits_in_place,
        "eager",
        "aot_eager",
        "inductor",
    ],
)
def test_a_healthy_program_computes_the_same_bits(db: str, backend: Any) -> None:
    """Row 2: PyTorch's own capture breaks backends that return plain callables."""
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    data = torch.randn(3, 4)

    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(5)
        layer.load_state_dict(state)
        layer.zero_grad()
        compiled = torch.compile(lambda x: model(layer(x)), backend=backend)
        results = []
        for _ in range(4):
            result = compiled(data)
            result.sum().backward()
            results.append(result.detach())
        gradients = [p.grad for p in layer.parameters() if p.grad is not None]
        return [*results, *gradients, *layer.state_dict().values(), torch.get_rng_state()]

    plain = run()
    fxminify.install(db)
    captured = run()
    fxminify.uninstall()
    assert [torch.equal(a, b) for a, b in zip(plain, captured, strict=True)] == [True] * len(plain)
    assert captures(db) == []


def test_checking_changes_nothing_either(db: str) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    data = torch.randn(3, 4)

    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(5)
        layer.load_state_dict(state)
        layer.zero_grad()
        compiled = torch.compile(layer, backend="aot_eager")
        results = [compiled(data) for _ in range(3)]
        torch.stack(results).sum().backward()
        gradients = [p.grad for p in layer.parameters() if p.grad is not None]
        return [*results, *gradients, *layer.state_dict().values(), torch.get_rng_state()]

    plain = run()
    with fxminify.capturing(db, check=True):
        checked = run()
    assert [torch.equal(a, b) for a, b in zip(plain, checked, strict=True)] == [True] * len(plain)
    assert captures(db) == []


def test_attributes_of_the_compiled_callable_survive(db: str) -> None:
    seen = []

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return gm(*args)

        run._boxed_call = False  # type: ignore[attr-defined]
        run.note = "kept"  # type: ignore[attr-defined]
        return run

    original = torch._dynamo.output_graph.OutputGraph._call_user_compiler

    def spy(self: Any, *args: Any) -> Any:
        seen.append(original(self, *args))
        return seen[-1]

    fxminify.install(db)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._dynamo.output_graph.OutputGraph, "_call_user_compiler", spy)
        torch.compile(model, backend=backend)(torch.ones(3))
    assert (seen[0].note, seen[0]._boxed_call, seen[0].__name__) == ("kept", False, "run")


def test_installing_loads_no_torch() -> None:
    code = "import sys, fxminify; fxminify.install('x.db'); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"


def test_uninstalling_puts_everything_back(db: str) -> None:
    from torch._dynamo.convert_frame import DynamoOutput
    from torch._dynamo.repro.after_dynamo import WrapBackendDebug

    def seams() -> list[Any]:
        engines = [torch.autograd._engine_run_backward, torch.autograd.graph._engine_run_backward]
        return [WrapBackendDebug.__call__, DynamoOutput.build_guards, *engines]

    before = seams()
    fxminify.install(db)
    assert not any(map(operator.is_, seams(), before))
    fxminify.uninstall()
    assert seams() == before


# --- failures while compiling ------------------------------------------------------------------------------------


def test_the_exception_reaches_the_user_untouched(db: str) -> None:
    raised = Failed("cannot lower sin")
    raised.add_note("a note")
    cause = ValueError("why")

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        raise raised from cause

    with fxminify.capturing(db), pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(model, backend=backend)(torch.ones(3))
    assert caught.value.inner_exception is raised
    assert (raised.__cause__, raised.__context__, raised.__notes__) == (cause, None, ["a note"])
    assert vars(raised) == {"__notes__": ["a note"]}
    assert traceback.extract_tb(raised.__traceback__)[-1].name == "backend"
    [row] = captures(db)
    assert (row.kind, row.phase, row.state) == ("compile_error", "compile", State.BLOCKED)
    assert "closure cell" in row.reason  # row 5: what cannot be re-created is said at capture time
    assert (row.failure.type.rpartition(".")[2], row.failure.message) == ("Failed", "cannot lower sin")  # type: ignore[union-attr]


def test_functions_compiled_before_installing_are_seen(db: str) -> None:
    compiled = torch.compile(model, backend=failing)
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        compiled(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["failing"]


def test_the_graph_is_kept_as_it_was_received(db: str) -> None:
    """Row 7: a backend that edits the graph and its inputs, and then fails."""

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        edits_in_place(gm, example_inputs)
        example_inputs[0].zero_()
        raise Failed("now")

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert names(db)[0] == "torch.sin"
    assert torch.equal(inputs(db)[0], torch.ones(3))


def test_a_sub_graph_is_kept_as_it_was_received(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        for module in gm.modules():
            if isinstance(module, fx.GraphModule):
                edits_in_place(module, example_inputs)
        raise Failed("now")

    def branching(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: x + 1, (x,))

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(branching, backend=backend)(torch.ones(3))
    with Index.open(db) as index:
        attrs = index.case(1).graph.attrs
    called = [n.target for a in attrs.values() for n in a["graph"].compute]
    assert {"fn": "torch.sin"} in called
    assert {"fn": "torch.cos"} not in called


def test_two_failures_in_one_process_are_two_rows_and_repeats_are_counted(db: str) -> None:
    """Row 26: PyTorch's capture overwrites the first."""
    fxminify.install(db)
    for function in (model, torch.cos, model, model):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(lambda x, f=function: f(x), backend=failing)(torch.ones(3))
    fxminify.uninstall()
    assert [(row.id, row.occurrences, row.nodes_before) for row in captures(db)] == [(1, 3, 4), (2, 1, 1)]


def test_a_backend_that_fails_inside_another_is_recorded_once(db: str) -> None:
    def outer(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
        with torch._dynamo.utils.disable_cache_limit():
            return failing(gm, example_inputs)

    def middle(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
        return torch._dynamo.repro.after_dynamo.WrapBackendDebug(outer, "outer")(gm, example_inputs)

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=middle)(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["outer"]


def test_asking_dynamo_for_something_else_is_no_failure(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        raise torch._dynamo.exc.SkipFrame("not for me")

    fxminify.install(db)
    x = torch.ones(3)
    assert torch.equal(torch.compile(model, backend=backend)(x), model(x))
    assert captures(db) == []


def test_a_keyboard_interrupt_is_no_failure(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        raise KeyboardInterrupt

    fxminify.install(db)
    with pytest.raises(KeyboardInterrupt):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert captures(db) == []


def test_a_backend_that_returns_nothing_to_call_is_captured(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=lambda gm, inputs: 3)(torch.ones(3))
    assert [row.failure.message for row in captures(db)] == ["compiler_fn did not return callable"]  # type: ignore[union-attr]


def test_options_and_dynamic_are_kept(db: str) -> None:
    """Row 6: the failure is triggered by an option."""

    def backend(gm: fx.GraphModule, example_inputs: Any, *, options: dict[str, Any]) -> Callable[..., Any]:
        if options["fuse"]:
            raise Failed("cannot fuse")
        return gm.forward

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=backend, options={"fuse": True}, dynamic=True)(torch.ones(3))
    with Index.open(db) as index:
        case = index.case(1)
    assert case.backend["options"] == {"dict": [["fuse", True]]}
    assert case.backend["dynamic"] is True
    assert "sym" in case.inputs[0]


def test_what_has_no_name_is_a_row_with_the_reason(db: str) -> None:
    @torch._dynamo.allow_in_graph
    def unnameable(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    fxminify.install(db, level="dynamo")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: unnameable(x), backend=failing)(torch.ones(3))
    [row] = captures(db)
    assert row.state is State.UNSUPPORTED
    assert "unnameable" in row.reason
    assert "unnameable" in row.graph_text


def test_an_index_that_cannot_be_written_is_only_a_warning(db: str, caplog: pytest.LogCaptureFixture) -> None:
    fxminify.install(str(Path(db).parent / "missing" / "folder" / "repro.db"))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="cannot lower sin"):
        torch.compile(model, backend=failing)(torch.ones(3))
    [warning] = [r.getMessage() for r in caplog.records if r.name == "fxminify"]
    assert warning.startswith("fxminify could not record a failure")


def test_where_a_capture_comes_from_names_no_directory(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=failing)(torch.ones(3))
    provenance = captures(db)[0].provenance
    assert provenance["torch"] == torch.__version__
    assert provenance["compile_id"] == "0/0"
    assert provenance["frame"].startswith("test_hook.py:")
    assert provenance["frame"].endswith(" model")
    assert provenance["test"] == "test_hook.py::test_where_a_capture_comes_from_names_no_directory"
    assert "/" not in "".join(str(v) for k, v in provenance.items() if k != "compile_id")


def test_ambient_state_is_captured(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed), torch.no_grad(), torch.autocast("cpu"):
        torch.compile(model, backend=failing)(torch.ones(3))
    with Index.open(db) as index:
        context = index.case(1).context
    assert context["grad"] is False
    assert context["autocast"] == {"cpu": {"dtype": "bfloat16"}}


# --- failures at run time ----------------------------------------------------------------------------------------


def test_a_runtime_failure_has_the_inputs_of_its_call(db: str) -> None:
    fxminify.install(db)
    compiled = torch.compile(model, backend=failing_at_run)
    for value in (1.0, 2.0, 3.0):
        compiled(torch.full((3,), value))
    with pytest.raises(Failed) as caught:
        compiled(torch.full((3,), 50.0))
    assert caught.value.__context__ is None
    [row] = captures(db)
    assert (row.kind, row.phase) == ("runtime_error", "forward")
    assert torch.equal(inputs(db)[0], torch.full((3,), 50.0))


def test_inputs_overwritten_before_the_failure_are_those_at_entry(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: torch.Tensor) -> Any:
            args[0].add_(1)
            raise Failed("too late")

        return run

    fxminify.install(db)
    with pytest.raises(Failed):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert torch.equal(inputs(db)[0], torch.ones(3))


def test_the_state_of_the_generator_is_that_of_the_call(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: torch.Tensor) -> Any:
            result = gm(*args)
            if args[0][0] > 1:
                raise Failed("too late")
            return result

        return run

    fxminify.install(db)
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend=backend)
    compiled(torch.ones(8))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with pytest.raises(Failed):
        compiled(torch.full((8,), 2.0))

    from fxminify.backends import ambient

    with Index.open(db) as index:
        case = index.case(1)
        blobs = index.blobs(case.storages)
        with ambient.applied(case.context, case.tensors, blobs):
            assert torch.equal(torch.rand(4), expected)


def test_a_symbolic_input_keeps_its_symbol_and_has_the_value_of_the_call(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if args[0] == 7:
                raise Failed("seven")
            return gm(*args)

        return run

    fxminify.install(db)
    compiled = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)
    compiled(torch.ones(3))
    with pytest.raises(Failed):
        compiled(torch.ones(7))
    with Index.open(db) as index:
        case = index.case(1)
    assert case.inputs[0]["sym"]["hint"] == 7
    assert case.inputs[0]["sym"]["expr"].startswith("s")
    assert case.tensors[0].shape == (7,)


def test_one_backend_only(db: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=failing)(torch.ones(3))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=fxminify.capture(failing, db=db))(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["failing"]


def test_one_backend_by_name_with_options(db: str) -> None:
    backend = fxminify.capture("inductor", db=db, check=True)
    compiled = torch.compile(lambda x: torch.any(x), backend=backend, options={"epilogue_fusion": False})
    compiled(torch.arange(100).to(torch.uint8))
    [row] = captures(db)
    assert (row.kind, row.backend) == ("divergence", "inductor")
    with Index.open(db) as index:
        assert index.case(1).backend["options"] == {"dict": [["epilogue_fusion", False]]}


def test_two_processes_capture_into_one_file(db: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, fxminify\n"
        "def broken(gm, inputs):\n    raise ValueError('no ' + sys.argv[2])\n"
        "fxminify.install(sys.argv[1])\n"
        "try:\n    torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2))\n"
        "except torch._dynamo.exc.BackendCompilerFailed:\n    pass\n"
    )
    words = ["cats", "dogs", "cats"]
    running = [subprocess.Popen([sys.executable, program, db, word], cwd=tmp_path) for word in words]
    assert [process.wait() for process in running] == [0, 0, 0]
    messages = {row.failure.message: row.occurrences for row in captures(db)}  # type: ignore[union-attr]
    assert messages == {"no cats": 2, "no dogs": 1}


def edits(gm: fx.GraphModule, returned: Callable[[fx.GraphModule], Any]) -> Any:
    for node in gm.graph.nodes:
        node.target = torch.linalg.cholesky if node.target is torch.sin else node.target
    gm.recompile()
    return returned(gm)


@pytest.mark.parametrize(
    ("returned", "origin"),
    [
        (lambda gm: gm, "<generated>"),
        (lambda gm: gm.forward, "<generated>"),
        (lambda gm: torch._C._nn.one_hot, ""),
    ],
)
def test_the_origin_is_where_the_backend_raised_and_not_who_called_it(db: str, returned: Any, origin: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        return edits(gm, returned)

    def outcome() -> Failure:
        torch._dynamo.reset()
        with pytest.raises((RuntimeError, TypeError)) as raised:
            torch.compile(model, backend=backend)(torch.zeros(2, 3))
        return failure_of(raised.value, Phase.FORWARD)

    with fxminify.capturing(db):
        observed = outcome()
    [row] = captures(db)
    assert row.failure is not None
    plain = outcome()
    assert signature(row.failure).origin == signature(plain).origin == signature(observed).origin == origin
    assert not any(frame.file in ("region.py", "hook.py", "seam.py") for frame in observed.frames)


def names_nodes(gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    found = next(n for n in gm.graph.nodes if n.target is torch.erf)

    def run(*args: Any) -> Any:
        raise Failed(f"node {found} with {list(found.users)}")

    return run() if len(gm.graph.nodes) < 4 else run


def test_nodes_that_a_message_names_are_kept_with_what_they_call(db: str) -> None:
    def many(x: torch.Tensor) -> torch.Tensor:
        first = torch.erf(x)
        after_all = first + 1
        return after_all.cos()

    fxminify.install(db)
    for function in (many, lambda x: torch.erf(x)):
        with pytest.raises(Exception, match="node"):
            torch.compile(function, backend=names_nodes)(torch.ones(2))
    late, early = (row.failure for row in captures(db))
    assert late is not None
    assert early is not None
    assert (late.detail, early.detail) == ({"nodes": {"first": "erf", "after_all": "add"}}, {})
    assert [signature(f).message for f in (late, early)] == ["node erf with [add]", "node erf with [output]"]
