"""The documents say what the command and the package do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hostile_documents import REFUSED

import fxminify
from fxminify.cli import GROUPS, main
from fxminify.docs import generate, website

ROOT = Path(fxminify.__file__).parent
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "tests/failures/README.md")
DOCUMENTS = [*(ROOT / name for name in BESIDE), *sorted((ROOT / "docs").rglob("*.md"))]
#: Modules of the five floors; migrations, tests and benchmarks are not on the map.
MODULES = [
    path
    for floor in ("store", "backends", "repro_templates", "minifier", "service")
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
    given = [p for p in command.params if isinstance(p, click.Option)]
    return {name for p in given for name in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_options_in_documents_exist(document: Path) -> None:
    unknown = []
    for verb, *words in commands(document.read_text()):
        for word in words:
            if verb in ("capture", "catch") and word.endswith(".py"):
                break  # what follows is the program's own
            if word != "-" and word.startswith("-") and word.partition("=")[0] not in options(verb):
                unknown.append(f"minify {verb} {word}")
    assert unknown == []


def test_every_verb_has_one_uncut_line_in_a_group_of_the_help() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"], prog_name="minify").stdout
    for verbs in GROUPS.values():
        for verb in verbs:
            assert verb.short_help
            assert f"\n  {verb.name:<8}  {verb.short_help}\n" in shown
    headings = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert headings == ["Options", *GROUPS]


def test_every_verb_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    named = {verb for verb, *_ in commands(guide)} | {verb for verb in main.commands if f"`minify {verb}`" in guide}
    assert set(main.commands) - named == {"backends", "doctor"}  # they are in docs/shipped.md and in README.md
    others = (ROOT / "docs" / "shipped.md").read_text() + (ROOT / "README.md").read_text()
    assert {"backends", "doctor"} <= {verb for verb, *_ in commands(others)}


def test_readme_and_changelog_are_short_and_the_readme_links_to_each_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} | {"CHANGELOG.md", "CONTRIBUTING.md"}
    assert pages - set(re.findall(r"\]\(([^)]+)\)", readme)) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", document.read_text())
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []
    pages = {ROOT / f"{page}.md" for page in website.every_page()}
    if document in pages:
        linked = [(document.parent / link).resolve() for link in links if link.endswith(".md")]
        assert [path for path in linked if path not in pages] == [], "the documentation site has no such page"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_in_documents_is_python(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(block, document.name, "exec")


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for d in DOCUMENTS for t in re.findall(r"^ {4}make ([a-z-]+)", d.read_text(), re.MULTILINE)}
    assert named - targets == set()


def test_generated_pages_are_those_of_the_code() -> None:
    assert [page.name for page, text in generate.pages().items() if page.read_text() != text] == [], "run `make docs`"


REFERENCE = (ROOT / "docs" / "reference.md").read_text()


def first_column(heading: str) -> set[str]:
    """Return the names in the first column of a table of the reference."""
    _, _, after = REFERENCE.partition(f"| {heading} | meaning |\n")
    table, _, _ = after.partition("\n\n")
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_states_in_the_reference_are_those_of_the_index() -> None:
    from fxminify.store.index import State

    assert first_column("state") == set(State)


def test_environment_variables_in_the_reference_are_those_of_the_code() -> None:
    sources = "".join(path.read_text() for path in MODULES)
    ours = set(re.findall(r"[\"'](FXMINIFY(?:_[A-Z]+)*)[\"']", sources))
    assert len(ours) > 4
    assert {name for name in first_column("variable") if name.startswith("FXMINIFY")} == ours


def test_settings_in_the_reference_are_those_of_the_code() -> None:
    from fxminify.backends.capture.settings import SettingsKeywords

    assert first_column("setting") == set(SettingsKeywords.__annotations__)


def test_the_table_of_promises_is_that_of_the_tests() -> None:
    """Each file is there, and each number of trials is the one that the tests make."""
    _, _, table = (ROOT / "docs" / "security.md").read_text().partition("| promise | tested in |")
    rows = re.findall(r"^\| (.+?) \| `(tests/\S+)` \| *([\d,]*) *\| *([\d,]*) *\|$", table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| [A-Z`]", table, re.MULTILINE)) > 15
    assert [file for _, file, _, _ in rows if not (ROOT / file).exists()] == []
    numbers = [(file, *(int(n.replace(",", "") or 0) for n in counts)) for _, file, *counts in rows if any(counts)]
    bad = runpy.run_path(str(ROOT / "tests/unit/cli/test_bad_rows.py"))
    trials = (ROOT / "tests/hostile/test_trials.py").read_text()
    constants = re.findall(r"^[A-Z]+, MORE_[A-Z]+ = ([\d_]+), ([\d_]+)$", trials, re.MULTILINE)
    scripts = (ROOT / "tests/process/repro/test_hostile_scripts.py").read_text()
    (seeds,) = re.findall(r"seed in range\((\d+)\)", scripts)
    assert numbers == [
        *(("tests/hostile/test_trials.py", int(default), int(slow)) for default, slow in constants),
        ("tests/unit/store/test_hostile.py", len(REFUSED), 0),
        ("tests/unit/cli/test_bad_rows.py", len(bad["VERBS"]) * (len(bad["BAD"]) + len(bad["BAD_ROWS"])), 0),
        ("tests/process/repro/test_hostile_scripts.py", int(seeds), 0),
    ]


def test_the_version_is_one() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == fxminify.__version__
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
