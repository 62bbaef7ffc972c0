"""The wheel that is shipped holds what it needs, and works by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fxminify

ROOT = Path(fxminify.__file__).parent
MODULES = [
    path
    for floor in ("store", "backends", "repro_templates", "minifier")
    for path in sorted((ROOT / floor).rglob("*.py"))
    if path.stem != "__init__" and "migrations" not in path.parts
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    ignored = [
        "--exclude=./.*",
        "--exclude=./tests",
        "--exclude=./build",
        "--exclude=*.egg-info",
        "--exclude=__pycache__",
    ]
    pack = subprocess.run(["tar", "-C", str(ROOT), *ignored, "-cf", "-", "."], stdout=subprocess.PIPE, check=True)
    copy.mkdir()
    subprocess.run(["tar", "-C", str(copy), "-xf", "-"], input=pack.stdout, check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(copy)], check=True, timeout=500)
    (built,) = folder.glob("fxminify-*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_templates_tables_and_migrations_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    templates = {
        f"fxminify/repro_templates/templates/{path.name}"
        for path in (ROOT / "repro_templates" / "templates").iterdir()
        if path.suffix in (".j2", ".css", ".js")
    }
    modules = {f"fxminify/{p.relative_to(ROOT)}" for p in MODULES}
    assert templates
    wanted = {
        "fxminify/py.typed", "fxminify/store/document/names.json",
        "fxminify/minifier/reporting/report.schema.json", "fxminify/store/index/migrations/env.py",
        "fxminify/store/index/migrations/versions/0004_second_edition.py", "fxminify.pth", *templates, *modules,
    }  # fmt: skip
    assert wanted - names == set()
    assert [name for name in names if set(name.split("/")[1:2]) & {"tests", "benchmarks", "docs"}] == []


@pytest.mark.slow
def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    zipfile.ZipFile(wheel).extractall(target)
    # A path finder of an editable install comes after PYTHONPATH, so the wheel's package is the one that is found.
    code = (
        "import fxminify, sys; assert fxminify.__file__.startswith(sys.argv[1]), fxminify.__file__;"
        "from fxminify.store.index import Index; Index.open('new.db', create=True).close();"
        "from fxminify.cli import main; main(['list', 'new.db'])"
    )
    env = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split(".")[0]) == (0, "No failures in new"), done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "fxminify", "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "capture" in done.stdout
