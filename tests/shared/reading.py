"""The documents as a reader finds them: their blocks of code, and the commands in these."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

import fxminify

ROOT = Path(fxminify.__file__).parent
#: `docs/notes` are records of decisions: what stands there was true once.
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
#: What the first word of a command is, after variables that are set for it.
COMMAND = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:minify|python|pytest|pip|make|podman|export)\b")


@dataclass(frozen=True)
class Block:
    """A block of code of a document, indented or between fences."""

    document: str
    line: int
    heading: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command, without the remark behind it, and what its block shows that it prints."""

    document: str
    line: int
    text: str
    shown: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.text}"


def blocks(path: Path) -> list[Block]:
    """Every block of a document."""
    found, heading = [], ""
    tokens = MarkdownIt().parse(path.read_text())
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            heading = token.content
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            first = token.map[0] + (2 if token.type == "fence" else 1)
            known = token.info.strip() or language(token.content)
            found.append(Block(path.relative_to(ROOT).as_posix(), first, heading, known, token.content))
    return found


def language(text: str) -> str:
    """Guess the language of an indented block."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines[0].startswith("$ ") or all(COMMAND.match(line) for line in lines):
        return "shell"
    if all(line.startswith("%") for line in lines):
        return "notebook"
    if "{{" in text:
        return "jinja"
    for name, parse in (("toml", tomllib.loads), ("python", ast.parse)):
        try:
            parse(text)
        except (SyntaxError, tomllib.TOMLDecodeError):
            continue
        return name
    return "text"


def commands(block: Block) -> list[Command]:
    """The commands of a block for a shell. Where they stand behind ``$``, the other lines are what they print."""
    found: list[Command] = []
    lines = block.text.splitlines()
    prompts = lines[0].startswith("$ ")
    for number, line in enumerate(lines, block.line):
        if not prompts or line.startswith("$ "):
            text = re.sub(r"\s+#.*", "", line.removeprefix("$ ")).rstrip()
            found.append(Command(block.document, number, text, ""))
        else:
            last = found[-1]
            found[-1] = Command(last.document, last.line, last.text, f"{last.shown}{line}\n")
    return found


#: The tests that run blocks which are not typed in the order of their document, by document, heading
#: (any: ``*``) and language.
RUN_BY = {
    ("README.md", "fxminify", "shell"): "test_the_example_of_the_readme",
    ("docs/extending.md", "A format", "jinja"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A format", "python"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A format", "toml"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A pass", "python"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A pass", "toml"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A backend's adapter", "python"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A backend's adapter", "toml"): "test_the_package_of_the_document_is_one",
    ("docs/extending.md", "A suite of programs", "python"): "test_the_suite_of_the_document_has_two_programs",
    ("docs/extending.md", "A suite of programs", "toml"): "test_the_package_of_the_document_is_one",
    ("docs/guide.md", "Bugs that you know", "toml"): "test_the_known_bug_of_the_document_is_printed",
    ("docs/hunt.md", "In CI", "toml"): "test_the_expected_failure_of_the_document_agrees",
    ("docs/reduction.md", "Passes of your own", "python"): "test_the_entry_point_of_the_document_leads_to_its_passes",
    ("docs/reduction.md", "Passes of your own", "toml"): "test_the_entry_point_of_the_document_leads_to_its_passes",
}
#: The tests that compare what blocks show with what commands print or the code has, in the same way.
COMPARED_BY = {
    ("README.md", "fxminify", "python"): "test_the_example_of_the_readme",
    ("docs/agents.md", "The tools", "json"): "test_the_page_about_agents_has_the_tools_and_a_configuration",
    ("docs/api.md", "*", "{eval-rst}"): "test_every_public_name_is_in_the_reference",
    ("docs/architecture.md", "Architecture", "mermaid"): "test_generated_pages_are_those_of_the_code",
    ("docs/guide.md", "Only the result is wrong", "text"): "test_a_loss_that_is_no_number_ends_in_a_verified_script",
    ("docs/format.md", "The case document", "text"): "test_the_layouts_of_the_document_are_those_of_the_code",
    ("docs/format.md", "Beside the case documents", "text"): "test_the_layouts_of_the_document_are_those_of_the_code",
    ("docs/gallery.md", "*", "markdown"): "test_the_gallery_has_every_program_its_culprit_and_three_issues",
    ("docs/gallery.md", "*", "python"): "test_the_gallery_has_every_program_its_culprit_and_three_issues",
    ("docs/service.md", "A fleet in five minutes", "mermaid"): "test_the_picture_of_a_fleet_is_drawn_and_names_verbs",
    ("docs/terminal.md", "*", "console"): "test_the_recording_is_what_the_commands_print",
}
#: Commands that no test runs as they stand, and why. ``make`` is asked in `test_commands.py` what it would do.
HUNTS = "it takes minutes; test_hunt_command.py runs small ones"
BISECTED = "it takes minutes; test_a_loss_that_is_no_number_ends_in_a_verified_script runs one"
NOT_RUN = {
    "minify bisect train.py": BISECTED,
    "minify bisect -m pytest tests/test_model.py": BISECTED,
    "minify bisect --oracle judge:is_wrong generate.py": BISECTED,
    "minify hunt my_backend": HUNTS,
    "minify hunt my_backend --dtype float32,bfloat16 --grad --dynamic --budget 600": HUNTS,
    "minify hunt my_backend --only '^linalg' --report hunt.html": HUNTS,
    "minify hunt my_backend --write-expect known.toml": HUNTS,
    "minify hunt my_backend --log old.jsonl": HUNTS,
    "minify hunt my_backend --log new.jsonl --against old.jsonl": HUNTS,
    "minify hunt my_backend --again --expect known.toml": HUNTS,
    "minify hunt my_backend --device cuda": "it needs an accelerator; tests/e2e/gpu runs it there",
    "minify import issue.md": "test_the_blocks_of_an_issue_are_tried_until_one_fails runs it",
    "make demo": "test_the_example_of_the_readme runs its commands",
    "make test": "it is these tests",
    "make test-gpu": "it is these tests, and needs an accelerator",
    "make test-slow": "it is these tests",
    "make test-random": "it is these tests",
    "make test-server": "it is these tests",
    "make test-backends": "it is these tests",
    "make test-ops": "it is these tests, and takes hours",
    "make test-torch TORCH=2.15.0": "it is these tests, and needs a package index",
    "make check": "it is these tests",
    "make quick": "it is these tests",
    "make lint": "it stands beside the tests",
    "make docs": "tests/e2e/browser/test_site.py builds the site as it does",
    "make docs-links": "it needs the network",
    "make recordings": "its parts take minutes; test_the_recording_is_what_the_commands_print makes one of them again",
    "make release": "test_a_release_is_a_commit_and_a_tag_with_its_notes does what it does, in a copy",
    "make bench": "it takes hours",
    "pip install -c constraints.txt .": "it needs a package index; test_distribution.py installs a wheel",
    "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu": "it needs the network",
    "minify run repro.db --executor dask://scheduler:8786": "it needs a cluster; test_cluster.py has one",
    "podman build -f docs/ci/Containerfile -t fxminify .": "it needs a registry; test_ci.py runs what the file says",
    'podman run --rm -v "$PWD:/work" fxminify catch train.py': "it needs that image",
    "python -m fxminify.benchmarks.scale --write docs/benchmarks.md": "it takes ten minutes",
    "python -m fxminify.benchmarks.generality --sample 53": "it takes hours",
    "python -m fxminify.benchmarks.fleet --jobs 50 --minutes 10 --write docs/benchmarks.md": (
        "it takes half an hour; tests/e2e/cli/test_fleet.py runs a small one"
    ),
}
#: In commands that are run where there is PostgreSQL.
ON_A_SERVER = "postgresql+psycopg://user@host/failures"


def treated(block: Block) -> list[str]:
    """List the ways in which a block is kept true: by the tests of `RUN_BY` and `COMPARED_BY`, or ``in order``."""
    keys = [(block.document, heading, block.language) for heading in (block.heading, "*")]
    return [table[key] for table in (RUN_BY, COMPARED_BY) for key in keys if key in table] or ["in order"]


def sessions() -> dict[str, list[Block]]:
    """By document, the blocks that are run in order, as somebody does who reads it."""
    found: dict[str, list[Block]] = {}
    for block in (block for document in DOCUMENTS for block in blocks(document)):
        if treated(block) == ["in order"]:
            found.setdefault(block.document, []).append(block)
    return found
