"""What a person is asked before a capture from elsewhere runs: all that it executes, a line each."""

from __future__ import annotations

from typing import Any

import pytest
from hostile_documents import document

from fxminify.backends.provenance.variables import sentence
from fxminify.minifier.consent import question
from fxminify.store.document.case import Case, Json
from fxminify.store.document.decode import InvalidDocument, validate
from fxminify.store.index import CaptureInfo, State

CAPTURE = CaptureInfo(
    id=1, bug=1, parent=None, state=State.PENDING, kind="", phase="", backend="", signature="", occurrences=1,
    nodes_before=None, inputs_before=None, headline="", reason="", created="", last_seen="", failure=None,
    provenance={}, graph_text="",
)  # fmt: skip
EVIL = "x\n  - imports nothing\nRun it? \x1b[2K\u202e"


def call(module: str, path: str, *args: Any) -> Json:
    return {"call": {"func": {"import": [module, path]}, "args": list(args), "kwargs": {}}}


def case(**fields: Any) -> Case:
    return validate({**document(), "backend": {"name": "inductor", "target": "inductor"}, **fields})


def asked(**fields: Any) -> list[str]:
    """The lines between the first and the last."""
    return question(CAPTURE, case(**fields)).split("\n")[1:-1]


def test_modules_calls_arguments_options_paths_and_settings_are_listed() -> None:
    partial = call("functools", "partial", {"import": ["team.impl", "compile"]}, 3)
    lines = asked(
        backend={"name": "b", "target": partial, "mode": "fast", "search_path": ["/tmp/lib"],
                 "options": {"dict": [["level", call("team.levels", "of", "high")]]}},
        imports=[{"library": "libteam.so", "search_path": ["/tmp/so"]}, {"processes": {"size": 4, "rank": 1}}],
        context={"config": {"torch._dynamo.config": {"verbose": True}}, "grad": False},
    )  # fmt: skip
    assert lines == [
        "  - puts /tmp/so in front of sys.path",
        "  - loads the shared library libteam.so",
        "  - starts torch's fake process group as rank 1 of 4",
        "  - puts /tmp/lib in front of sys.path",
        "  - imports team.impl",
        "  - imports team.levels",
        "  - calls the backend b: torch.compile(backend=functools.partial(team.impl.compile, 3), "
        'options={"level": team.levels.of("high")}, mode="fast")',
        "  - states, before it calls the backend:",
        "  | import torch._dynamo.config",
        "  | torch._dynamo.config.verbose = True",
        "  | with torch.no_grad()",
    ]


def test_carried_source_and_the_stored_script_are_listed_line_by_line() -> None:
    source = {"imports": ["import subprocess"], "text": "def f(gm, inputs):\n    return gm", "file": "a.py"}
    lines = asked(backend={"name": "f", "target": {"embedded": "f"}, "source": source})
    assert lines == [
        "  - runs 5 lines from a.py that define the backend:",
        "  | import subprocess", "  | ", "  | ", "  | def f(gm, inputs):", "  |     return gm",
        "  - imports subprocess",
        "  - calls the backend f: torch.compile(backend=f)",
    ]  # fmt: skip
    text = question(CAPTURE, case(), script="import os\n\nos.abort()\n")
    assert "  - runs the stored script instead of the case:\n  | import os\n  | \n  | os.abort()\n" in text


def test_variables_that_the_document_or_its_script_asks_for_are_listed() -> None:
    backend = {"name": "b", "target": "b", "variables": ["TEAM_LEVEL"]}
    line = "  - gives it these environment variables of yours, as far as they are set: "
    assert asked(backend=backend)[-1] == f"{line}TEAM_LEVEL"
    script = f'"""{sentence(["AWS_SECRET_ACCESS_KEY", "TEAM_LEVEL"])}"""\n'
    assert f"\n{line}AWS_SECRET_ACCESS_KEY, TEAM_LEVEL\n" in question(CAPTURE, case(backend=backend), script=script)
    assert not [line for line in asked() if "environment" in line]


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": {"name": EVIL, "target": "x"}},
        {"backend": {"name": "x", "target": "x", "entry_point": "a:b", "distribution": EVIL}},
        {"backend": {"name": "x", "target": EVIL}},
        {"backend": {"name": "x", "target": "x", "search_path": [EVIL]}},
        {
            "backend": {
                "name": "x",
                "target": {"embedded": "f"},
                "source": {"imports": [], "text": "f = 1", "file": EVIL},
            }
        },
        {"imports": [{"library": EVIL.replace("/", "")}]},
        {"imports": [{"source": f"x = {EVIL!r}", "imports": [], "file": EVIL}]},
    ],
)
def test_nothing_breaks_out_of_its_line(fields: Json) -> None:
    lines = asked(**fields)
    assert "  - imports nothing" not in lines
    assert all(line.startswith(("  - ", "  | ")) for line in lines)
    assert not any(c in line for line in lines for c in "\x1b\u202e\r\b")


@pytest.mark.parametrize(
    "target",
    [
        call("builtins", "exec", "print()"), call("builtins", "eval", "1"), call("builtins", "__import__", "os"),
        call("builtins", "getattr", "x", "y"), call("builtins", "open", "x"), call("os", "system", "id"),
        call("subprocess", "run", ["id"]), call("importlib", "import_module", "x"), call("torch", "os.system", "id"),
        call("torch.utils", "model_zoo.os.system", "id"), call("operator", "attrgetter", "x"),
        call("operator", "methodcaller", "x"), call("pickle", "loads", "x"), call("shutil", "rmtree", "x"),
        call("team", "sys.modules"), call("team", "f.__globals__"), call("ctypes", "CDLL", "x"),
        {"module": "os"}, {"module": "torch.os"}, {"get": [{"module": "torch"}, "os.system"]},
        {"get": ["x", "__class__.__base__"]}, {"call": {"func": {"get": [{"module": "torch"}, "sys.exit"]}, "args": [],
                                                       "kwargs": {}}},
    ],
)  # fmt: skip
def test_what_runs_anything_is_refused_when_it_is_read(target: Json) -> None:
    for fields in ({"target": target}, {"target": "x", "options": {"dict": [["a", [target]]]}}):
        with pytest.raises(InvalidDocument, match="which no capture needs"):
            case(backend={"name": "x", **fields})


@pytest.mark.parametrize(
    "target",
    [
        call("os", "getenv", "TOKEN"), call("os.path", "expanduser", "~/x"), call("getpass", "getuser"),
        call("socket", "gethostname"), call("functools", "partial", {"import": ["operator", "add"]}),
        call("pathlib", "PosixPath", "x"), call("types", "SimpleNamespace"), call("builtins", "int", "3"),
        call("collections", "OrderedDict"), call("torch._dynamo.backends.common", "aot_autograd"), {"module": "math"},
        {"get": [call("team", "Backend"), "compile"]}, {"get": [call("team", "Backend"), "__call__"]},
        {"import": ["torch", "float16"]}, {"module": "team.sub"},
    ],
)  # fmt: skip
def test_what_captures_hold_is_read(target: Json) -> None:
    case(backend={"name": "x", "target": target})


def test_a_setting_of_another_module_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="no valid 'config'"):
        case(context={"config": {"torch._dynamo.config": {"os.name": "x"}}})
