"""The folder of one program of a hunt: a worker writes its failures there as captures, and the driver reads them.

``CALL-N`` is failure N of a call, in the form in which captures are sent (`fxminify.store.spool.upload`). The journal
in the same folder has the graph that was in flight, for the case that the worker dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...backends.capture.journal import Journal
from ...store.recording import Recording
from ...store.spool import upload
from .programs import Program

#: The entry of the provenance of a capture that names the program of a suite in which it was found.
HUNTED = "hunted"


def about(program: Program) -> dict[str, str]:
    """Return what the provenance of a capture says about ``program``."""
    return {"program": f"hunt {program.text()}", HUNTED: f"{program.suite} {program.name}"}


def journal(folder: Path) -> Journal:
    """Return a new journal in ``folder``."""
    (folder / "blobs").mkdir(exist_ok=True)
    return Journal(str(folder))


def write(folder: Path, call: int, found: Sequence[Recording]) -> None:
    """Write the failures of a call."""
    for number, recording in enumerate(found):
        upload.write(upload.Upload(recording), _file(folder, call, number))


def read(folder: Path, call: int, number: int) -> Recording:
    """Read a failure of a call. Raises `fxminify.store.spool.upload.InvalidUpload`."""
    return upload.read(_file(folder, call, number)).met


def _file(folder: Path, call: int, number: int) -> Path:
    return folder / f"{call}-{number}"
