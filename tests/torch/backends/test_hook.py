"""What the capture hook records of a failure while a graph is compiled."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hooked import Failed, edits_in_place, failing, inputs, model, names
from indexes import captures
from torch import fx
from torch._dynamo.repro.after_dynamo import WrapBackendDebug

import fxminify
from fxminify.store.index import Index, State


def test_the_exception_reaches_the_user_untouched(db: str) -> None:
    raised = Failed("cannot lower sin")
    raised.add_note("a note")
    cause = ValueError("why")

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
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
    assert row.failure is not None
    assert (row.failure.type.rpartition(".")[2], row.failure.message) == ("Failed", "cannot lower sin")


def test_what_the_program_tried_before_is_no_cause(db: str) -> None:
    def looks_up(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        try:
            raise KeyError("sin")
        except KeyError:
            raise Failed("no rule for sin")  # noqa: B904  the cause is implicit

    fxminify.install(db)
    try:
        torch.compile(model, backend=failing)(torch.ones(3))
    except torch._dynamo.exc.BackendCompilerFailed:
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(model, backend=looks_up)(torch.ones(3))
    causes = [row.failure.causes for row in captures(db) if row.failure is not None]
    assert causes == [(), (("KeyError", "'sin'"),)]


def test_functions_compiled_before_installing_are_seen(db: str) -> None:
    compiled = torch.compile(model, backend=failing)
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        compiled(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["failing"]


def test_the_graph_is_kept_as_it_was_received(db: str) -> None:
    """Row 7: a backend that edits the graph and its inputs, and then fails."""

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        edits_in_place(gm, example_inputs)
        example_inputs[0].zero_()
        raise Failed("now")

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert names(db)[0] == "torch.sin"
    assert torch.equal(inputs(db)[0], torch.ones(3))


def test_a_sub_graph_is_kept_as_it_was_received(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
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
        attrs = index.captures.case(1).graph.attrs
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
        return WrapBackendDebug(outer, "outer")(gm, example_inputs)

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=middle)(torch.ones(3))
    assert [row.backend for row in captures(db)] == ["outer"]


def test_asking_dynamo_for_something_else_is_no_failure(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        raise torch._dynamo.exc.SkipFrame("not for me")

    fxminify.install(db)
    x = torch.ones(3)
    assert torch.equal(torch.compile(model, backend=backend)(x), model(x))
    assert captures(db) == []


def test_a_keyboard_interrupt_is_no_failure(db: str) -> None:
    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        raise KeyboardInterrupt

    fxminify.install(db)
    with pytest.raises(KeyboardInterrupt):
        torch.compile(model, backend=backend)(torch.ones(3))
    assert captures(db) == []


def test_a_backend_that_returns_nothing_to_call_is_captured(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=lambda gm, inputs: 3)(torch.ones(3))
    messages = [row.failure and row.failure.message for row in captures(db)]
    assert messages == ["compiler_fn did not return callable"]


def test_options_and_dynamic_are_kept(db: str) -> None:
    """Row 6: the failure is triggered by an option."""

    def backend(gm: fx.GraphModule, example_inputs: list[Any], *, options: dict[str, Any]) -> Callable[..., Any]:
        if options["fuse"]:
            raise Failed("cannot fuse")
        return gm.forward

    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=backend, options={"fuse": True}, dynamic=True)(torch.ones(3))
    with Index.open(db) as index:
        case = index.captures.case(1)
    assert case.backend["options"] == {"dict": [["fuse", True]]}
    assert case.backend["dynamic"] is True
    assert "sym" in case.inputs[0]


def test_what_has_no_name_is_a_row_with_the_reason(db: str) -> None:
    def unnameable(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    torch._dynamo.allow_in_graph(unnameable)
    fxminify.install(db, level="dynamo")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: unnameable(x), backend=failing)(torch.ones(3))
    [row] = captures(db)
    assert row.state is State.UNSUPPORTED
    assert "unnameable" in row.reason
    assert "unnameable" in row.graph_text


def test_an_index_that_cannot_be_written_is_only_a_warning(db: str, own_log: pytest.LogCaptureFixture) -> None:
    fxminify.install(str(Path(db).parent / "missing" / "folder" / "repro.db"))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="cannot lower sin"):
        torch.compile(model, backend=failing)(torch.ones(3))
    [warning] = [r.getMessage() for r in own_log.records if r.name == "fxminify"]
    assert warning.startswith("fxminify could not record a failure")


def test_where_a_capture_comes_from_names_no_directory(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=failing)(torch.ones(3))
    provenance = captures(db)[0].provenance
    assert provenance["torch"] == torch.__version__
    assert provenance["compile_id"] == "0/0"
    assert provenance["frame"].startswith("hooked.py:")
    assert provenance["frame"].endswith(" model")
    assert provenance["test"] == "test_hook.py::test_where_a_capture_comes_from_names_no_directory"
    assert "/" not in "".join(str(v) for k, v in provenance.items() if k != "compile_id")


def test_ambient_state_is_captured(db: str) -> None:
    fxminify.install(db)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed), torch.no_grad(), torch.autocast("cpu"):
        torch.compile(model, backend=failing)(torch.ones(3))
    with Index.open(db) as index:
        context = index.captures.case(1).context
    assert context["grad"] is False
    assert context["autocast"] == {"cpu": {"dtype": "bfloat16"}}
