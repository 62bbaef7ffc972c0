"""Source embedded from a running script: what comes along, what stays at home, what is refused and why."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import fxminify
from fxminify.backends.provenance import origin, spec
from fxminify.store.index import Index, State

Script = Callable[[str], ModuleType]


def embedded(backend: Any) -> str:
    """The embedded source of a backend, imports included."""
    found = origin.spec_of(backend)
    assert found.problem == ""
    assert found.source is not None
    return found.source.source


def refused(backend: Any) -> str:
    """Why a backend cannot be re-created."""
    return origin.spec_of(backend).problem


def test_text_is_carried_as_written_after_what_it_needs(script: Script) -> None:
    main = script(
        "import os.path\n"
        "import torch as t\n"
        "from math import pi as PI\n"
        "LIMITS = {'a': (1, 2.5), t.float16: None}\n"
        "def helper(x):  # kept\n"
        '    """Two\n'
        'lines."""\n'
        "    return x, LIMITS, PI, os.path.sep\n"
        "UNUSED = object()\n"
        "def backend(gm, inputs, size=LIMITS['a']):\n"
        "    helper(size)\n"
        "    return gm.forward\n"
    )
    assert embedded(main.backend) == (
        "from math import pi as PI\n"
        "import os\n"
        "import torch\n\n\n"
        'LIMITS = {"a": (1, 2.5), torch.float16: None}\n\n\n'
        "def helper(x):  # kept\n"
        '    """Two\n'
        'lines."""\n'
        "    return x, LIMITS, PI, os.path.sep\n\n\n"
        "def backend(gm, inputs, size=LIMITS['a']):\n"
        "    helper(size)\n"
        "    return gm.forward"
    )


def test_values_are_those_of_the_moment(script: Script) -> None:
    main = script("LEVEL = 0\ndef backend(gm, inputs):\n    return LEVEL\n")
    vars(main)["LEVEL"] = 7
    assert embedded(main.backend).startswith("LEVEL = 7\n")


def test_decorators_bases_and_defaults_come_first(script: Script) -> None:
    main = script(
        "import functools\n"
        "class Base:\n    pass\n"
        "class Stage(Base):\n    pass\n"
        "def loud(fn):\n"
        "    @functools.wraps(fn)\n"
        "    def wrapper(*args):\n        return fn(*args)\n"
        "    return wrapper\n"
        "@loud\n"
        "def backend(gm, inputs, stage=Stage):\n    return gm.forward\n"
    )
    text = embedded(main.backend)
    assert text.index("class Base") < text.index("class Stage") < text.index("@loud\ndef backend")
    assert text.index("def loud") < text.index("@loud\ndef backend")


def test_submodules_reached_as_attributes_are_imported(script: Script) -> None:
    import xml.etree.ElementTree  # noqa: F401

    main = script("import xml\nimport xml.etree.ElementTree\ndef backend(gm, i):\n    return xml.etree.ElementTree\n")
    assert embedded(main.backend).startswith("import xml.etree.ElementTree\n\n\ndef")


def test_an_alias_of_a_submodule_does_not_stand_for_its_package(script: Script) -> None:
    main = script("import torch\nimport torch.nn.functional as F\ndef backend(gm, i):\n    return torch.relu, F.relu\n")
    assert embedded(main.backend).startswith("import torch\nimport torch.nn.functional as F\n\n\ndef")


def test_only_what_is_read_of_command_line_arguments_comes_along(script: Script) -> None:
    main = script(
        "import argparse\n"
        "args = argparse.Namespace(data='/home/someone', level=3, fuse=True, stream=object())\n"
        "def helper():\n    return args.level\n"
        "def backend(gm, inputs):\n    return helper(), args.fuse\n"
    )
    text = embedded(main.backend)
    assert "args = argparse.Namespace(fuse=True, level=3)\n" in text
    assert "someone" not in text


def test_state_that_cannot_be_written_is_made_again_by_its_one_assignment(script: Script) -> None:
    main = script(
        "import logging\nlog = logging.getLogger('team')\ncache = {}\n"
        "def backend(gm, inputs):\n    cache[1] = log\n    return gm.forward\n"
    )
    main.cache[2] = object()
    text = embedded(main.backend)
    assert "cache = {}\n" in text
    assert "import logging\n" in text


def test_state_built_by_several_statements_is_refused(script: Script) -> None:
    main = script(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--level')\n"
        "def backend(gm, inputs):\n    return parser.parse_args()\n"
    )
    assert "the global 'parser' of backend, an argparse.ArgumentParser, cannot be written down" in refused(main.backend)


def test_annotations_that_mean_nothing_at_run_time_are_dropped(script: Script) -> None:
    main = script(
        "from __future__ import annotations\n"
        "def backend(gm: torch.fx.GraphModule, inputs: list[Nowhere]) -> Callable:\n    return gm.forward\n"
    )
    assert embedded(main.backend) == "def backend(gm, inputs):\n    return gm.forward"


def test_lambdas_on_one_line_are_told_apart(script: Script) -> None:
    main = script("pair = [lambda gm, i: gm.first, lambda gm, i: gm.second]\n")
    assert embedded(main.pair[1]) == "backend = lambda gm, i: gm.second"


def test_a_lambda_over_several_lines_stands_in_parentheses(script: Script) -> None:
    main = script("pair = [lambda gm, i: (\n    gm\n).forward\n]\n")
    assert embedded(main.pair[0]) == "backend = (lambda gm, i: (\n    gm\n).forward)"


def test_recursive_local_functions_come_along(script: Script) -> None:
    main = script(
        "def make():\n"
        "    depth = 2\n"
        "    def inner(gm, inputs, n=0):\n"
        "        return gm if n == depth else inner(gm, inputs, n + 1)\n"
        "    return inner\n"
    )
    text = embedded(main.make())
    source = origin.spec_of(main.make()).source
    assert source is not None
    namespace = spec.run(source)
    assert text.startswith("depth = 2\n\n\ndef inner(")
    assert namespace["inner"]("gm", ()) == "gm"


def test_a_local_function_with_its_decorator(script: Script) -> None:
    main = script(
        "import functools\n"
        "def twice(fn):\n"
        "    @functools.wraps(fn)\n"
        "    def wrapper(gm, inputs):\n        return fn(gm, inputs) * 2\n"
        "    return wrapper\n"
        "def make(level):\n"
        "    @twice\n"
        "    def inner(gm, inputs):\n        return level\n"
        "    return inner\n"
    )
    source = origin.spec_of(main.make(21)).source
    assert source is not None
    namespace = spec.run(source)
    assert namespace["inner"](None, ()) == 42


def test_names_meaning_two_things_are_refused(script: Script) -> None:
    main = script(
        "level = 1\n"
        "def helper():\n    return level\n"
        "def make(level):\n"
        "    def inner(gm, inputs):\n        return level, helper()\n"
        "    return inner\n"
    )
    assert "two objects are called 'level'" in refused(main.make(2))


def test_an_undefined_name_is_refused(script: Script) -> None:
    main = script("def backend(gm, inputs):\n    return nowhere\n")
    assert refused(main.backend).endswith("backend uses the name 'nowhere', which is not defined")


def test_the_path_of_the_script_is_refused(script: Script) -> None:
    main = script("def backend(gm, inputs):\n    return __file__\n")
    assert "the global '__file__' of backend would be another file elsewhere" in refused(main.backend)


def test_source_edited_since_it_was_loaded_is_refused(script: Script, tmp_path: Path) -> None:
    main = script("def backend(gm, inputs):\n    return 1\n")
    (tmp_path / "work.py").write_text("def backend(gm, inputs):\n    return 2\n")
    assert "the source of backend has changed since it was loaded" in refused(main.backend)


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {"__name__": "nowhere"}
    exec("def backend(gm, inputs):\n    return gm", namespace)  # noqa: S102
    assert "the source of backend is not available" in refused(namespace["backend"])


def test_relative_imports_are_refused(script: Script) -> None:
    main = script("def backend(gm, inputs):\n    from . import other\n    return other\n")
    assert refused(main.backend).endswith("backend imports relative to its package")


def test_nothing_is_executed_while_capturing(script: Script) -> None:
    main = script(
        "ran = []\n"
        "def note(fn):\n    ran.append(1)\n    return fn\n"
        "@note\n"
        "def backend(gm, inputs):\n    return gm.forward\n"
    )
    found = origin.spec_of(main.backend)
    assert found.problem == ""
    assert main.ran == [1]


def test_only_ascii_is_embedded(script: Script) -> None:
    main = script("def backend(gm, inputs):  # \u00e9\n    return '\u00e9'\n")
    text = embedded(main.backend)
    assert text == "def backend(gm, inputs):\n    return '\\xe9'"


def test_carried_source_runs_under_the_name_of_its_file(script: Script) -> None:
    main = script("class Odd(Exception):\n    pass\ndef backend(gm, inputs):\n    raise Odd('no')\n")
    found = origin.spec_of(main.backend)
    from fxminify.backends.running.exceptions import failure_of
    from fxminify.store.failure import Phase
    from fxminify.store.signature import signature

    seen = []
    for backend in (main.backend, found.load()):
        with pytest.raises(Exception, match="no") as info:
            backend(None, ())
        seen.append(signature(failure_of(info.value, Phase.COMPILE)))
    assert seen[0] == seen[1]
    assert seen[0].origin == "work.py:backend"


def test_an_instance_without_a_name_is_made_again_from_its_class(script: Script) -> None:
    main = script(
        "class Level:\n"
        "    def __init__(self, level, **options):\n"
        "        self.level = level\n"
        "        self.options = options\n"
        "    def __call__(self, gm, inputs):\n"
        "        return gm.forward\n"
    )
    found = origin.spec_of(main.Level(2, depth=3))
    assert found.source is not None
    assert "class Level:" in found.source.source
    assert found.to_source().arguments == "backend=Level(level=2, depth=3)"


PRIVATE = """
import os, pathlib, socket
import torch
TOKEN: str = os.environ["HF_TOKEN"]
GET = os.getenv("MY_SECRET")
DEFAULT = os.environ.get("MY_OTHER", "fallback-value")
URL = f"https://user:{TOKEN}@host/"
CACHE = os.path.expanduser("~/cache")
PLACE = pathlib.Path.home() / "models"
HOST = socket.gethostname()
SETTINGS = {"token": TOKEN, "n": 3}
PIN = int(os.environ["MY_PIN"])
def make():
    token, place = os.environ["HF_TOKEN"], os.path.expanduser("~/closure")
    def backend(gm, inputs):
        SETTINGS, TOKEN, GET, DEFAULT, URL, CACHE, PLACE, HOST, PIN, token, place
        raise RuntimeError("no lowering")
    return backend

"""


def test_nothing_private_is_captured(script: Script, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of variables and the names of this machine stay here; their expressions travel."""
    secrets = {"HF_TOKEN": "hf_secret_123", "MY_SECRET": "sekret4567", "MY_PIN": "90817263"}
    for name, value in {
        **secrets,
        "HOME": str(tmp_path / "somebody"),
        "USER": "somebody",
        "LOGNAME": "somebody",
    }.items():
        monkeypatch.setenv(name, value)
    main = script(PRIVATE)
    with fxminify.capturing(db), pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: x + 1, backend=main.make())(torch.ones(3))
    with Index.open(db) as index:
        [row] = index.captures.find()
        backend = index.captures.case(row.id).backend
    assert row.state is State.PENDING
    said = str(backend)
    assert not [value for value in [*secrets.values(), "somebody", socket.gethostname()] if value in said]
    assert {"HF_TOKEN", "MY_PIN", "MY_SECRET"} == set(backend["variables"])
    text = backend["source"]["text"].split("\n")
    for line in [
        'TOKEN: str = os.environ["HF_TOKEN"]', 'GET = os.getenv("MY_SECRET")', 'DEFAULT = "fallback-value"',
        'URL = f"https://user:{TOKEN}@host/"', 'CACHE = os.path.expanduser("~/cache")',
        'PLACE = pathlib.Path.home() / "models"', "HOST = socket.gethostname()",
        'SETTINGS = {"token": TOKEN, "n": 3}', 'PIN = int(os.environ["MY_PIN"])', 'token = os.getenv("HF_TOKEN")',
        'place = os.path.expanduser("~/closure")',
    ]:  # fmt: skip
        assert line in text


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("WORD = open(os.environ['WORDS']).read()", "its value comes from outside the program and may be private"),
        ("import subprocess\nWORD = subprocess.getoutput('whoami')", "its value comes from outside the program"),
        ("WORD = ''\nWORD += os.environ['HF_TOKEN'] + '!'", "its value comes from outside|the environment variable HF"),
    ],
)
def test_what_cannot_be_read_again_is_refused_by_name(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: str, reason: str
) -> None:
    (tmp_path / "words").write_text("a private word")
    monkeypatch.setenv("WORDS", str(tmp_path / "words"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret_123")
    main = script(f"import os\n{statements}\ndef backend(gm, inputs):\n    return WORD\n")
    problem = refused(main.backend)
    assert "the global 'WORD' of backend" in problem
    assert re.search(reason, problem)
    assert "hf_secret" not in problem


def test_a_secret_in_the_text_of_a_function_is_refused(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_123")
    main = script("def backend(gm, inputs):\n    return 'hf_secret_123'\n")
    assert "its source holds the value of the environment variable HF_TOKEN" in refused(main.backend)


def test_text_that_the_program_makes_itself_is_still_a_value(script: Script) -> None:
    main = script(
        "import math\nOPS = ('sin', 'cos')\nNAMES = []\nfor op in OPS:\n    NAMES.append(op.upper() + '!')\n"
        "WIDE = math.pi > 3\ndef backend(gm, inputs):\n    return NAMES, WIDE\n"
    )
    assert 'NAMES = ["SIN!", "COS!"]\nWIDE = True' in embedded(main.backend)
