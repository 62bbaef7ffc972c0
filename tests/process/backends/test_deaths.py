"""How a death is described: the same for a worker, a script and a captured program."""

import signal
import subprocess
import sys

import pytest

from fxminify.backends.running import deaths
from fxminify.store.failure import FailureKind, Frame, Phase
from fxminify.store.signature import signature as signature_of


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("deaths") / "lowering.py"
    script.write_text(
        "import ctypes, os\n"
        "def lower(graph):\n"
        "    os.write(2, b'error: bad opcode\\n')\n"
        "    ctypes.string_at(0)\n"
        "def compile(graph):\n"
        "    lower(graph)\n"
        "compile(None)\n"
    )
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script)], capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGSEGV
    return run.stderr


def test_the_stack_of_a_crash_becomes_frames(dump: str) -> None:
    failure = deaths.crash(Phase.COMPILE, signal=11, diagnostics=dump)
    assert failure.kind is FailureKind.CRASH
    assert failure.frames[-3:-1] == (Frame("lowering.py", "compile", 6), Frame("lowering.py", "lower", 4))
    assert failure.frames[-1].file == "ctypes/__init__.py"
    assert failure.diagnostics == "error: bad opcode\n"
    assert failure.message == "the process died of SIGSEGV"
    assert signature_of(failure).origin == "ctypes/__init__.py:string_at"


def test_the_thread_that_crashed_gives_the_frames() -> None:
    text = """\
Fatal Python error: Aborted

Thread 0x00007f01 (most recent call first):
  File "/x/waiting.py", line 1 in wait

Current thread 0x00007f02 (most recent call first):
  File "/x/inner.py", line 3 in lower
  File "/x/outer.py", line 2 in <module>

Thread 0x00007f03 (most recent call first):
  <no Python frame>

Extension modules: numpy.core (total: 1)
"""
    frames, rest = deaths.fault_frames(text)
    assert frames == (Frame("outer.py", "<module>", 2), Frame("inner.py", "lower", 3))
    assert rest == ""


def test_text_without_a_stack_is_left_alone() -> None:
    text = "one\n\n  two\nthree"
    assert deaths.fault_frames(text) == ((), text)


def test_leaving_by_exit_code_is_no_signal() -> None:
    three, four = (deaths.crash(Phase.FORWARD, exit_code=code) for code in (3, 4))
    assert three.signal is None
    assert three.headline() == "exit 3: the process left with exit code 3"
    assert signature_of(three).difference(signature_of(four)) == "type"


def test_a_hang_and_a_memory_kill() -> None:
    assert deaths.hang(Phase.COMPILE, 10).message == "no answer within 10 s"
    assert deaths.out_of_memory(Phase.FORWARD, "2 GiB").kind is FailureKind.OUT_OF_MEMORY


def test_names_of_signals() -> None:
    assert [deaths.signal_name(n) for n in (8, 11, 77)] == ["SIGFPE", "SIGSEGV", "signal 77"]


def test_own_frames_are_left_out_where_another_is_further_in() -> None:
    own = f'  File "{deaths.__file__}", line 9 in execute\n'
    stack = "Current thread 0x00007f02 (most recent call first):\n"
    theirs = '  File "/x/lowering.py", line 3 in lower\n'
    frames, _ = deaths.fault_frames(stack + theirs + own)
    assert frames == (Frame("lowering.py", "lower", 3),)
    frames, _ = deaths.fault_frames(stack + own + own)
    assert frames == (Frame("deaths.py", "execute", 9),)
