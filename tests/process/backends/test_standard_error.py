"""Under `minify capture` what descriptor 2 gets belongs to the capture, and the output of the program is as without."""

import subprocess
import sys
from pathlib import Path

import pytest

from fxminify.store.index import CaptureInfo, Index

PROGRAM = """
import os, sys, torch

def lower(gm, inputs):
    for node in gm.graph.nodes:
        if node.target in (torch.lgamma, torch.cdist):
            op = "'torch.operator' {name = " + f'"torch.aten.{node.target.__name__}"' + "}"
            os.write(2, f'loc("x.py":4:0): error: failed to legalize {op}\\n'.encode())
            if "die" in sys.argv:
                os.abort()
            raise RuntimeError("PassManager::run failed")
    os.write(2, b"healthy\\n")
    return gm.forward

for function in (torch.relu, torch.lgamma, lambda x: torch.cdist(x, x)):
    print("next", file=sys.stderr)
    try:
        torch.compile(function, backend=lower)(torch.rand(3, 3))
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
"""
LGAMMA, CDIST = (
    f'loc("x.py":4:0): error: failed to legalize \'torch.operator\' {{name = "torch.aten.{name}"}}'
    for name in ("lgamma", "cdist")
)


def run(folder: Path, *arguments: str) -> tuple[list[str], list[CaptureInfo]]:
    """The lines on standard error, without those of `minify`, and the captures."""
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "fxminify", "capture", "program.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    with Index.open(str(folder / "repro.db"), readonly=True) as index:
        return [line for line in done.stderr.splitlines() if not line.startswith("minify: ")], index.captures.find()


def test_two_bugs_with_one_message_are_two_before_anything_is_replayed(tmp_path: Path) -> None:
    lines, (first, second) = run(tmp_path)
    failed = "BackendCompilerFailed"
    assert lines == ["next", "healthy", "next", LGAMMA, failed, "next", CDIST, failed]
    assert first.failure is not None
    assert first.failure.diagnostics == f"{LGAMMA}\n"
    assert "torch.aten.lgamma" in first.headline
    assert "torch.aten.cdist" in second.headline
    assert first.signature != second.signature


@pytest.mark.slow
def test_the_last_words_of_a_program_that_dies_are_printed_and_captured(tmp_path: Path) -> None:
    lines, (only,) = run(tmp_path, "die")
    assert lines == ["next", "healthy", "next", LGAMMA]
    assert only.kind == "crash"
    assert "torch.aten.lgamma" in only.headline
