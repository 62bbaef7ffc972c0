"""A script in fresh processes: what it shows, in which phase, and whether its plain run agrees."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import venv
from pathlib import Path
from typing import Any

import pytest
import torch

import fxminify
from fxminify.backends.provenance.variables import sentence
from fxminify.repro_templates.verify import Verification, verify
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import signature


def anything(failure: Failure) -> bool:
    return True


def run(script: str, expected: Any = anything, **options: Any) -> Verification:
    return verify(textwrap.dedent(script), expected, **{"runs": 1, "timeout": 120, **options})


def the(verification: Verification) -> Failure:
    assert verification.shown == verification.runs, (verification.mismatch, verification.log)
    failure = verification.failures[0]
    assert failure is not None
    return failure


def test_a_script_that_ends_shows_nothing() -> None:
    done = run("print('fine')")
    assert (done.shown, done.failures, done.mismatch) == (0, (None,), "it ends with exit code 0")


def test_an_exception_is_reported_with_its_type_message_and_place() -> None:
    failure = the(run("def go():\n    raise KeyError('no lowering')\ngo()"))
    assert (failure.kind, failure.type, failure.message) == (FailureKind.RUNTIME_ERROR, "KeyError", "'no lowering'")
    assert (failure.frames[-1].file, failure.frames[-1].function) == ("repro.py", "go")


def test_an_exception_before_torch_is_imported_is_reported_too() -> None:
    failure = the(run("import sys\nnothing = None\nsys.modules['torch.fx'] = None\nraise KeyError('early')"))
    assert (failure.type, failure.detail) == ("KeyError", {})


def test_a_run_is_given_the_variables_that_the_script_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_TARGET", "v7")
    script = "import os\nprint('target', os.environ['TEAM_TARGET'])"
    assert the(run(script)).message == "'TEAM_TARGET'"
    about = f'"""{sentence(["TEAM_LEVEL", "TEAM_TARGET"])}"""\n'
    assert run(about + script).mismatch == "it ends with exit code 0"


def test_a_signal_is_a_crash_with_its_python_stack() -> None:
    failure = the(run("import os, signal\ndef die():\n    os.kill(os.getpid(), signal.SIGSEGV)\ndie()"))
    assert (failure.kind, failure.signal) == (FailureKind.CRASH, signal.SIGSEGV)
    assert failure.frames[-1].function == "die"


def test_leaving_the_process_is_a_crash_with_its_exit_code() -> None:
    failure = the(run("import os\nos._exit(77)"))
    assert (failure.kind, failure.type) == (FailureKind.CRASH, "exit 77")
    raised = the(run("import sys\ndef leave():\n    sys.exit('error: no kernel')\nleave()"))
    assert (raised.kind, raised.type, raised.frames[-1].function) == (FailureKind.CRASH, "exit 1", "leave")
    assert raised.diagnostics == "error: no kernel\n"


def test_sigalrm_and_the_timeout_are_hangs() -> None:
    alarmed = the(run("import signal\nsignal.alarm(1)\nwhile True: pass"))
    assert (alarmed.kind, alarmed.signal) == (FailureKind.HANG, None)
    late = the(run("import time\ntime.sleep(60)", timeout=2))
    assert late.kind is FailureKind.HANG


def test_the_signature_decides_whether_it_is_the_failure() -> None:
    script = "raise ValueError('bad shape (2, 3)')"
    wanted = FailureMatcher((the(run(script)),)).shows
    assert run("raise ValueError('bad shape (5, 1)')", wanted).shown == 1
    other = run("raise ValueError('another thing')", wanted)
    assert (other.shown, other.mismatch) == (0, "it shows another failure: ValueError: another thing")


def test_runs_are_counted_and_a_flaky_script_is_not_always_shown(tmp_path: Path) -> None:
    first = tmp_path / "first"
    script = f"""
        import os, sys
        try:  # runs are side by side: exactly one of those through the runner makes the file
            if len(sys.orig_argv) > 2:
                os.close(os.open({str(first)!r}, os.O_CREAT | os.O_EXCL))
                sys.exit()
        except FileExistsError:
            pass
        raise ValueError("sometimes")
    """
    done = run(script, runs=4)
    assert (done.shown, done.runs, done.mismatch) == (3, 4, "it ends with exit code 0")
    assert sorted(f is not None for f in done.failures) == [False, True, True]


def test_a_script_that_needs_this_tool_or_this_process_is_not_shown() -> None:
    script = """
        import sys
        if "fxminify.repro_templates.runner" in sys.modules:
            raise ValueError("only under the runner")
        if len(sys.orig_argv) > 2:
            raise ValueError("only under the runner")
    """
    done = run(script, runs=2)
    assert (done.shown, done.mismatch) == (1, "run plainly, it ends with exit code 0")


@pytest.mark.parametrize("fresh", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_tool_may_be_on_a_python_path_alone_which_no_script_sees(fresh: int, tmp_path: Path) -> None:
    """An environment with what the tool requires, but without it."""
    environment, there = tmp_path / "environment", tmp_path / "there"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/*/site-packages")
    (site / "required.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    there.mkdir()
    (there / "fxminify").symlink_to(Path(fxminify.__file__).parent)
    (there / "beside.py").write_text("")
    code = """
        from fxminify.repro_templates.verify import verify
        script = (
            "import torch\\nfrom importlib.util import find_spec\\n"
            "raise ValueError(find_spec('beside'), bool(find_spec('fxminify')))"
        )
        done = verify(script, lambda failure: failure.type == "ValueError", fresh={fresh})
        print(done.shown, {failure and failure.message for failure in done.failures})
    """
    done = subprocess.run(
        [environment / "bin" / "python", "-c", textwrap.dedent(code.replace("{fresh}", str(fresh)))],
        env={**os.environ, "PYTHONPATH": str(there)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("3 {'(None, True)'}\n", ""), done.stderr


def test_the_process_is_empty_but_for_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_backend.py").write_text("name = 'mine'\n")
    monkeypatch.setenv("MY_SECRET", "1")
    script = """
        import os, sys
        assert "MY_SECRET" not in os.environ
        assert set(os.listdir()) == {"repro.py", "repro.safetensors"}
        assert open("repro.safetensors", "rb").read() == b"data"
        import my_backend
        raise ValueError(my_backend.name)
    """
    files = {"repro.safetensors": b"data"}
    assert the(run(script, files=files, search_path=[str(tmp_path)], runs=2)).message == "mine"
    missing = the(run("import my_backend"))
    assert missing.type == "ModuleNotFoundError"


def test_what_is_written_to_standard_error_is_the_diagnostics() -> None:
    failure = the(run("import os\nos.write(2, b'error: cannot lower\\n')\nraise RuntimeError('generic')"))
    assert "error: cannot lower" in failure.diagnostics
    assert signature(failure).diagnostics == "error: cannot lower"
    assert "Traceback" not in failure.diagnostics


def test_a_child_that_stays_behind_is_killed(tmp_path: Path) -> None:
    script = """
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        raise ValueError("left")
    """
    assert the(run(script, timeout=60)).message == "left"


@pytest.mark.slow
def test_a_failing_comparison_is_a_divergence_of_its_class() -> None:
    script = """
        import torch
        torch.testing.assert_close({}, torch.ones(2), check_stride=True)
    """
    for actual, kind in {"torch.zeros(2)": "value", "torch.ones(2, dtype=torch.int64)": "dtype"}.items():
        failure = the(run(script.format(actual)))
        assert (failure.kind, failure.phase, failure.detail["class"]) == (FailureKind.DIVERGENCE, Phase.FORWARD, kind)


def test_source_that_a_script_carries_raises_in_the_file_it_is_from() -> None:
    failure = the(run("def lower():\n    raise KeyError('no lowering')\nlower()", embedded="train.py"))
    assert (failure.frames[-1].file, failure.frames[-1].function) == ("train.py", "lower")


def test_a_process_that_left_without_a_stack_does_not_say_in_which_phase() -> None:
    left = Failure(FailureKind.CRASH, Phase.COMPILE, "exit 77")
    assert the(run("import os\nos._exit(77)", FailureMatcher((left,)).shows)).phase is Phase.COMPILE
