"""A fresh process imports the package and prints the help of the command without torch, and quickly."""

import resource
import subprocess
import sys

import pytest


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


HELP = """
from click.testing import CliRunner
from fxminify.cli import main
assert CliRunner().invoke(main, '--help').exit_code == 0
"""


@pytest.mark.parametrize(
    "code",
    [
        "import fxminify",
        HELP,
    ],
    ids=["import", "help"],
)
def test_starts_without_torch(code: str) -> None:
    done = python(f"import sys\n{code}\nassert 'torch' not in sys.modules, 'torch was imported'")
    assert done.returncode == 0, done.stderr


AT_THE_END = """
import atexit, gc, sys
atexit.register(lambda: print("frozen:", gc.get_freeze_count() > 10_000))
sys.argv = ["minify", "passes"]
from fxminify.__main__ import main
main()
"""


def test_a_short_command_is_not_looked_through_for_garbage_at_its_end() -> None:
    done = python(AT_THE_END)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "frozen: True"


def test_help_is_fast() -> None:
    """`minify --help` costs at most 0.3 s of a processor more than an empty interpreter (best of five)."""

    def best(code: str) -> float:
        times = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert python(code).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    command = "import sys; sys.argv = ['minify', '--help']; from fxminify.cli import main; main(standalone_mode=False)"
    assert best(command) - best("pass") < 0.3
