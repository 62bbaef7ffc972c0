"""A backend that is not installed is blocked, and none that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Never

import pytest
import torch
from captured import capture
from indexes import captures

import fxminify
from fxminify.backends.capture.ending import NOTED
from fxminify.backends.provenance.absent import absent, is_absent
from fxminify.backends.provenance.spec import BackendSpec
from fxminify.minifier.oracle.observation import Seen
from fxminify.minifier.oracle.observe import observe
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, State


def no_module() -> Never:
    import no_such_compiler.runtime  # type: ignore[import-not-found]

    raise AssertionError(no_such_compiler)


def asks_for_it() -> Never:
    try:
        no_module()
    except ImportError as exc:
        raise ImportError("acme needs its runtime") from exc


def wraps_it() -> Never:
    try:
        no_module()
    except ImportError as exc:
        raise RuntimeError("acme is broken") from exc


def says_it() -> Never:
    raise ImportError("Please install acme to use the acme backend.")


def no_library() -> Never:
    raise OSError("libacme.so.7: cannot open shared object file: No such file or directory")


def no_name() -> Never:
    from torch import no_such_function  # type: ignore[attr-defined]

    raise AssertionError(no_such_function)


def no_part() -> Never:
    import torch.no_such_part  # type: ignore[import-not-found]

    raise AssertionError(torch)


def fails_without_what_is_optional() -> Never:
    try:
        no_module()
    except ImportError:
        raise RuntimeError("no kernel for sin")  # noqa: B904  the other way to go on fails


def no_file_of_its_own() -> Never:
    raise OSError("/tmp/acme/kernel_1.so: cannot open shared object file: No such file or directory")


ABSENT = {
    no_module: "acme needs the module no_such_compiler, which is not installed here (ModuleNotFoundError: No module",
    asks_for_it: "acme needs the module no_such_compiler, which is not installed here (ImportError: acme needs its",
    wraps_it: "acme needs the module no_such_compiler, which is not installed here (RuntimeError: acme is broken)",
    says_it: "acme needs what is not installed here (ImportError: Please install acme to use the acme backend.)",
    no_library: "acme needs the shared library libacme.so.7, which is not on this system (OSError: libacme.so.7:",
}
FAILS = (no_name, no_part, fails_without_what_is_optional, no_file_of_its_own)


def raised(function: Callable[[], Never]) -> Exception:
    with pytest.raises((ImportError, RuntimeError, OSError)) as caught:
        function()
    return caught.value


@pytest.mark.parametrize("function", ABSENT)
def test_what_is_missing_is_named(function: Callable[[], Never]) -> None:
    assert absent(raised(function), "acme").startswith(f"the backend {ABSENT[function]}")


@pytest.mark.parametrize("function", FAILS)
def test_other_failures_of_imports_are_the_backends(function: Callable[[], Never]) -> None:
    assert absent(raised(function), "acme") == ""


def test_the_command_that_installs_a_backend_is_named_where_it_is_known() -> None:
    assert absent(raised(no_module), "tvm").endswith("; install it: pip install apache-tvm")


def made(function: Callable[[], Never]) -> Callable[..., Any]:
    def acme(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        function()

    return acme


@pytest.mark.parametrize("function", [asks_for_it, no_library, no_name])
def test_its_row_is_blocked_and_no_worker_takes_it_up(db: str, function: Callable[[], Never]) -> None:
    NOTED.clear()
    with fxminify.capturing(db), contextlib.suppress(Exception):
        torch.compile(torch.sin, backend=made(function))(torch.ones(2))
    (row,) = captures(db)
    with Index.open(db, readonly=True) as index:
        known = len(index.tasks.newest(limit=9)), len(index.events.after(0, limit=9))
    if function is no_name:
        assert (row.state, known, list(NOTED)) == (State.PENDING, (1, 1), ["captured"])
        return
    assert (row.state, known, list(NOTED)) == (State.BLOCKED, (0, 0), ["absent"])
    assert row.failure is not None
    assert row.reason == row.failure.absent
    assert row.reason.startswith(f"the backend {ABSENT[function]}")


def test_a_chain_goes_on_without_a_row(db: str) -> None:
    with fxminify.capturing(db):
        compiled = torch.compile(torch.sin, backend=fxminify.chain(made(asks_for_it), "eager"))
        assert torch.equal(compiled(torch.ones(2)), torch.sin(torch.ones(2)))
    assert captures(db) == []


@pytest.mark.parametrize("fault", ["compile_error", "runtime_error"])
def test_a_chain_takes_over_from_a_backend_that_fails_on_purpose_without_a_row(db: str, fault: str) -> None:
    chain = fxminify.chain("fxminify_faulty", "eager")
    with fxminify.capturing(db):
        compiled = torch.compile(torch.relu, backend=chain, options={"fault": fault, "op": "relu"})
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2))
    assert captures(db) == []


def test_a_worker_says_that_it_is_not_installed() -> None:
    case, blobs = capture(torch.sin, (torch.ones(2),), BackendSpec("acme", "registered", "acme"))
    for entry in ("direct", "compile"):
        seen = observe(case, blobs, entry, backend=made(asks_for_it))
        assert (seen.seen, seen.absent.startswith("the backend acme needs the module")) == (Seen.INVALID, True)


@pytest.mark.parametrize(
    ("type", "message", "causes", "missing"),
    [
        ("ImportError", "install it", (("ModuleNotFoundError", "No module named 'no_such_compiler.x'"),),
         "no_such_compiler.x"),
        ("ModuleNotFoundError", "No module named 'torch.no_such_part'", (), ""),
        ("RuntimeError", "No module named 'no_such_compiler'", (), ""),
    ],
)  # fmt: skip
def test_a_stored_failure_tells_whether_its_module_is_missing_here_as_well(
    type: str, message: str, causes: Any, missing: str
) -> None:
    stored = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, type, message, causes)
    assert is_absent(stored) == missing
