"""Run a program in which only some graphs are compiled, and judge the run."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from ...backends.capture import child, journal, supervise
from ...backends.capture.selection import COMPILED, MET, UNCUT, CompiledPart, GraphSelection, MetGraph
from ...backends.capture.startup import SWITCH
from ...store import codec, temporary
from ...store.errors import StoreError

#: The exit code with which a program, or a script around it, says that a run shows neither.
CANNOT_TELL = 125
#: The most characters of an output that are kept: the last ones.
_KEPT = 1 << 20


class RunAnswer(StrEnum):
    """The answer of a run: whether the program fails."""

    FAILS = "fails"
    PASSES = "passes"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A run of the program.

    ``code`` is its exit code, 128 + N for one that signal N ended, None for one that was ended after the timeout;
    ``error`` the type of the exception that ended it; ``graphs`` those that it met. ``compiled`` are the
    parts of graphs that were compiled. ``uncut`` says why a graph could not be compiled in part.
    """

    code: int | None
    seconds: float
    error: str = ""
    stdout: str = ""
    stderr: str = ""
    graphs: tuple[MetGraph, ...] = ()
    compiled: tuple[CompiledPart, ...] = ()
    uncut: str = ""

    @property
    def ended(self) -> str:
        """The end of it in words: ``exit code 1, AssertionError``."""
        if self.code is None:
            return "timeout"
        return f"exit code {self.code}" + (f", {self.error}" if self.error else "")


#: Judges a run: True if the program failed in it, False if not, None if the run does not show it.
Oracle = Callable[[ProgramRun], bool | None]


def judged(run: ProgramRun, first: ProgramRun | None, oracle: Oracle | None) -> RunAnswer:
    """Judge ``run``. Without an ``oracle`` it fails if it ends as the ``first`` one, in which all was compiled, did."""
    if run.uncut:
        return RunAnswer.UNKNOWN
    if oracle is not None:
        said = oracle(run)
        return RunAnswer.UNKNOWN if said is None else RunAnswer.FAILS if said else RunAnswer.PASSES
    if run.code == 0:
        return RunAnswer.PASSES
    if run.code == CANNOT_TELL:
        return RunAnswer.UNKNOWN
    same = first is None or (run.code, run.error) == (first.code, first.error)
    return RunAnswer.FAILS if same else RunAnswer.UNKNOWN


def oracle_named(name: str) -> Oracle:
    """Import the function ``MODULE:FUNCTION``, from the current directory too. Raises `StoreError`."""
    place, colon, attribute = name.partition(":")
    if not (place and colon and attribute):
        raise StoreError(f"--oracle is MODULE:FUNCTION, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Oracle = getattr(importlib.import_module(place), attribute)
    except Exception as error:
        raise StoreError(f"the oracle {name} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def arguments(words: Sequence[str], *, module: bool = False) -> list[str]:
    """Return the arguments of Python for a program: a script, a module, or ``python`` with either of them."""
    if len(words) > 1 and re.fullmatch(r"(.*/)?python[\d.]*", words[0]):
        return list(words[1:])
    return [*(["-m"] if module else []), *words]


def run(
    words: Sequence[str], selection: GraphSelection, *, timeout: float | None = None, without_compile: bool = False
) -> ProgramRun:
    """Run Python with the arguments ``words``, and only ``selection`` compiled.

    ``without_compile`` turns `torch.compile` off. ``timeout`` is in seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix=temporary.prefix("minify-")))
    try:
        child.prepare(folder, {"journal": str(folder), "selection": selection.to_json()})
        environment = child.environment(folder) | {SWITCH: "0"}
        if without_compile:
            environment |= {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
        began = time.monotonic()
        with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
            process = subprocess.Popen(
                [sys.executable, *words], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
            code: int | None = None
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                supervise.end(process)
            except BaseException:
                supervise.end(process)
                raise
            seconds = time.monotonic() - began
            return ProgramRun(
                None if code is None else 128 - code if code < 0 else code, seconds,
                supervise.ended_with(folder, process.pid), _last(out), _last(err), **_noted(folder),
            )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _noted(folder: Path) -> dict[str, Any]:
    """Return the notes of `SelectedGraphs` in the journal. Processes of one program may meet the same graphs."""
    met = {graph.name: graph for graph in (codec.load(fact, MetGraph) for fact in _facts(folder, MET))}
    uncut = [str(fact["why"]) for fact in _facts(folder, UNCUT)]
    parts = {part.graph: part for part in (codec.load(fact, CompiledPart) for fact in _facts(folder, COMPILED))}
    return {"graphs": tuple(met.values()), "compiled": tuple(parts.values()), "uncut": uncut[0] if uncut else ""}


def _facts(folder: Path, what: str) -> list[Any]:
    return [json.loads(line) for line in journal.told(folder, what)]


def _last(file: IO[bytes]) -> str:
    """The end of what was written to ``file``."""
    with suppress(OSError):
        file.seek(-_KEPT, os.SEEK_END)
        return file.read().decode(errors="replace")
    file.seek(0)
    return file.read().decode(errors="replace")
