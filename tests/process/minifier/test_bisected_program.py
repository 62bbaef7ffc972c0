"""Runs of a program that is bisected: how they end, and what judges them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fxminify.backends.capture.selection import GraphSelection
from fxminify.minifier.bisection.program import ProgramRun, RunAnswer, judged, oracle_named, run

NOTHING = GraphSelection({})


def test_a_run_has_its_output_and_the_type_of_the_exception_that_ended_it() -> None:
    done = run(["-c", "import sys; print('loss nan'); print('oh', file=sys.stderr); raise KeyError('x')"], NOTHING)
    assert (done.code, done.error, done.graphs) == (1, "KeyError", ())
    assert done.stdout == "loss nan\n"
    assert done.stderr.startswith("oh\nTraceback")
    assert done.ended == "exit code 1, KeyError"


def test_a_signal_is_an_exit_code_as_in_a_shell() -> None:
    done = run(["-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"], NOTHING)
    assert (done.code, done.error) == (139, "")


def test_a_run_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inner = f"import time, pathlib; time.sleep(4); pathlib.Path({str(mark)!r}).touch()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    began = time.monotonic()
    done = run(["-c", program], NOTHING, timeout=1.5)
    assert (done.code, done.ended) == (None, "timeout")
    assert time.monotonic() - began < 4
    time.sleep(max(0.0, began + 5 - time.monotonic()))
    assert not mark.exists()


def test_torch_compile_can_be_turned_off() -> None:
    program = "import os; print(os.environ.get('TORCH_COMPILE_DISABLE'))"
    assert run(["-c", program], NOTHING).stdout == "None\n"
    assert run(["-c", program], NOTHING, without_compile=True).stdout == "1\n"


def test_an_oracle_of_the_current_folder_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "judge_of_this_test.py").write_text(
        "def is_wrong(run):\n    return None if run.code else 'nan' in run.stdout\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    oracle = oracle_named("judge_of_this_test:is_wrong")
    assert judged(ProgramRun(0, 1.0, stdout="loss nan"), None, oracle) is RunAnswer.FAILS
    assert judged(ProgramRun(0, 1.0, stdout="loss 1.0"), None, oracle) is RunAnswer.PASSES
    assert judged(ProgramRun(1, 1.0), None, oracle) is RunAnswer.UNKNOWN
