"""Notebooks, templates of a project's own, neutral names, and one line for the device."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from typing import Any

import pytest

from fxminify.repro_templates.environment import TemplateError
from fxminify.repro_templates.header import Header, sure, versions
from fxminify.repro_templates.notebook import code
from fxminify.repro_templates.render import FORMATS, Context, render
from fxminify.repro_templates.run_format import run_format
from fxminify.repro_templates.source.action import with_device
from fxminify.repro_templates.source.anonymous import anonymous
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
    assert title == "[eager] torch.zeros: runtime error: RuntimeError: no kernel for L_self_secret_layer_ (3 inputs)"
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


def test_every_field_a_template_sees_is_documented(pytestconfig: pytest.Config) -> None:
    documented = (pytestconfig.rootpath / "docs" / "templates.md").read_text()
    assert [name for name in Context.__dataclass_fields__ if f"| `{name}` |" not in documented] == []


@pytest.mark.parametrize("format", FORMATS)
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
}


@pytest.mark.parametrize("format", FORMS)
def test_a_format_is_run_as_its_receiver_would(format: str) -> None:
    def shows(failure: Failure) -> bool:
        return failure.message == "no kernel"

    done = run_format(format, FORMS[format], shows, files={}, runs=2, timeout=120)
    assert (done.shown, done.runs) == (2, 2), done.log
    gone = FORMS[format].replace("raise RuntimeError('no kernel')", "pass").replace("sys.exit(1)", "sys.exit(0)")
    assert run_format(format, gone, shows, files={}, runs=2, timeout=120).shown == 0
