"""Which values of environment variables a case keeps: those that are no secret and say nothing about a person."""

import pytest

from fxminify.backends.provenance.embedded_source import EmbeddedSource
from fxminify.backends.provenance.spec import BackendSpec
from fxminify.backends.provenance.variables import lines, public_values, read_by

SOURCE = """\
import os

LEVEL = os.environ.get("ACME_LEVEL")
MODE = os.environ.get("ACME_MODE", "vectorized_loops")


def backend(gm, inputs):
    return gm.forward
"""


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("ACME_LEVEL", "2", True),
        ("ACME_LEVEL", "-0.5", True),
        ("ACME_LEVEL", "True", True),
        ("ACME_MODE", "vectorized_loops", True),
        ("ACME_MODE", "a_word_of_mine", False),
        ("ACME_MODE", "/home/alice/rules.json", False),
        ("ACME_MODE", "two words", False),
        ("ACME_LEVEL", "123456789", False),
    ],
)
def test_a_value_is_kept_where_it_is_public(name: str, value: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    spec = BackendSpec("backend", "source", {"embedded": "backend"}, source=EmbeddedSource((), SOURCE, "train.py"))
    read = read_by(spec)
    assert read == (name,)
    spec = BackendSpec(spec.name, spec.how, spec.target, source=spec.source, variables=read)
    assert public_values(spec) == ({name: value} if kept else {})


@pytest.mark.parametrize("name", ["ACME_TOKEN", "ACME_API_KEY", "LD_PRELOAD", "PYTHONHASHSEED"])
def test_what_may_be_secret_or_loads_code_is_never_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert public_values(BackendSpec("backend", variables=(name,))) == {}


def test_words_for_a_compiler_whose_adapter_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    monkeypatch.setenv("TORCHINDUCTOR_GRAPH_FUSION", "some_mode")
    spec = BackendSpec("inductor", "registered", "inductor")
    found = public_values(BackendSpec("inductor", "registered", "inductor", variables=read_by(spec)))
    assert found["TORCHINDUCTOR_FREEZING"] == "1"
    assert found["TORCHINDUCTOR_GRAPH_FUSION"] == "some_mode"


def test_the_lines_of_a_script() -> None:
    assert lines({}, ()) == []
    assert lines({"B": "on", "A": "2"}, ()) == ["import os", "", 'os.environ["A"] = "2"', 'os.environ["B"] = "on"']
    assert lines({"A": "2"}, ["TOKEN"]) == [
        "import os",
        "import sys",
        "",
        'if "TOKEN" not in os.environ:',
        '    print("cannot run: set TOKEN, which the backend reads", file=sys.stderr)',
        "    sys.exit(125)",
        "",
        'os.environ["A"] = "2"',
    ]


def test_variables_of_terminals_and_of_a_person_are_no_need_of_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("TERM", "USER", "NO_COLOR", "COLUMNS", "PWD", "ACME_LEVEL")
    for name in names:
        monkeypatch.setenv(name, "1")
    source = "import os\n" + "".join(f'os.environ.get("{name}")\n' for name in names)
    spec = BackendSpec("backend", "source", {"embedded": "backend"}, source=EmbeddedSource((), source, "train.py"))
    assert read_by(spec) == ("ACME_LEVEL",)
