"""The script of a bug as a file: the smallest that was verified, or another format of the same case. None is run."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ...minifier.reporting.export import stored_repro
from ...repro_templates.formats import find
from ...store.index import Index
from .caller import Refused


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """``text`` is the file ``name``, ``beside`` has what it reads. ``note`` says how often it showed the failure."""

    capture: int
    name: str
    text: str
    beside: Mapping[str, bytes]
    note: str

    @property
    def download(self) -> str:
        """The name of the file that has it all."""
        return f"{PurePath(self.name).stem}.zip" if self.beside else self.name

    def content(self, name: str) -> bytes:
        """It all: the text, or a zip in which the text is the file ``name``."""
        if not self.beside:
            return self.text.encode()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, data in {name: self.text.encode(), **self.beside}.items():
                archive.writestr(file, data)
        return packed.getvalue()

    @property
    def media_type(self) -> str:
        return "application/zip" if self.beside else "text/plain"


def of_bug(index: Index, bug: int, format: str) -> ScriptFile:
    """The script of a bug in a format. Raises `Refused`, and `StoreError` for a format that there is not."""
    capture = index.bugs.with_script(bug)
    if capture is None:
        raise Refused(404, f"bug {bug} has no verified script yet")
    text, beside, _ = stored_repro(index, capture, format)
    known, note = index.repros.get(capture, format), ""
    if known is not None and known.text == text and known.runs:
        note = f"Shown in {known.verified} of {known.runs} fresh runs, {known.created[:10]}."
    elif find(format).run is not None:
        note = "Made of the case of the verified script; in this format it was not run."
    return ScriptFile(capture, find(format).file, text, beside, note)
