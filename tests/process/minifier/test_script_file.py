"""`minify verify FILE`: a script in somebody's hands against the signature that it names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fxminify.cli import main
from fxminify.minifier.reporting.script_file import digests, named
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.signature import signature

FAILURE = Failure(
    FailureKind.RUNTIME_ERROR,
    Phase.FORWARD,
    "RuntimeError",
    "planted: no lowering",
    frames=(Frame("repro.py", "<module>"),),
)
DIGEST = signature(FAILURE).digest
SCRIPT = '"""eager: it fails\n\nMinified by fxminify 0.1.0. Signature ' + DIGEST + '.\n"""\n'


def verify(path: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["verify", str(path), "--runs", "2", *args], prog_name="minify")
    return done.exit_code, done.output


def test_a_script_shows_what_it_names_or_something_else(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(SCRIPT + "raise RuntimeError('planted: no lowering')\n")
    assert verify(path) == (0, f"{path}: 2 of 2 runs show {DIGEST}\n")
    path.write_text(SCRIPT + "raise KeyError('another')\n")
    code, said = verify(path, "--json")
    (found,) = json.loads(said)
    assert (code, found["shown"], found["cannot_run"]) == (
        3, 0, "before the compiler is reached: KeyError: 'another'",
    )  # fmt: skip
    assert found["other_signature"] not in ("", DIGEST)
    path.write_text(SCRIPT + "import a_backend_that_is_not_here\n")
    code, said = verify(path)
    assert (code, said) == (
        3,
        f"{path}: cannot run: ModuleNotFoundError: No module named 'a_backend_that_is_not_here'\n",
    )
    path.write_text(SCRIPT)
    assert verify(path) == (1, f"{path}: 0 of 2 runs show {DIGEST} (it ends with exit code 0)\n")


@pytest.mark.parametrize("file", ["train.py", "In[4]", "my train v1.2 (a).py"])
def test_what_a_copied_backend_raises_is_what_the_file_it_is_from_raised(tmp_path: Path, file: str) -> None:
    digest = signature(replace(FAILURE, frames=(Frame(file, "backend"),))).digest
    path = tmp_path / "mine.py"
    body = "def backend():\n    raise RuntimeError('planted: no lowering')\n\n\nbackend()\n"
    copied = f"The backend is copied from {file}. It had the value 1 of AN_OPTION."
    path.write_text(f'"""eager: it fails\n\nSignature {digest}.\n{copied}\n"""\n\n{body}')
    assert verify(path) == (0, f"{path}: 2 of 2 runs show {digest}\n")
    path.write_text(path.read_text().replace("copied", "taken"))
    assert verify(path)[0] == 3  # another place: as far as is known it fails before its backend is reached


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"raise 1\n", "names no signature in its docstring"),
        (b"# Signature v1:000000000000\nraise 1\n", "names no signature in its docstring"),
        (b"def", "names no signature in its docstring"),
        (b"(" * 100_000, "names no signature in its docstring"),
        ("é = 1".encode(), "is not ASCII"),
        (b" " * (5 << 20), "is too large"),
    ],
)
def test_what_is_no_script_of_ours_is_not_run(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "repro.py"
    path.write_bytes(content)
    code, output = verify(path)
    assert (code, said in output) == (2, True)


def test_a_file_that_is_not_there_and_a_number_that_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    assert verify(path) == (2, f"Error: {path} cannot be read: No such file or directory\n")
    assert verify(path, "3") == (2, f"Error: {path} is one script, it has no failure 3.\n")


def test_what_a_capture_may_lack_is_no_difference() -> None:
    whole = replace(FAILURE, diagnostics="error: boom\n")
    assert digests(whole) == {signature(whole).digest, DIGEST}
    crash = Failure(
        FailureKind.CRASH, Phase.FORWARD, signal=11, frames=(Frame("a.py", "f"),), diagnostics="error: boom\n"
    )
    assert signature(Failure(FailureKind.CRASH, Phase.FORWARD, signal=11)).digest in digests(crash)
    assert named(SCRIPT) == DIGEST
