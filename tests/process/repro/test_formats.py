"""Notebooks, templates of a project's own, neutral names, and one line for the device."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fxminify.cli import main
from fxminify.repro_templates import formats as formats_module
from fxminify.repro_templates.anonymous import anonymous
from fxminify.repro_templates.context import Context, Header, sure, versions
from fxminify.repro_templates.formats import OURS, UnknownFormat, broken, find, formats
from fxminify.repro_templates.notebook import code
from fxminify.repro_templates.render import TemplateError, render
from fxminify.repro_templates.source.action import with_device
from fxminify.store import extensions
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase

FAILURE = Failure(
    FailureKind.RUNTIME_ERROR, Phase.FORWARD, "RuntimeError", "no kernel for L_self_secret_layer_ (3 inputs)"
)
HEADER = Header(FAILURE, "v1:0123456789ab", "2.13.0", "3.11", "Linux x86_64", nodes=12, queries=7, runs="3 of 3")


def case(device: str = "cpu") -> Case:
    """Two nodes, made by hand: no torch."""
    ones = {"fn": "full", "value": 1.0}
    nodes = (
        Node("l_secret", "placeholder", "L_self_secret_layer_"),
        Node("secret_relu", "call_function", {"fn": "torch.relu"}, ({"ref": "l_secret"},), meta={"stack": "secret.py"}),
        Node("zeros", "call_function", {"fn": "torch.zeros"}, (2,), {"device": {"device": device}}),
        Node("output", "output", "output", ({"tuple": [{"ref": "secret_relu"}, {"ref": "zeros"}]},)),
    )
    return Case(
        Graph(nodes), ({"tensor": 0},), (TensorSpec("float32", (2,), (1,), init=ones, device=device),),
        backend={"name": "eager", "how": "registered", "target": "eager"}, torch="2.13.0",
    )  # fmt: skip


def text(format: str = "script", **options: Any) -> str:
    return render(options.pop("case", case()), {}, format=format, header=options.pop("header", HEADER), **options).text


def test_a_notebook_is_the_script_in_cells() -> None:
    doc = json.loads(text("notebook"))
    assert [cell["cell_type"] for cell in doc["cells"]] == ["markdown", "code", "code", "code", "code"]
    script = text().split('"""\n')[-1]
    assert "".join(code(text("notebook")).split()) == "".join(script.split())
    assert text("notebook") == text("notebook")


@pytest.mark.skipif(importlib.util.find_spec("nbformat") is None, reason="nbformat is not installed")
def test_jupyter_takes_the_notebook() -> None:
    import nbformat

    nbformat.validate(nbformat.reads(text("notebook"), as_version=4))


def test_a_template_of_ones_own_sees_what_is_documented() -> None:
    made = text(template="{{ c.title }}|{{ c.script | fence('python') }}|{{ c.sure }}")
    title, script, how = made.split("|")
    error = "RuntimeError: no kernel for L_self_secret_layer_ (3 inputs)"
    assert title == f"[eager] runtime error: {error} (torch.relu, torch.zeros)"
    assert script == f"```python\n{text().rstrip()}\n```"
    assert how == "It failed in 3 of 3 fresh runs."
    included = text(template='{% include "script.py.j2" %}')
    assert included.split() == text().split()


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ c.nothing }}", "nothing"),
        ("{{ nothing }}", "nothing"),
        ("a\n{% if %}", "line 2"),
        ("{{ c.__class__.__mro__ }}", "unsafe"),
        ("{{ ''.__class__ }}", "unsafe"),
        ("{{ c.imports.append('x') }}", "unsafe"),
        ('{% include "../../../etc/passwd" %}', "passwd"),
        ("{{ range(10**9) }}", "range"),
        ("{{ 1 / 0 }}", "zero"),
    ],
)
def test_a_template_that_asks_for_more_is_refused(template: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        text(template=template)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package ``acme`` with a format for its tracker, one that has no template, and one that does not import."""
    package = tmp_path / "acme"
    (package / "templates").mkdir(parents=True)
    rows = [("ticket", "ticket.txt"), ("gone", "gone.txt"), ("script", "script.txt"), ("wrong", "wrong.txt")]
    lines = ["from fxminify.repro_templates.formats import Format, exits_with"]
    lines += [
        f"{name.upper()} = Format({name!r}, {file!r}, '{file}.j2', 'text', 'For Acme.', exits_with(7), 'acme')"
        for name, file in rows
    ]
    (package / "__init__.py").write_text("\n".join(lines))
    (package / "templates" / "ticket.txt.j2").write_text('{{ c.title }}\n\n{% include "script.py.j2" %}')
    (package / "templates" / "script.txt.j2").write_text("")
    (package / "templates" / "wrong.txt.j2").write_text("{{ c.nothing }}")
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    names = [f"{name} = acme:{name.upper()}" for name, _ in rows]
    names += ["missing = acme.nowhere:FORMAT", "text = acme:__name__", "other = acme:TICKET"]
    (about / "entry_points.txt").write_text("\n".join(["[fxminify.formats]", *names]))
    monkeypatch.syspath_prepend(str(tmp_path))
    for known in (extensions.installed, formats_module._found):
        known.cache_clear()
    yield
    for known in (extensions.installed, formats_module._found):
        known.cache_clear()
    sys.modules.pop("acme", None)


@pytest.mark.usefixtures("installed")
def test_a_package_adds_a_format_and_a_broken_one_is_only_reported() -> None:
    assert [*formats()] == [*OURS, "ticket", "wrong"]
    assert formats()["ticket"].file == "ticket.txt"
    assert dict(broken()) == {
        "gone": "acme has no templates/gone.txt.j2",
        "missing": "acme.nowhere:FORMAT does not load: ModuleNotFoundError: No module named 'acme.nowhere'",
        "other": "the entry point 'other' names a format called 'ticket'; use one lower-case name for both",
        "script": "there is one of this name already",
        "text": "it is a str, not a Format",
    }
    made = text("ticket")
    assert made.startswith("[eager] runtime error: ")
    assert made.split("\n", 2)[2].split() == text().split()
    with pytest.raises(TemplateError, match=r"the format wrong of acme: UndefinedError: .*'nothing'"):
        text("wrong")
    with pytest.raises(UnknownFormat, match=r"the format 'gone' cannot be used: acme has no templates/gone.txt.j2"):
        text("gone")


@pytest.mark.usefixtures("installed")
def test_the_formats_are_listed_with_those_that_cannot_be_used() -> None:
    done = CliRunner().invoke(main, ["formats"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].split(maxsplit=2) == [
        "script", "repro.py", "A script that fails while the bug is there and exits 0 once it is gone.",
    ]  # fmt: skip
    assert ["ticket", "ticket.txt", "For Acme. From acme."] in [line.split(maxsplit=2) for line in lines]
    assert "gone: cannot be used: acme has no templates/gone.txt.j2" in lines
    usage = CliRunner().invoke(main, ["repro", "--help"]).output
    assert "[script|pytest|issue|comment|notebook|bisect|upstream-test|ticket|wrong]" in "".join(usage.split())
    refused = CliRunner().invoke(main, ["repro", "repro.db", "1", "--format", "gone"])
    assert refused.exit_code == 2
    assert "the format 'gone' cannot be used" in refused.output


def test_the_documented_table_is_the_one_in_the_code(pytestconfig: pytest.Config) -> None:
    documented = (pytestconfig.rootpath / "docs" / "templates.md").read_text()
    rows = [f"| `{f.name}` | `{f.file}` | `{f.template}` | {f.summary} |" for f in OURS.values()]
    assert "\n".join(rows) in documented


def test_every_field_a_template_sees_is_documented(pytestconfig: pytest.Config) -> None:
    documented = (pytestconfig.rootpath / "docs" / "templates.md").read_text()
    assert [name for name in Context.__dataclass_fields__ if f"| `{name}` |" not in documented] == []


@pytest.mark.parametrize("format", OURS)
def test_neutral_names_leave_none_of_the_programs(format: str) -> None:
    renamed, header = anonymous(case(), HEADER)
    made = text(format, case=renamed, header=header)
    assert "secret" not in made
    assert "torch.relu(" in made
    assert "secret" in text(format)


def test_one_line_names_the_accelerator() -> None:
    made = text(case=case("cuda:0"))
    assert 'DEVICE = "cuda:0"  # the one line to change to run it elsewhere\n' in made
    assert made.count("cuda") == 1
    assert "torch.ones(2, device=DEVICE)" in made
    assert "torch.zeros(2, device=DEVICE)" in made
    assert "DEVICE" not in text()


def test_a_string_that_reads_like_the_device_stays() -> None:
    source = "f('cuda:0', x.to(\"cuda:0\"), device='cuda:0')  # cuda:0\n"
    assert with_device(source, "cuda:0") == "f('cuda:0', x.to(DEVICE), device=DEVICE)  # cuda:0\n"


def test_ratios_that_are_none_are_not_said() -> None:
    assert sure(replace(HEADER, replays="7 of 9")) == (
        "It failed in 3 of 3 fresh runs, and in 7 of 9 replays of the whole graph."
    )
    assert sure(replace(HEADER, runs="always, trust me")) == ""
    assert versions(HEADER) == ["torch 2.13.0", "Python 3.11", "Linux x86_64"]


FAILING = "raise RuntimeError('no kernel')\n"
FORMS = {
    "notebook": '{"cells": [{"cell_type": "code", "source": ["raise RuntimeError(\'no kernel\')"]}]}',
    "pytest": "import pytest\n\n@pytest.mark.xfail(strict=True, raises=RuntimeError)\ndef test_it():\n    " + FAILING,
    "bisect": "import sys\nsys.exit(1)\n",
    "upstream-test": (
        "import unittest\n\nclass TestRepro(unittest.TestCase):\n    @unittest.expectedFailure\n"
        "    def test_it(self):\n        " + FAILING
    ),
}


@pytest.mark.parametrize("format", FORMS)
def test_a_format_is_run_as_its_receiver_would(format: str) -> None:
    def shows(failure: Failure) -> bool:
        return failure.message == "no kernel"

    run = find(format).run
    assert run is not None
    done = run(FORMS[format], shows, files={}, runs=2, timeout=120)
    assert (done.shown, done.runs) == (2, 2), done.log
    gone = FORMS[format].replace("raise RuntimeError('no kernel')", "pass").replace("sys.exit(1)", "sys.exit(0)")
    assert run(gone, shows, files={}, runs=2, timeout=120).shown == 0
