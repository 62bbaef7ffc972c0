"""A command that is ended from outside cleans up, as with Ctrl-C, from its first moment on."""

import signal
import subprocess
import sys

import pytest

#: The tests themselves may run with SIGHUP ignored.
WAITS = """
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from fxminify.cli import main

@main.command()
def waits():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleaned up", flush=True)

main(["waits"], prog_name="minify")
"""
IMPORTS = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
runpy.run_module("fxminify", run_name="__main__")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_cleans_up_and_says_so(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "cleaned up\n", "Interrupted.\n")


def test_what_is_ignored_stays_ignored() -> None:
    """As under ``nohup``."""
    code = WAITS.replace("time.sleep(600)", "time.sleep(0.2)").replace("SIG_DFL", "SIG_IGN")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert (process.communicate(timeout=60)[0], process.returncode) == ("cleaned up\n", 0)


def test_ctrl_c_while_it_imports_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
