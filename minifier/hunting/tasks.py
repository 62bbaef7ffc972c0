"""The tasks of a worker in a hunt: list the programs of a suite, and run one. Both sides of each request are here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...store import codec
from ...store.document.case import Json
from ...store.errors import StoreError
from . import programs
from .programs import Program, Selection

if TYPE_CHECKING:
    from ..sandbox.scratch import Scratch


def list_argument(suite: str, wanted: Selection) -> Json:
    """Return the argument of `list_programs`."""
    return {"suite": suite, "wanted": codec.dump(wanted)}


def list_programs(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """List the programs of a suite, in a worker. Raises `StoreError` if their device is not present."""
    from ...backends.running import devices

    wanted = codec.load(argument["wanted"], Selection)
    if wanted.device != programs.CPU and not devices.present(wanted.device):
        raise StoreError(f"there is no device {wanted.device} here")
    return {"programs": [codec.dump(p) for p in programs.suite(argument["suite"]).programs(wanted)]}


def run_argument(program: Program, backend: Json, without: Sequence[int], folder: Path) -> Json:
    """Return the argument of `run`: the program and the `BackendSpec` as data.

    ``without`` are numbers of calls to leave out. ``folder`` is an empty folder, or has what an earlier run of the
    program left (`fxminify.minifier.hunting.recordings`).
    """
    return {
        "program": codec.dump(program), "backend": backend, "without": list(without), "folder": str(folder),
    }  # fmt: skip


def run(argument: Json, scratch: Scratch, mark: Callable[[str], None]) -> Json:
    """Run a program in a worker: a `ProgramResult` as JSON.

    The phases of call N are ``eager N`` and ``call N``. They end in ``every`` for the function that makes all calls.
    """
    from ...backends.provenance.spec import BackendSpec
    from .trial import run_program

    program = codec.load(argument["program"], Program)
    spec = BackendSpec.from_json(argument["backend"])
    without = frozenset(argument["without"])
    folder = Path(argument["folder"])
    return run_program(program, spec, mark, without, folder=folder).to_json()
