"""Install the start-up file of `startup` in a wheel and in an editable installation.

setuptools installs packages and their data; a file beside the packages is for the commands here, which
`pyproject.toml` names. They run while a wheel is built, where the package cannot be imported: `pyproject.toml` says
where this file is.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import runpy
import zipfile
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel


def _pth() -> tuple[str, str]:
    """The name and the content of the file."""
    constants = runpy.run_path(str(Path(__file__).with_name("startup.py")), run_name="fxminify_startup")
    return constants["PTH"], constants["LINE"]


class BuildWithStartup(build_py):
    """The modules, and beside them the start-up file."""

    def run(self) -> None:
        super().run()
        name, line = _pth()
        self.mkpath(self.build_lib)
        Path(self.build_lib, name).write_text(line, encoding="ascii")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), os.path.join(self.build_lib, _pth()[0])]


class EditableWithStartup(editable_wheel):
    """The wheel of an editable installation, and in it the start-up file."""

    def run(self) -> None:
        super().run()
        for wheel in Path(self.dist_dir).glob("*.whl"):
            _add(wheel, *_pth())


def _add(wheel: Path, name: str, text: str) -> None:
    """Add a file to a wheel and to its list of files."""
    with zipfile.ZipFile(wheel) as old:
        content = {info: old.read(info) for info in old.infolist()}
    if any(info.filename == name for info in content):
        return
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for info, data in content.items():
            record = info.filename.endswith(".dist-info/RECORD")
            new.writestr(info, data + _row(name, text).encode() if record else data)
        new.writestr(name, text)


def _row(name: str, text: str) -> str:
    """The line of a file in the list."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([name, f"sha256={digest}", len(text)])
    return out.getvalue()
