"""Which packages a script needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from fxminify.backends.provenance.installed import Package, describe
from fxminify.backends.provenance.modules import search_path


def packages(module: str, files: Iterable[str] = ()) -> list[Package]:
    """The packages that ``module`` needs, without those of the parts of torch that other tests have loaded."""
    of_torch = describe(["json"]).packages
    return [package for package in describe([module], files).packages if package not in of_torch]


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


def distribution(place: Path, name: str, text: str, requires: str = "", url: str = "") -> None:
    """An installed distribution with one module."""
    about = place / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}")
    (about / "top_level.txt").write_text(f"{name}\n")
    if url:
        (about / "direct_url.json").write_text(url)
    (place / f"{name}.py").write_text(text)


BACKEND = """
import needed_at_once
try:
    import optional_one
except ImportError:
    optional_one = None
def compile_graph():
    import needed_later
"""


def test_what_is_imported_in_a_try_is_not_needed_and_what_raised_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("needed_at_once", "optional_one", "needed_later", "raises", "unrelated"):
        distribution(tmp_path, name, "")
    (tmp_path / "backend_of_mine.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("backend_of_mine", "raises", "unrelated"):
        importlib.import_module(name)
    files = ["raises/part.py", "torch/fx/graph.py", "json/decoder.py", "main.py"]
    found = [package.name for package in packages("backend_of_mine", files)]
    assert found == ["needed_at_once", "needed_later", "raises"]
    assert describe(["backend_of_mine"], files).local == ("backend_of_mine",)


def test_a_package_that_says_what_it_requires_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "declares", "import extra_of_it\n", "Requires-Dist: brought_by_it\n")
    for name in ("extra_of_it", "brought_by_it"):
        distribution(tmp_path, name, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("declares")
    assert [package.name for package in packages("declares")] == ["declares"]


@pytest.mark.parametrize(
    ("url", "read"), [("", False), ('{"url": "file:///home/me/mine", "dir_info": {"editable": true}}', True)]
)
def test_a_package_that_requires_nothing_is_read_if_it_is_from_no_index(
    url: str, read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy requires nothing. One of its functions imports pytest."""
    name, other = f"tested{len(url)}", f"test_tool{len(url)}"
    distribution(tmp_path, name, f"def test():\n    import {other}\n", url=url)
    distribution(tmp_path, other, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(name)
    assert [package.name for package in packages(name)] == ([other] if read else []) + [name]


def test_what_a_loaded_part_of_torch_needs_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.onnx` imports onnxscript, which torch does not require."""
    for name in ("part_of_it", "optional_of_it", "later_of_it"):
        distribution(tmp_path, name, "")
    text = "import part_of_it\ntry:\n    import optional_of_it\nexcept ImportError:\n    pass\n"
    text += "def later():\n    import later_of_it\n"
    (tmp_path / "own_part.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = importlib.import_module("own_part")
    own.__dict__["later_of_it"] = importlib.import_module("later_of_it")
    before = [package.name for package in describe(["json"]).packages]
    assert "part_of_it" not in before
    monkeypatch.setitem(sys.modules, "torch.own_part", own)
    assert [package.name for package in describe(["json"]).packages] == sorted([*before, "part_of_it"])


@pytest.mark.parametrize(
    ("url", "source", "file"),
    [
        ("", "acme_{0}==1.0", False),
        ('{"url": "file:///home/me/acme.whl", "archive_info": {}}', "", True),
        ('{"url": "file:///home/me/acme", "dir_info": {"editable": true}}', "", False),
        ('{"url": "https://host.example/acme", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
         "git+https://host.example/acme@abc", False),
    ],
)  # fmt: skip
def test_a_package_from_a_file_is_no_checkout(
    url: str, source: str, file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"acme_{len(url)}"
    distribution(tmp_path, name, "", url=url)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(name)
    (package,) = packages(name)
    assert (package.source, package.file) == (source.format(len(url)), file)
