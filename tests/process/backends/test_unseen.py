"""In each way to capture, hooks, handlers and tracebacks of a program are its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fxminify.backends.capture.startup import DATABASE, SWITCH

#: Each part is a way for an error to pass the capture, and prints the traceback that it gets.
PROGRAM = """
import logging, signal, sys, threading, traceback

lines = []

class Handler(logging.Handler):
    def emit(self, record):
        if not record.name.startswith("torch"):
            lines.append(f"{record.name}: {record.getMessage()}")

root = logging.getLogger()
root.addHandler(Handler())
root.setLevel(logging.DEBUG)
import torch
from torch._dynamo.backends.common import aot_autograd

def refuses(gm, inputs):
    raise KeyError("cannot compile")

def late(gm, inputs):
    def run(*args):
        raise KeyError("cannot run")
    return run

def aborted(gm, inputs):
    raise KeyboardInterrupt

def lowered(gm, inputs):
    raise KeyError("cannot lower")

def backward(gm, inputs):
    def run(*args):
        return gm(*args)
    def refused(gm, inputs):
        raise KeyError("cannot go back")
    return aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=refused)(gm, inputs)

def attempt(name, backend, x, back=False):
    torch._dynamo.reset()
    try:
        y = torch.compile(lambda x: (x * 2).sin(), backend=backend)(x)
        if back:
            y.sum().backward()
    except BaseException as exc:
        files = [(frame.filename, frame.name) for frame in traceback.extract_tb(exc.__traceback__)]
        print(name, type(exc).__name__, *(f"{f.rpartition('/')[2]}:{n}" for f, n in files))
        print(name, *(f"{f.rpartition('/')[2]}:{n}" for c in (exc.__cause__, exc.__context__) if c is not None
                      for f, n in [(frame.filename, frame.name) for frame in traceback.extract_tb(c.__traceback__)]))

def everything():
    attempt("compile", refuses, torch.ones(3))
    attempt("forward", late, torch.ones(3))
    attempt("abort", aborted, torch.ones(3))
    attempt("lower", aot_autograd(fw_compiler=lowered), torch.ones(3))
    attempt("backward", backward, torch.ones(3, requires_grad=True), back=True)

printed = []
threading.excepthook = lambda args: printed.append("".join(traceback.format_tb(args.exc_traceback)))
everything()
thread = threading.Thread(target=lambda: torch.compile(torch.sin, backend=refuses)(torch.ones(3)))
thread.start()
thread.join()
print("thread", len(printed), printed[0].count("File "), "fxminify" in printed[0] or "capture/" in printed[0])
print("hooks", sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)
print("thread hook", threading.excepthook.__name__)
print("signals", [(n, str(signal.getsignal(n))) for n in sorted(signal.valid_signals()) if n not in (9, 19)])
print("logged", lines)
torch._dynamo.reset()
torch.compile(lambda x: x.cos(), backend=aborted if sys.argv[1] == "abort" else refuses)(torch.ones(3))
"""


def said(tmp_path: Path, way: str, how: str) -> tuple[str, str, int]:
    """Standard output, standard error and exit code of the program, captured in this way."""
    program = tmp_path / "program.py"
    begin = {"install": "import fxminify\nfxminify.install('repro.db')\n", "capturing": "import fxminify\n"
             "block = fxminify.capturing('repro.db')\nblock.__enter__()\n"}.get(way, "")  # fmt: skip
    # One line in each way, so that numbers of lines agree.
    program.write_text(f"exec({begin!r})\n{PROGRAM}")
    command = [sys.executable, "program.py", how]
    if way == "capture":
        command = [sys.executable, "-m", "fxminify", "capture", "--db", "repro.db", *command[1:]]
    on = {SWITCH: "1", DATABASE: str(tmp_path / "repro.db")} if way == "variable" else {}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **on}, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("minify:", "fxminify:"))]
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode  # as a shell says it
    # Torch's own frame between AOTAutograd and a compiler for backward graphs stands there twice.
    return done.stdout.replace("eval_frame.py:_fn ", ""), "\n".join(lines).replace(str(tmp_path), ""), code


@pytest.fixture(scope="module", params=["fails", "abort"])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, tuple[str, str, int]]:
    return request.param, said(tmp_path_factory.mktemp("plain"), "nothing", request.param)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["capture", "variable", "install", "capturing"])
def test_a_program_sees_what_it_sees_without_us(
    tmp_path: Path, plain: tuple[str, tuple[str, str, int]], way: str
) -> None:
    how, expected = plain
    found = said(tmp_path, way, how)
    assert (tmp_path / "repro.db").exists()
    assert "logged []" in expected[0]
    assert found[0].splitlines() == expected[0].splitlines()
    assert found[1:] == expected[1:]
