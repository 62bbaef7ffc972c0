"""A hunt without workers: order, budget, deaths of workers, cells, bugs, and expected failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from reading import ROOT, blocks

from fxminify.backends.capture.journal import Journal
from fxminify.minifier.hunting import comparison, expected
from fxminify.minifier.hunting import log as results_file
from fxminify.minifier.hunting.campaign import backend_spec, log_of
from fxminify.minifier.hunting.cells import CellState, HuntResult, bugs, cells
from fxminify.minifier.hunting.hunt import hunt
from fxminify.minifier.hunting.junit import junit
from fxminify.minifier.hunting.log import ProgramLog
from fxminify.minifier.hunting.programs import CallOutcome, CallResult, Finding, Program, ProgramResult
from fxminify.minifier.sandbox.pool import Ended, Pool, Reply
from fxminify.store.errors import StoreError

OK, FAILS, REFUSED, UNCHECKED = CallOutcome.OK, CallOutcome.FAILS, CallOutcome.REFUSED, CallOutcome.UNCHECKED
PROGRAMS = [Program("ops", name, "float32") for name in ("abs", "add", "cos", "sin")]
RAISES = Finding("compile_error", "compile", "RuntimeError: no kernel", "v3:aaaaaaaaaaaa", 1)
DIVERGES = Finding("divergence", "forward", "output 0 is off by 1", "v3:bbbbbbbbbbbb", 2)


def result(program: Program, *findings: Finding) -> ProgramResult:
    call = CallResult(0, FAILS if findings else OK, findings[0].headline if findings else "", findings)
    return ProgramResult(program, (call,))


class Answers:
    """A pool without processes. ``answer`` gives the reply to each argument, or None for one that never comes."""

    def __init__(self, root: Path, answer: Callable[[dict[str, Any]], Reply | None], jobs: int = 2) -> None:
        self.jobs, self.scratch, self._answer = jobs, SimpleNamespace(root=root), answer
        self.asked: list[tuple[str, list[int]]] = []
        self._waiting: list[tuple[Future[Reply], Reply]] = []

    def submit(self, task: str, argument: dict[str, Any], *, timeout: float) -> Future[Reply]:
        self.asked.append((argument["program"]["name"], argument["without"]))
        future: Future[Reply] = Future()
        if (reply := self._answer(argument)) is not None:
            self._waiting.append((future, reply))
        if len(self._waiting) == self.jobs:  # the last one first
            for other, its in reversed(self._waiting):
                other.set_result(its)
            self._waiting = []
        return future

    def hunt(self, log: ProgramLog, **options: Any) -> None:
        hunt(cast("Pool", self), {}, PROGRAMS, log, **options)


def done(argument: dict[str, Any]) -> Reply:
    program = Program(**argument["program"])
    return Reply(Ended.DONE, "call 0", result(program).to_json())


def test_results_are_handed_on_in_the_order_of_the_programs(tmp_path: Path) -> None:
    seen: list[str] = []
    log = ProgramLog(tmp_path / "log")
    Answers(tmp_path, done, jobs=2).hunt(log, done=lambda one: seen.append(one.program.name))
    assert seen == ["abs", "add", "cos", "sin"]
    assert [json.loads(line)["program"]["name"] for line in (tmp_path / "log").read_text().splitlines()] == seen
    assert list((tmp_path / "programs").iterdir()) == []


def test_what_finished_before_an_interruption_is_kept(tmp_path: Path) -> None:
    log = ProgramLog(tmp_path / "log")

    def answer(argument: dict[str, Any]) -> Reply | None:
        return None if argument["program"]["name"] == "abs" else done(argument)

    began = time.monotonic()
    Answers(tmp_path, answer, jobs=1).hunt(log, until=began + 0.5)
    assert 0.5 <= time.monotonic() - began < 5
    assert [program.name for program in log.results] == ["add", "cos", "sin"]
    again = Answers(tmp_path, done, jobs=1)
    again.hunt(log)
    assert [name for name, _ in again.asked] == ["abs"]


def died(phase: str, ended: Ended = Ended.CRASH) -> Reply:
    return Reply(ended, phase, signal=11, pid=7)


@pytest.mark.parametrize(
    ("phases", "outcomes"),
    [
        (["call 0"], {0: UNCHECKED, 1: OK}),  # nothing was in flight
        (["eager 1"], {0: OK, 1: REFUSED}),
        (["eager 2 every"], {0: OK, 1: OK}),
    ],
)
def test_a_death_is_a_result_and_the_other_calls_are_made(
    tmp_path: Path, phases: list[str], outcomes: dict[int, CallOutcome]
) -> None:
    left = list(phases)

    def answer(argument: dict[str, Any]) -> Reply:
        program = Program(**argument["program"])
        if program.name == "abs" and left:
            return died(left.pop())
        calls = tuple(CallResult(number, OK) for number in (0, 1) if number not in argument["without"])
        return Reply(Ended.DONE, result=ProgramResult(program, calls).to_json())

    log = ProgramLog(tmp_path / "log")
    Answers(tmp_path, answer, jobs=1).hunt(log)
    assert {call.number: call.outcome for call in log.results[PROGRAMS[0]].calls} == outcomes


def test_a_crash_of_all_calls_together_is_kept_if_each_by_itself_passes(tmp_path: Path) -> None:
    def answer(argument: dict[str, Any]) -> Reply:
        program = Program(**argument["program"])
        if program.name == "abs" and not argument["without"]:
            journal = Journal(argument["folder"])
            (journal.directory / "blobs").mkdir()
            (journal.directory / "7").mkdir()
            (journal.directory / "7" / "marks").write_bytes(b"compile 0 1".ljust(64))
            return died("call 2 every")
        calls = tuple(CallResult(number, OK) for number in (0, 1))
        return Reply(Ended.DONE, result=ProgramResult(program, calls).to_json())

    log = ProgramLog(tmp_path / "log")
    Answers(tmp_path, answer, jobs=1).hunt(log)
    calls = log.results[PROGRAMS[0]].calls
    assert [(call.number, call.outcome) for call in calls] == [(0, OK), (1, OK), (2, FAILS)]
    assert calls[2].findings[0].headline == "the process died of SIGSEGV"


def test_a_log_of_another_hunt_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = ProgramLog(path, {"backend": "inductor", "torch": "2.13"})
    log.add(result(PROGRAMS[0]))
    with pytest.raises(StoreError, match=r"another hunt writes to .*; name another file: --log FILE"):
        ProgramLog(path)
    log.close()
    again = ProgramLog(path, {"backend": "inductor", "torch": "2.13"})
    assert (again.id, list(again.results)) == (log.id, [PROGRAMS[0]])
    again.close()
    with pytest.raises(StoreError, match=r"has a hunt with torch 2\.13 \(now 2\.14\)\. Start it anew with --again"):
        ProgramLog(path, {"backend": "inductor", "torch": "2.14"})
    path.write_text("something else\n")
    with pytest.raises(StoreError, match="is not the file of a hunt"):
        ProgramLog(path, {"backend": "inductor"})


def test_each_cell_has_one_state() -> None:
    def one(*outcomes: CallOutcome, problem: str = "") -> CellState:
        calls = tuple(CallResult(n, outcome, str(outcome)) for n, outcome in enumerate(outcomes))
        (cell,) = cells(PROGRAMS[:1], {PROGRAMS[0]: ProgramResult(PROGRAMS[0], calls, problem)})
        return cell.state

    assert one(OK, REFUSED) is CellState.OK
    assert one(OK, FAILS) is CellState.FAILS
    assert one(FAILS, problem="its worker died too often") is CellState.FAILS
    assert one(REFUSED, REFUSED) is CellState.REFUSED
    assert one(OK, UNCHECKED) is CellState.UNJUDGED
    assert one(CallOutcome.UNTRACED) is CellState.UNJUDGED
    assert one(OK, problem="later calls were not made after a hang") is CellState.UNJUDGED
    assert one() is CellState.UNJUDGED
    assert [cell.state for cell in cells(PROGRAMS[:1], {})] == [CellState.UNTRIED]


def test_an_exception_is_one_bug_and_a_divergence_is_one_of_each_operator() -> None:
    results = [result(program, RAISES, DIVERGES) for program in PROGRAMS[:2]]
    found = bugs(results)
    assert [(bug.finding.kind, bug.names) for bug in found] == [
        ("compile_error", ("abs", "add")), ("divergence", ("abs",)), ("divergence", ("add",)),
    ]  # fmt: skip


def test_expected_failures_are_written_read_and_recognized(tmp_path: Path) -> None:
    results = [result(PROGRAMS[0], RAISES), result(PROGRAMS[1]), result(PROGRAMS[2], DIVERGES)]
    path = tmp_path / "known.toml"
    path.write_text(expected.written(results))
    entries = expected.read(path)
    assert [entry.program for entry in entries] == ["ops abs float32 forward static", "ops cos float32 forward static"]
    assert expected.unexpected(results, entries) == ()
    assert expected.unexpected(results, entries[1:]) == (PROGRAMS[0],)
    assert expected.unexpected([result(PROGRAMS[1], RAISES)], entries) == (PROGRAMS[1],), "of another operator"
    assert expected.unexpected([result(PROGRAMS[0], DIVERGES)], entries) == (PROGRAMS[0],), "of another signature"
    passing = [result(PROGRAMS[0]), result(PROGRAMS[2], DIVERGES)]
    assert expected.unseen(passing, entries) == entries[:1]
    assert expected.unseen([result(PROGRAMS[3])], entries) == (), "nothing that it is about was tried"


def test_an_expected_failure_has_a_pattern_or_a_signature(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[[failure]]\nprogram = "ops c* float32 *"\n[[failure]]\nsignature = "v3:aaaaaaaaaaaa"\n')
    entries = expected.read(path)
    failing = [result(PROGRAMS[2], DIVERGES), result(PROGRAMS[3], RAISES), result(PROGRAMS[0], DIVERGES)]
    assert expected.unexpected(failing, entries) == (PROGRAMS[0],)


def test_the_expected_failure_of_the_document_agrees(tmp_path: Path) -> None:
    (toml,) = [block for block in blocks(ROOT / "docs" / "hunt.md") if block.language == "toml"]
    path = tmp_path / "known.toml"
    path.write_text(toml.text)
    (entry,) = expected.read(path)
    assert entry.agrees(Program("ops", "linalg.qr", "float16", True), RAISES)
    assert not entry.agrees(Program("ops", "linalg.qr", "float32", True), RAISES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[failure]]\nreason = 'x'", "failure 1 of .* has neither a program nor a signature"),
        ("[[failure]]\nprogramm = 'x'", "failure 1 of .* has 'programm'; known are program, reason, signature"),
        ("[[failure]]\nprogram = 3", "failure 1 of .* cannot be read: Expected `str`, got `int`"),
        ("failure = [3]", "failure 1 of .* has 'not a table'"),
        ("[known]", r"has something else than entries \[\[failure\]\]"),
        ("[", "is not TOML"),
    ],
)
def test_a_bad_file_of_expected_failures_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(StoreError, match=message):
        expected.read(path)


def test_a_backend_is_a_name_or_a_place() -> None:
    assert backend_spec("acme.compiler:Backend.compile").target == {"import": ["acme.compiler", "Backend.compile"]}
    assert (backend_spec("inductor").how, backend_spec("inductor").module) == ("registered", "")
    assert backend_spec("fxminify_ort").entry_point == "fxminify.backends.shipped.onnxrt:compile_fx"
    assert backend_spec("acme", "acme_backends").module == "acme_backends"


def test_the_results_are_beside_the_index() -> None:
    assert log_of("runs/repro.db", "acme:compile") == Path("runs/repro.acme_compile.hunt.jsonl")
    assert log_of("postgresql://server/repro", "inductor") == Path("inductor.hunt.jsonl")


def test_a_hunt_is_compared_with_an_earlier_one(tmp_path: Path) -> None:
    earlier = ProgramLog(tmp_path / "old.jsonl", {"backend": "inductor", "torch": "2.12.0"})
    for one in (result(PROGRAMS[0]), result(PROGRAMS[1], RAISES), result(PROGRAMS[2], RAISES)):
        earlier.add(one)
    earlier.close()
    old = results_file.read(tmp_path / "old.jsonl")
    now = [result(PROGRAMS[0], DIVERGES), result(PROGRAMS[1]), result(PROGRAMS[2], DIVERGES), result(PROGRAMS[3])]
    found = comparison.compared(old, {one.program: one for one in now})
    assert json.loads(json.dumps(found.to_json())) == {
        "earlier": {"backend": "inductor", "torch": "2.12.0"},
        "tried": 3,
        "broken": ["ops abs float32 forward static"],
        "mended": ["ops add float32 forward static"],
        "otherwise": ["ops cos float32 forward static"],
    }
    known = comparison.expected(old)
    assert expected.unexpected(now, known) == (PROGRAMS[0], PROGRAMS[2])
    assert expected.unexpected([result(PROGRAMS[1], RAISES)], known) == ()


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", '{"hunt": {"backend": "inductor"}}\n', "\x00\n"])
def test_a_file_that_no_hunt_wrote_is_not_compared(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)
    with pytest.raises(StoreError, match="is not the file of a hunt: minify hunt BACKEND --log FILE writes one"):
        results_file.read(tmp_path / "other")
    with pytest.raises(StoreError, match=r"cannot read .*: No such file"):
        results_file.read(tmp_path / "missing")


def test_junit_has_a_failure_for_each_program_that_is_not_expected() -> None:
    refused = ProgramResult(PROGRAMS[2], (CallResult(0, REFUSED, "eager raises\x00"),))
    results = {one.program: one for one in (result(PROGRAMS[0], RAISES), result(PROGRAMS[1], DIVERGES), refused)}
    made = HuntResult("mine", cells(PROGRAMS, results), (), new=(PROGRAMS[0].text(),))
    root = ElementTree.fromstring(junit(made, results, "repro.db"))
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    seen = [(test.get("name"), *[(part.tag, part.get("type")) for part in test]) for test in root.iter("testcase")]
    assert seen == [
        ("ops abs float32 forward static", ("failure", "failure")),
        ("ops add float32 forward static", ("skipped", "pytest.xfail")),
        ("ops cos float32 forward static", ("skipped", "minify.skip")),
        ("ops sin float32 forward static", ("skipped", "minify.skip")),
    ]
    failure = next(root.iter("failure"))
    assert failure.text == "RuntimeError: no kernel\nminify run repro.db 1"
