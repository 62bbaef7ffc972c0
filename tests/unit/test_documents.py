"""The documents say what the command and the package do."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import fxminify
from fxminify.cli import main
from fxminify.docs import generate

ROOT = Path(fxminify.__file__).parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Modules of the five floors; migrations, tests and benchmarks are not on the map.
MODULES = [
    path
    for floor in ("store", "backends", "repro_templates", "minifier")
    for path in sorted((ROOT / floor).rglob("*.py"))
    if path.stem != "__init__" and "migrations" not in path.parts
]


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
            if verb in ("capture", "catch") and word.endswith(".py"):
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
    text = re.sub(r"`[^`\n]*`", "", document.read_text())
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_python_in_documents_is_python(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(block, document.name, "exec")


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for d in DOCUMENTS for t in re.findall(r"^ {4}make ([a-z-]+)", d.read_text(), re.MULTILINE)}
    assert named - targets == set()


def test_generated_pages_are_those_of_the_code() -> None:
    assert [page.name for page, text in generate.pages().items() if page.read_text() != text] == [], "run `make docs`"


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
