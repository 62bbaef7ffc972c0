"""Capture is harmless wherever torch.compile is used: each situation runs without us and with us, failing and not.

What the program sees must be the same, bit by bit or exception by exception; what was captured is told beside it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config
from hooked import Failed
from indexes import captures
from torch import fx
from torch.multiprocessing.spawn import ProcessRaisedException, start_processes

import fxminify
from fxminify.backends.capture import hook
from fxminify.store.index import Index

Backend = Callable[..., Any]


def healthy(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda *args: gm(*args)


def refuses_sin(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    if any(n.target is torch.sin for n in gm.graph.nodes):
        raise Failed("cannot lower sin")
    return gm.forward


def late(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Fails when sin is computed."""

    def run(*args: Any) -> Any:
        if any(n.target is torch.sin for n in gm.graph.nodes):
            raise Failed("no kernel for sin")
        return gm(*args)

    return run


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2 + torch.rand_like(x)


def inputs(rows: int = 3) -> torch.Tensor:
    return torch.arange(rows * 4.0).reshape(rows, 4)


# --- the situations ------------------------------------------------------------------------------------------------


def force_eager(backend: Backend) -> Any:
    with torch.compiler.set_stance("force_eager"):
        return torch.compile(model, backend=backend)(inputs())


def fail_on_recompile(backend: Backend) -> Any:
    compiled = torch.compile(model, backend=backend, dynamic=False)
    first = compiled(inputs())
    with torch.compiler.set_stance("fail_on_recompile"):
        return [first, compiled(inputs()), compiled(inputs(5))]


def eager_then_compile(backend: Backend) -> Any:
    with torch.compiler.set_stance("eager_then_compile"):
        compiled = torch.compile(model, backend=backend)
        return [compiled(inputs()), compiled(inputs(5)), compiled(inputs(6))]


def suppressed(backend: Backend) -> Any:
    with torch._dynamo.config.patch(suppress_errors=True):
        return torch.compile(model, backend=backend)(inputs())


def full_graph(backend: Backend) -> Any:
    return torch.compile(model, backend=backend, fullgraph=True)(inputs())


def no_full_graph(backend: Backend) -> Any:
    """The break is Dynamo's error, whatever the backend thinks of the graph."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return torch.sin(x)

    return torch.compile(broken, backend=backend, fullgraph=True)(inputs())


def graph_breaks(backend: Backend) -> Any:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = torch.cos(x) + 1
        torch._dynamo.graph_break()
        x = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.exp(x) * torch.rand(4)

    return torch.compile(broken, backend=backend)(inputs())


def nested(backend: Backend) -> Any:
    inner = torch.compile(model, backend=backend)

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(torch.cos(x)) + 1

    return torch.compile(outer, backend=backend)(inputs())


def disabled_in_between(backend: Backend) -> Any:
    plain = torch.compiler.disable(lambda x: torch.compile(model, backend=backend)(x))
    return torch.compile(lambda x: plain(x + 1) * 2, backend=backend)(inputs())


def reset_in_between(backend: Backend) -> Any:
    compiled = torch.compile(model, backend=backend)
    results: list[Any] = []
    for _ in range(2):
        try:
            results.append(compiled(inputs()))
        except Exception as exc:  # noqa: BLE001  it is part of the outcome
            results.append(str(exc))
        torch._dynamo.reset()
    return results


def threads(backend: Backend) -> Any:
    """No random numbers: the threads share one generator."""
    results: list[Any] = [None] * 4

    def work(index: int) -> None:
        following = (torch.cos, torch.exp, torch.abs, torch.neg)[index]
        try:
            results[index] = torch.compile(lambda x: following(torch.sin(x)), backend=backend)(inputs())
        except Exception as exc:  # noqa: BLE001  it is part of the outcome
            results[index] = str(exc)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


class Items(torch.utils.data.Dataset[Any]):
    """Its items are computed by a compiled function, in the workers of a loader."""

    def __init__(self, backend: Backend) -> None:
        self.compiled = torch.compile(lambda x: torch.sin(x) * 3, backend=backend)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.compiled(torch.full((2,), float(index)))


def loader(backend: Backend) -> Any:
    return list(torch.utils.data.DataLoader(Items(backend), num_workers=2, multiprocessing_context="fork"))


def _rank(index: int, backend: Backend, store: str, out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=index, world_size=2)
    torch.manual_seed(0)
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    try:
        x = torch.sin(inputs() + index)
        result = torch.compile(lambda x: torch.sin(wrapped(x)), backend=backend)(x)
        result.sum().backward()
        gradients = [p.grad.tolist() for p in wrapped.parameters() if p.grad is not None]
        Path(f"{out}.{index}").write_text(repr([result.tolist(), gradients]))
    finally:
        torch.distributed.destroy_process_group()


def ranks(folder: Path, backend: Backend) -> Any:
    """Two ranks of a distributed model on gloo."""
    number = len(list(folder.iterdir()))
    out = folder / f"out{number}"
    try:
        start_processes(_rank, args=(backend, str(folder / f"store{number}"), str(out)), nprocs=2, start_method="fork")
    except ProcessRaisedException as exc:
        return _last_line(exc)
    return [Path(f"{out}.{index}").read_text() for index in range(2)]


# --- without us and with us ----------------------------------------------------------------------------------------


def outcome(program: Callable[[], Any]) -> Any:
    torch._dynamo.reset()
    torch.manual_seed(7)
    try:
        result = program()
    except Exception as exc:  # noqa: BLE001  the outcome of the program, whatever it is
        inner = getattr(exc, "inner_exception", None)
        return type(exc), _last_line(exc), type(inner), torch.get_rng_state().tolist()
    return repr(_bits(result)), torch.get_rng_state().tolist()


def _last_line(exc: BaseException) -> str:
    """Of the message, which another process may have made of a traceback: there our frames are seen."""
    lines = [line for line in str(exc).splitlines() if line and not line.startswith(("Set TORCHDYNAMO", "This exc"))]
    return lines[-1] if lines else ""


def _bits(result: Any) -> Any:
    if isinstance(result, list):
        return [_bits(r) for r in result]
    return result.tolist() if isinstance(result, torch.Tensor) else result


#: Situation, and how often a failure at compile time and at run time is seen, in how many captures.
SITUATIONS: list[tuple[Callable[[Backend], Any], list[int], list[int]]] = [
    (force_eager, [], []),
    (fail_on_recompile, [1], [1]),
    (eager_then_compile, [1], [1]),
    (suppressed, [1], [1]),
    (full_graph, [1], [1]),
    (no_full_graph, [], []),
    (graph_breaks, [1], [1]),
    (nested, [1], [1]),
    (disabled_in_between, [1], [1]),
    (reset_in_between, [2], [2]),
    (threads, [1, 1, 1, 1], [1, 1, 1, 1]),
]


@pytest.mark.parametrize("check", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unchecked", "checked"])
@pytest.mark.parametrize(
    ("situation", "refused", "late_"),
    [
        *(pytest.param(*row, id=row[0].__name__) for row in SITUATIONS),
        pytest.param(loader, [2], [2], id="loader", marks=pytest.mark.slow),
    ],
)
def test_what_the_program_sees_is_the_same(
    db: str, situation: Callable[[Backend], Any], refused: list[int], late_: list[int], check: bool
) -> None:
    for backend, seen in ((healthy, []), (refuses_sin, refused), (late, late_)):
        program = functools.partial(situation, backend)
        plain = outcome(program)
        place = f"{db}.{backend.__name__}"
        with fxminify.capturing(place, check=check):
            captured = outcome(program)
        assert captured == plain
        counts = [row.occurrences for row in captures(place)]
        # A loader ends its second worker when the first one fails, whether that had failed too or not.
        assert counts == seen or (situation is loader and counts == [1]), backend.__name__


def test_ranks_of_a_distributed_model_see_the_same(db: str, tmp_path: Path) -> None:
    """Both ranks write into one file."""
    (tmp_path / "ranks").mkdir()
    for backend in (healthy, refuses_sin):
        plain = ranks(tmp_path / "ranks", backend)
        with fxminify.capturing(db):
            captured = ranks(tmp_path / "ranks", backend)
        assert captured == plain
    assert "cannot lower sin" in plain
    rows = captures(db)
    assert [row.kind for row in rows] == ["compile_error"]
    assert rows[0].occurrences in (1, 2)  # the rank that fails first may be the end of the other


class Panic(BaseException):
    """As pyo3 raises for a panic in Rust."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, asyncio.CancelledError, SystemExit, Panic])
@pytest.mark.parametrize("place", ["compile", "forward", "backward"])
def test_an_interrupt_is_no_failure_but_an_exit_and_a_panic_are(
    db: str, place: str, raised: type[BaseException]
) -> None:
    class Interrupting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise raised(3)

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if place == "forward":
                raise raised(3)
            return tuple(Interrupting.apply(r) for r in gm(*args))  # type: ignore[no-untyped-call]

        if place == "compile":
            raise raised(3)
        return run

    fxminify.install(db)
    with pytest.raises(raised) as caught:
        torch.compile(lambda x: torch.sin(x), backend=backend)(inputs().requires_grad_()).sum().backward()
    assert caught.value.args == (3,)
    kind = "compile_error" if place == "compile" else "runtime_error"
    seen = {SystemExit: [("crash", place, "exit 3")], Panic: [(kind, place, f"{__name__}.Panic")]}.get(raised, [])
    assert [(row.kind, row.phase, row.failure.type) for row in captures(db) if row.failure] == seen


def test_the_exit_of_a_signal_handler_is_no_failure(db: str) -> None:
    def leave(number: int, frame: Any) -> None:
        sys.exit(1)

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        signal.raise_signal(signal.SIGUSR1)
        return gm

    fxminify.install(db)
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(SystemExit):
            torch.compile(torch.sin, backend=backend)(inputs())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert captures(db) == []


def test_a_program_that_hides_what_we_stand_on_goes_on(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fxminify.backends.capture.compiled_graph", None)
    hook._usable.cache_clear()
    fxminify.install(db)
    try:
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
    finally:
        hook._usable.cache_clear()


def test_nothing_of_ours_reaches_the_logging_handlers_of_the_program(db: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="sqlalchemy.engine")  # the program's own statements are of interest
    with caplog.at_level(logging.DEBUG), fxminify.capturing(db), pytest.raises(Exception, match="cannot lower sin"):
        graph_breaks(refuses_sin)
    assert len(captures(db)) == 1
    assert {record.name for record in caplog.records if not record.name.startswith("torch")} == set()
    logging.getLogger("alembic").warning("a line of the program's own migrations")
    assert [record.name for record in caplog.records if record.name.startswith("alembic")] == ["alembic"]


def test_a_captured_graph_is_the_one_between_two_breaks(db: str) -> None:
    with fxminify.capturing(db), pytest.raises(Exception, match="cannot lower sin"):
        graph_breaks(refuses_sin)
    with Index.open(db) as index:
        assert [n.target for n in index.captures.case(1).graph.compute] == [{"fn": "torch.sin"}]


def test_a_graph_that_talks_to_other_ranks_runs_no_more_often_when_checked(
    db: str, tmp_path: Path, own_log: pytest.LogCaptureFixture
) -> None:
    """One collective more on one rank, and all of them wait for ever."""
    ran = []

    def counting(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            ran.append(len(args))
            return gm(*args)

        return run

    def summed(x: torch.Tensor) -> torch.Tensor:
        x = torch.sin(x)
        torch.distributed.all_reduce(x)
        return x + 1

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with fxminify.capturing(db, check=True):
            compiled = torch.compile(summed, backend=counting)
            result = compiled(inputs())
    finally:
        torch.distributed.destroy_process_group()
    assert torch.equal(result, torch.sin(inputs()) + 1)
    assert ran == [1]
    assert [r.getMessage() for r in own_log.records if r.name == "fxminify"] == [
        "fxminify could not check a compiled graph against eager: node 'tensor' talks to other processes"
    ]
