"""`minify capture`: the program does not notice, and what it is given is its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from desks import Desk

PLAIN = """\
import sys


def main(argv):
    print("out", argv)
    print("err", file=sys.stderr)
    if argv[:1] == ["raise"]:
        raise ValueError("the program's own")
    sys.exit(3)


main(sys.argv[1:])
"""


def plainly(desk: Desk, *args: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = desk.run([sys.executable, *args])
    return done


#: The one line that is added to the output of a program without a failure.
SAID = "minify: nothing captured: no graph reached a backend of torch.compile\n"


def same(captured: subprocess.CompletedProcess[str], plain: subprocess.CompletedProcess[str], said: str = SAID) -> bool:
    own = captured.returncode, captured.stdout, captured.stderr
    return own == (plain.returncode, plain.stdout, plain.stderr + said)


def test_exit_code_output_and_arguments_are_the_programs_own(desk: Desk) -> None:
    (desk.path / "plain.py").write_text(PLAIN)
    args = ["--db", "x.db", "-m", "--check", "--", "-h", "a b"]
    captured = desk.minify("capture", "plain.py", *args)
    assert captured.returncode == 3
    assert captured.stdout == f"out {args}\n"
    misplaced = "minify: --db --check went to the program: options of minify capture stand before PROGRAM\n"
    assert same(captured, plainly(desk, "plain.py", *args), SAID + misplaced)
    assert not desk.db.exists()


def test_an_uncaught_exception_looks_as_it_does_without_us(desk: Desk) -> None:
    (desk.path / "plain.py").write_text(PLAIN)
    captured = desk.minify("capture", "plain.py", "raise")
    assert captured.returncode == 1
    said = SAID.replace("\n", "; the program ended with ValueError outside every watched compilation and call\n")
    assert same(captured, plainly(desk, "plain.py", "raise"), said)


def test_a_module_is_run_as_python_does(desk: Desk) -> None:
    (desk.path / "package").mkdir()
    (desk.path / "package" / "__init__.py").touch()
    (desk.path / "package" / "work.py").write_text(PLAIN)
    captured = desk.minify("capture", "-m", "package.work", "--flag")
    assert captured.returncode == 3
    assert same(captured, plainly(desk, "-m", "package.work", "--flag"))


@pytest.mark.slow
def test_a_backend_failure_is_reported_in_one_line_after_the_programs_own(desk: Desk) -> None:
    (desk.path / "once.py").write_text("import program\nprogram.run('edits')\n")
    captured, plain = desk.minify("capture", "once.py"), plainly(desk, "once.py")
    assert (captured.returncode, captured.stdout) == (plain.returncode, plain.stdout)
    said = captured.stderr.removesuffix("minify: captured 1 failure (1 compile error); next: minify run repro.db\n")
    assert said == plain.stderr


def test_a_program_that_is_not_there(desk: Desk) -> None:
    captured = desk.minify("capture", "missing.py")
    assert captured.returncode == 2
    assert "there is no file missing.py; -m before a name runs a module." in captured.stderr
    assert "nothing captured" not in captured.stderr


def test_an_option_it_does_not_know_is_not_the_program(desk: Desk) -> None:
    captured = desk.minify("capture", "--chekc", "program.py")
    assert captured.returncode == 2
    assert "No such option" in captured.stderr


def test_where_nothing_can_be_stored_it_says_so_before_the_program_runs(desk: Desk) -> None:
    (desk.path / "plain.py").write_text(PLAIN)
    (desk.path / "folder").mkdir()
    (desk.path / "notes.txt").write_text("not a database, but a text that is long enough to be looked at\n" * 4)
    for db in ("folder", "notes.txt", "nowhere/repro.db"):
        captured = desk.minify("capture", "--db", db, "plain.py")
        assert (captured.returncode, captured.stdout) == (2, ""), db
        assert captured.stderr.startswith(f"Error: {db} ")
        assert len(captured.stderr.splitlines()) == 1
