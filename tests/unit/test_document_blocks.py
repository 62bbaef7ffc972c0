"""Every block of code of the documents is of a known kind, or a table says which test looks at it."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from indexes import chain
from reading import (
    COMPARED_BY,
    DOCUMENTS,
    NOT_RUN,
    ON_A_SERVER,
    ROOT,
    RUN_BY,
    Block,
    blocks,
    commands,
    language,
    sessions,
    treated,
)

from fxminify.docs import gallery, terminal
from fxminify.minifier.reporting.explanation import Explanation, PassingVariant
from fxminify.minifier.reporting.features import Feature, ProbeAnswer
from fxminify.store.document.case import to_json

FOUND = [block for document in DOCUMENTS for block in blocks(document)]
#: What a reader types into a shell, a file, `pyproject.toml` or a notebook.
RUN = {"shell", "python", "toml", "notebook"}


def test_every_block_is_run_in_order_or_by_a_test_or_is_compared_by_one() -> None:
    assert [f"{block}: {treated(block)}" for block in FOUND if len(treated(block)) != 1] == []
    assert [f"{b} is {b.language}" for blocks in sessions().values() for b in blocks if b.language not in RUN] == []
    known = {(block.document, heading, block.language) for block in FOUND for heading in (block.heading, "*")}
    named = RUN_BY | COMPARED_BY
    assert set(named) - known == set()
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [test for test in set(named.values()) if f"def {test}(" not in tests] == []


def test_every_command_is_run_or_it_is_said_why_not() -> None:
    """Those of all documents that need a database server stand in one of them, too, and are run there."""
    texts = {c.text: c.document for b in FOUND if b.language == "shell" for c in commands(b)}
    in_order = {c.text for found in sessions().values() for b in found if b.language == "shell" for c in commands(b)}
    assert set(NOT_RUN) - in_order == set()
    assert all(NOT_RUN.values())
    (document,) = {name for text, name in texts.items() if ON_A_SERVER in text}
    assert document == "docs/service.md"
    assert {name for name, found in sessions().items() for b in found if b.language == "python"} == {
        "docs/guide.md",
        "docs/shipped.md",
    }


def test_blocks_are_told_apart() -> None:
    kinds = ["minify list\nFXMINIFY=1 python a.py  # so", "$ ls\na", "%minify", "{{ c }}", "a = 1", "import os", "a b"]
    assert [language(text) for text in kinds] == ["shell", "shell", "notebook", "jinja", "toml", "python", "text"]
    assert Counter(block.document for block in FOUND if block.language == "shell")["docs/guide.md"] > 8


def test_a_command_goes_without_its_remark_and_with_what_it_prints() -> None:
    bare = commands(Block("a.md", 3, "A", "shell", "minify list  # all\nminify show 3\n"))
    assert [(c.line, c.text, c.shown) for c in bare] == [(3, "minify list", ""), (4, "minify show 3", "")]
    (shown,) = commands(Block("a.md", 3, "A", "shell", "$ minify list\nid\n 1\n"))
    assert (shown.text, shown.shown) == ("minify list", "id\n 1\n")


def block(document: str, heading: str, kind: str) -> Block:
    """The one such block."""
    (found,) = (b for b in FOUND if (b.document, b.heading, b.language) == (document, heading, kind))
    return found


def test_the_layouts_of_the_document_are_those_of_the_code() -> None:
    text = block("docs/format.md", "The case document", "text").text
    case = to_json(chain(["sin"], calls=2, earlier=({},), tolerance={"float32": 1e-4}, strict=True))
    assert set(re.findall(r'"(\w+)":', text)) == {*case, *case["graph"], "module", "tensor", "float32"}
    text = block("docs/format.md", "Beside the case documents", "text").text
    parts = {name for part in (ProbeAnswer, Feature, PassingVariant) for name in part.__dataclass_fields__}
    named = set(re.findall(r'"(\w+)"', text))
    assert named >= {*Explanation(()).to_json()}
    assert named - {*Explanation(()).to_json()} == (parts | {"x", "claim"}) - {*Explanation(()).to_json()}


def test_the_entry_point_of_the_document_leads_to_its_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/e2e/cli/test_extension.py` installs a package that has one."""
    from fxminify.minifier.passes import Pass

    ((name, value),) = tomllib.loads(block("docs/reduction.md", "Passes of your own", "toml").text)["project"][
        "entry-points"
    ]["fxminify.passes"].items()
    module = tmp_path / f"{value.partition(':')[0].replace('.', '/')}.py"
    module.parent.mkdir()
    module.write_text(block("docs/reduction.md", "Passes of your own", "python").text)
    monkeypatch.syspath_prepend(tmp_path)
    (made,) = importlib.metadata.EntryPoint(name, value, "fxminify.passes").load()
    assert isinstance(made, Pass)
    assert made.name == "my-nodes"


def test_the_recording_shows_every_step_and_the_program_as_it_is() -> None:
    """What the commands print is that of the last ``make recordings``."""
    shown = [block.text.partition("\n") for block in blocks(terminal.PAGE)]
    assert [first for first, _, _ in shown] == [f"$ {step.command}" for step in terminal.STEPS]
    printed = {first.removeprefix("$ "): rest for first, _, rest in shown}
    assert printed["cat denoise.py"] == terminal.PROGRAM.read_text()
    assert terminal.PAGE.read_text().startswith(terminal.HEAD)
    calls = [ast.unparse(n.func) for n in ast.walk(ast.parse(printed["cat repro.py"])) if isinstance(n, ast.Call)]
    assert "beta.cumsum" in calls
    assert max(len(line) for line in printed["minify show repro.db 1"].splitlines()) <= terminal.COLUMNS


def test_the_gallery_has_every_program_its_culprit_and_three_issues() -> None:
    page = gallery.sections(gallery.PAGE.read_text())
    assert list(page) == [entry.title for entry in gallery.ENTRIES]
    kinds = re.findall(r"lines \| `\w+` \| ([a-z ]+) \|", gallery.PAGE.read_text())
    assert len(kinds) == len(gallery.ENTRIES)
    assert sum(entry.issue for entry in gallery.ENTRIES) == 3
    assert {kind.replace(" ", "_") for kind in kinds} >= {"compile_error", "runtime_error", "divergence", "crash"}
    for entry in gallery.ENTRIES:
        shown, _, issue = page[entry.title].partition("````markdown\n")
        (script,) = re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
        (forward,) = (n for n in ast.parse(script).body if isinstance(n, ast.FunctionDef))
        assert entry.culprit in ast.unparse(forward), entry.name
        lines = len(entry.program.read_text().splitlines())
        assert f"{entry.name}.py), {lines} lines" in page[entry.title]
        assert "torch.compile(" in script
        assert bool(issue) is entry.issue
        if entry.issue:
            assert re.search("^(Fails in: |The failure stays with )", issue, re.MULTILINE), entry.name
            assert script.rpartition('"""')[2].strip() in issue
