"""Scripts that set environment variables, and scripts that say which ones a person must set."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fxminify.repro_templates.context import Header
from fxminify.repro_templates.processes import split
from fxminify.repro_templates.render import render
from fxminify.repro_templates.verify import verify
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase

#: The module of the backend reads its variables when it is imported.
BACKEND = """\
import os

from torch._dynamo import register_backend

LEVEL, TOKEN = os.environ.get("ACME_LEVEL"), os.environ.get("ACME_TOKEN", "open")


@register_backend
def acme(gm, inputs):
    if LEVEL == "2" and TOKEN == "open":
        raise ValueError("no kernel")
    return gm.forward
"""
FAILURE = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "ValueError", "no kernel")
NODES = (
    Node("x", "placeholder", "x"),
    Node("y", "call_function", {"fn": "torch.sin"}, ({"ref": "x"},)),
    Node("output", "output", "output", ({"tuple": [{"ref": "y"}]},)),
)
SPEC = {"name": "acme", "how": "registered", "target": "acme", "module": "acme_backend"}
ZERO = TensorSpec("float32", (1,), (1,), init={"fn": "full", "value": 0.0})


def case_with(**backend: object) -> Case:
    return Case(Graph(NODES), ({"tensor": 0},), (ZERO,), backend={**SPEC, **backend}, torch="2.13.0")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "acme_backend.py").write_text(BACKEND)
    return tmp_path


def text_of(case: Case, format: str = "script") -> str:
    return render(case, {}, format=format, header=Header(FAILURE)).text


def run(place: Path, text: str, **environment: str) -> int:
    (place / "repro.py").write_text(text)
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place), **environment}
    command = [sys.executable, "repro.py"]
    return subprocess.run(command, cwd=place, env=known, capture_output=True, check=False).returncode


@pytest.mark.slow
def test_a_script_sets_what_the_import_of_the_backend_reads(place: Path) -> None:
    text = text_of(case_with(variables=["ACME_LEVEL"], environment={"ACME_LEVEL": "2"}))
    assert 'import os\n\nos.environ["ACME_LEVEL"] = "2"\n\nimport torch\nimport acme_backend' in text
    assert "Environment variables" not in text
    assert run(place, text) == 1
    assert run(place, text.replace('os.environ["ACME_LEVEL"] = "2"\n', "")) == 0
    done = verify(text, lambda failure: failure.message == "no kernel", runs=2, search_path=[str(place)])
    assert (done.shown, done.runs) == (2, 2)


def test_the_settings_belong_to_the_imports_that_runs_share() -> None:
    head, rest = split('import os\n\nos.environ["A"] = "2"\n\nimport torch\n\nprint(torch)\n')
    assert head == "import os\nos.environ['A'] = '2'\nimport torch"
    assert rest.strip() == "print(torch)"


def test_a_script_says_which_variable_it_needs_and_that_it_cannot_run(place: Path) -> None:
    needs = {"environment": {"ACME_LEVEL": "2"}, "variables": ["ACME_LEVEL", "ACME_TOKEN"], "required": ["ACME_TOKEN"]}
    text = text_of(case_with(**needs))
    assert "Environment variables that the backend reads: ACME_TOKEN." in text
    assert "exit code 0 means the bug is gone, 125 that it cannot run here." in text
    assert run(place, text) == 125
    assert run(place, text, ACME_TOKEN="open") == 1
    done = verify(text, lambda failure: failure.message == "no kernel", runs=2, search_path=[str(place)])
    assert done.blocked_reason == "set ACME_TOKEN, which the backend reads"
    assert (done.shown, done.passed, done.mismatch) == (0, 0, "cannot run: set ACME_TOKEN, which the backend reads")


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["", "off", "2"])
def test_other_formats_set_it_too(place: Path, setting: str) -> None:
    case = case_with(variables=["ACME_LEVEL"], environment={"ACME_LEVEL": setting} if setting else {})
    (place / "test_acme.py").write_text(text_of(case, "pytest"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py"]
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place)}
    done = subprocess.run(command, cwd=place, env=known, capture_output=True, text=True, check=False)
    assert ("1 xfailed" in done.stdout) is (setting == "2"), done.stdout
    assert run(place, text_of(case, "bisect")) == int(setting == "2")


@pytest.mark.slow
def test_the_bisect_format_cannot_tell_without_what_a_person_must_set(place: Path) -> None:
    needs = {"environment": {"ACME_LEVEL": "2"}, "variables": ["ACME_LEVEL", "ACME_TOKEN"], "required": ["ACME_TOKEN"]}
    text = text_of(case_with(**needs), "bisect")
    assert run(place, text) == 125
    assert run(place, text, ACME_TOKEN="open") == 1
    assert run(place, text, ACME_TOKEN="other") == 0


def test_a_variable_of_the_backends_own_source_is_imported_once() -> None:
    source = {"imports": ["import os"], "text": "def acme(gm, inputs):\n    return os", "file": "train.py"}
    case = case_with(environment={"A": "2"}, variables=["A"])
    embedded = {key: value for key, value in case.backend.items() if key != "module"}
    backend = {**embedded, "how": "source", "target": {"embedded": "acme"}, "source": source}
    assert text_of(replace(case, backend=backend)).count("import os\n") == 1
