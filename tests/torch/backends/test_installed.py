"""Which packages a script needs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fxminify.backends.provenance.installed import describe
from fxminify.backends.provenance.modules import search_path


@pytest.mark.parametrize(("folder", "needed"), [("site", True), ("_vendor", False)])
def test_a_copy_inside_of_another_package_is_not_needed(
    folder: str, needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools puts its folder `_vendor` on the path, and what is imported from there needs no installation."""
    module, library = f"backend_beside_{folder}", f"library_in_{folder}"
    place, about = tmp_path / folder, tmp_path / folder / f"{library}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 1.0\n")
    (about / "top_level.txt").write_text(f"{library}\n")
    (place / f"{library}.py").write_text("")
    (tmp_path / f"{module}.py").write_text(f"import {library}\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(module)
    names = [package.name for package in describe([module]).packages]
    assert (library in names) is needed


@pytest.mark.parametrize(("alias", "found"), [("", True), ("_brought_", False)])
def test_a_package_under_another_name_gives_no_directory(
    alias: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools brings `distutils` from its folder `_distutils`; beside that lies a module `warnings`."""
    name = f"brought{len(alias)}"
    package = ModuleType(name)
    package.__path__ = [str(tmp_path / f"{alias}{name}")]
    monkeypatch.setitem(sys.modules, name, package)
    assert search_path([name]) == ((str(tmp_path),) if found else ())
