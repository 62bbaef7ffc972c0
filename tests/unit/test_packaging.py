"""What is shipped: a wheel that works by itself, and documents that say what the command does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

import fxminify
from fxminify.cli import main

ROOT = Path(fxminify.__file__).parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Modules of the five floors; migrations, tests and benchmarks are not on the map.
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
        f"fxminify/repro_templates/{path.name}"
        for path in (ROOT / "repro_templates").iterdir()
        if path.suffix in (".j2", ".css", ".js")
    }
    modules = {f"fxminify/{p.relative_to(ROOT)}" for p in MODULES}
    assert templates
    wanted = {
        "fxminify/py.typed", "fxminify/store/document/names.json", "fxminify/store/index/migrations/env.py",
        "fxminify/store/index/migrations/versions/0004_second_edition.py", *templates, *modules,
    }  # fmt: skip
    assert wanted - names == set()
    assert [name for name in names if name.split("/")[1] in ("tests", "benchmarks", "docs")] == []


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


def test_every_module_is_packaged() -> None:
    listed = re.search(r"^packages = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert listed is not None
    packages = set(re.findall(r'"([\w.]+)"', listed[1]))
    assert {".".join(("fxminify", *p.relative_to(ROOT).parts[:-1])) for p in MODULES} <= packages


def commands(text: str) -> list[list[str]]:
    """The ``minify VERB ...`` of a document, as words without what follows a ``#``."""
    found = re.findall(rf"(?:^|[`$ ])minify ((?:{'|'.join(main.commands)})\b[^`\n;#|)]*)", text)
    return [command.split() for command in found]


def options(verb: str) -> set[str]:
    command = main.commands[verb]
    return {name for p in command.params if isinstance(p, click.Option) for name in p.opts} | {"-h", "--help"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_options_in_documents_exist(document: Path) -> None:
    unknown = []
    for verb, *words in commands(document.read_text()):
        for word in words:
            if verb == "capture" and word.endswith(".py"):
                break  # what follows is the program's own
            if word.startswith("-") and word.partition("=")[0] not in options(verb):
                unknown.append(f"minify {verb} {word}")
    assert unknown == []


def test_every_verb_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    named = {verb for verb, *_ in commands(readme)}
    assert set(main.commands) - named - {verb for verb in main.commands if f"`minify {verb}`" in readme} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_python_in_documents_is_python(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(block, document.name, "exec")


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for d in DOCUMENTS for t in re.findall(r"^ {4}make ([a-z-]+)", d.read_text(), re.MULTILINE)}
    assert named - targets == set()


def test_every_module_is_on_the_map() -> None:
    chart = (ROOT / "docs" / "architecture.md").read_text()
    assert [str(p.relative_to(ROOT)) for p in MODULES if f"| `{p.stem}` |" not in chart] == []


def test_states_in_the_readme_are_those_of_the_index() -> None:
    from fxminify.store.index import State

    _, _, after = (ROOT / "README.md").read_text().partition("| state | meaning |\n")
    table, _, _ = after.partition("\n\n")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(State)


def test_the_version_is_one() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == fxminify.__version__
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
