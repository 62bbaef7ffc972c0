"""A hunt in workers: each way to fail is a result, and nothing is run twice."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from captured import spec

from fxminify.minifier.hunting.findings import FindingStore
from fxminify.minifier.hunting.hunt import hunt, listed
from fxminify.minifier.hunting.log import ProgramLog
from fxminify.minifier.hunting.programs import CallOutcome, Program, ProgramResult, Selection
from fxminify.minifier.sandbox.pool import Pool
from fxminify.store.errors import StoreError
from fxminify.store.index import Index

pytest.importorskip("expecttest", reason="torch's operator database imports it")
SHARED = str(pathlib.Path(__file__).parents[2] / "shared")
RELU, SIN = (Program("ops", name, "float32", calls=2) for name in ("nn.functional.relu", "sin"))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(spec("healthy").to_json(), path=[SHARED], memory=2048 << 20) as pool:
        yield pool


def results(pool: Pool, backend: str, log: ProgramLog, timeout: float = 100.0) -> list[ProgramResult]:
    hunt(pool, spec(backend).to_json(), [RELU, SIN], log, timeout=timeout)
    return [log.results[RELU], log.results[SIN]]


def test_programs_are_listed_in_a_worker(pool: Pool) -> None:
    wanted = Selection(("sin", "add"), ("float32", "int64"), dynamic=(False,))
    assert [program.text() for program in listed(pool, "ops", wanted)] == [
        "ops add float32 forward static", "ops add float32 gradient static", "ops add int64 forward static",
        "ops sin float32 forward static", "ops sin float32 gradient static", "ops sin int64 forward static",
    ]  # fmt: skip


def test_a_device_that_is_not_here_is_refused_before_anything_runs(pool: Pool) -> None:
    with pytest.raises(StoreError, match="there is no device cuda:99 here"):
        listed(pool, "ops", Selection(("sin",), device="cuda:99"))


@pytest.mark.parametrize(
    ("backend", "kind", "headline"),
    [
        ("segfaults", "crash", "the process died of SIGSEGV"),
        ("aborts_at_run", "crash", "the process died of SIGFPE"),
        ("cannot_lower", "compile_error", "NotImplementedError: cannot lower relu"),
        ("exits", "crash", "exit 4: the process left with exit code 4"),
        ("fails_at_run", "runtime_error", "RuntimeError: no kernel for relu of"),
        ("diverges", "divergence", "output 0 is off by 1"),
    ],
)
def test_a_failure_is_a_result_and_the_hunt_goes_on(
    pool: Pool, tmp_path: pathlib.Path, backend: str, kind: str, headline: str
) -> None:
    failed, fine = results(pool, backend, ProgramLog(tmp_path / "log"))
    assert failed.problem == ""
    assert [(call.number, call.outcome) for call in failed.calls] == [(0, CallOutcome.FAILS), (1, CallOutcome.FAILS)]
    for call in failed.calls:
        (finding,) = call.findings
        assert finding.kind == kind
        assert finding.headline.startswith(headline)
    if backend != "cannot_lower":  # nor sin
        assert [call.outcome for call in fine.calls] == [CallOutcome.OK]


@pytest.mark.parametrize(("backend", "phase"), [("segfaults", "compile"), ("diverges", "forward")])
def test_a_failure_is_stored_once_with_its_graph_and_then_counted(
    pool: Pool, tmp_path: pathlib.Path, backend: str, phase: str
) -> None:
    log, db = ProgramLog(tmp_path / "log", {"backend": backend}), str(tmp_path / "repro.db")
    store = FindingStore(db, log.id)
    hunt(pool, spec(backend).to_json(), [SIN], log, keep=store.keep)
    assert not (tmp_path / "repro.db").exists(), "nothing failed"
    hunt(pool, spec(backend).to_json(), [RELU], log, keep=store.keep)
    store.close()
    assert [call.findings[0].capture for call in log.results[RELU].calls] == [1, 1]
    with Index.open(db, readonly=True) as index:
        (row,) = index.captures.find()
        case = index.captures.case(1)
    assert (row.backend, row.phase, row.state, row.occurrences) == (backend, phase, "pending", 2)
    assert row.provenance["program"] == "hunt ops nn.functional.relu float32 forward static"
    calls = [node.target for node in case.graph.nodes if node.op == "call_function"]
    assert calls == [{"fn": "torch.nn.functional.relu"}]
    assert row.signature == log.results[RELU].calls[0].findings[0].signature


@pytest.mark.slow
def test_a_hang_is_a_result(pool: Pool, tmp_path: pathlib.Path) -> None:
    failed, fine = results(pool, "hangs", ProgramLog(tmp_path / "log"), timeout=8.0)
    assert [call.findings[0].kind for call in failed.calls] == ["hang"]
    assert failed.problem == "later calls were not made after a hang"
    assert [call.outcome for call in fine.calls] == [CallOutcome.OK]


def test_a_hunt_goes_on_where_it_was(pool: Pool, tmp_path: pathlib.Path) -> None:
    log = ProgramLog(tmp_path / "log")
    hunt(pool, spec("diverges").to_json(), [RELU], log)
    log.close()
    with (tmp_path / "log").open("a") as file:
        file.write('{"program": {"suite": "ops", "na')  # killed in the middle of a line
    done: list[Program] = []
    again = ProgramLog(tmp_path / "log")
    hunt(pool, spec("healthy").to_json(), [RELU, SIN], again, done=lambda result: done.append(result.program))
    assert done == [SIN]
    assert again.results[RELU].calls[0].outcome is CallOutcome.FAILS
    again.close()
    assert ProgramLog(tmp_path / "log").results == again.results
