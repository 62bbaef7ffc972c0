"""What a person is asked before a capture from elsewhere runs: all that it executes, a line each."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_documents import document

import fxminify
from fxminify.backends.provenance.access import ALL, Access
from fxminify.backends.provenance.variables import sentence
from fxminify.minifier.consent import AgreedCase, Confirm, may_run, question
from fxminify.store.document.case import Case, Json
from fxminify.store.document.decode import InvalidDocument, validate
from fxminify.store.errors import UnreadableRow
from fxminify.store.index import ReproInfo, StoredCase, StoredScript

REPRO = ReproInfo(1, "script", "", verified=3, runs=3, log="", created="", origin=None, document=None)
EVIL = "x\n  - imports nothing\nRun it? \x1b[2K\u202e"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set that torch reads."""
    for name in [name for name in os.environ if name.startswith(("TORCH", "PYTORCH_", "TRITON_"))]:
        monkeypatch.delenv(name)


def call(module: str, path: str, *args: Any) -> Json:
    return {"call": {"func": {"import": [module, path]}, "args": list(args), "kwargs": {}}}


def case(**fields: Any) -> Case:
    return validate({**document(), "backend": {"name": "inductor", "target": "inductor"}, **fields})


def asked(**fields: Any) -> list[str]:
    """The lines between the first and the last."""
    return question(1, case(**fields)).split("\n")[1:-1]


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
    text = question(1, case(), script="import os\n\nos.abort()\n")
    assert "  - runs the stored script instead of the case:\n  | import os\n  | \n  | os.abort()\n" in text


def test_variables_that_the_document_or_its_script_asks_for_are_listed() -> None:
    backend = {"name": "b", "target": "b", "variables": ["TEAM_LEVEL"]}
    line = "  - gives it these environment variables of yours, as far as they are set: "
    assert asked(backend=backend)[-1] == f"{line}TEAM_LEVEL"
    script = f'"""{sentence(["AWS_SECRET_ACCESS_KEY", "TEAM_LEVEL"])}"""\n'
    assert f"\n{line}AWS_SECRET_ACCESS_KEY, TEAM_LEVEL\n" in question(1, case(backend=backend), script=script)
    assert not [line for line in asked() if "environment" in line]


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": {"name": EVIL, "target": "x"}},
        {"backend": {"name": "x", "target": "x", "entry_point": "a:b", "distribution": EVIL}},
        {"backend": {"name": "x", "target": EVIL}},
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


@pytest.mark.parametrize("hidden", ["\r", "\f", "\x1a", "\x85", "\u2028"])
def test_what_python_reads_on_after_is_refused(hidden: str) -> None:
    """A comment would end there, and a person would not see it."""
    source = {"imports": [], "text": f"# harmless{hidden}import os\nf = 1", "file": "x.py"}
    for fields in (
        {"backend": {"name": "x", "target": {"embedded": "f"}, "source": source}},
        {"imports": [{"source": source["text"], "imports": [], "file": "x.py"}]},
        {"backend": {"name": "x", "target": "x", "search_path": [f"/tmp{hidden}"]}},
    ):
        with pytest.raises(InvalidDocument, match=r"control character|that is not printed"):
            case(**fields)
    script = StoredScript(replace(REPRO, text=f"# needs torch{hidden}import os"), ours=False)
    with pytest.raises(UnreadableRow, match="the script of capture 1 has a control character"):
        may_run(1, StoredCase(case(), ours=True), script=script, trust=True)


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


def test_only_the_gate_makes_what_may_run() -> None:
    with pytest.raises(TypeError):
        AgreedCase(1, case(), "", ours=True)  # type: ignore[call-arg]
    made = may_run(1, StoredCase(case(), ours=True))
    assert made is not None
    assert (made.id, made.case, made.script, made.ours) == (1, case(), "", True)
    with pytest.raises(TypeError):
        replace(made, case=case(context={"grad": False}))
    with pytest.raises(AttributeError):
        made.ours = False  # type: ignore[misc]


def test_the_gate_asks_only_about_what_this_user_did_not_make() -> None:
    """And what is agreed to is what the question listed."""
    asked: list[str] = []

    def confirm(answer: bool) -> Confirm:
        def note(question: str) -> bool:
            asked.append(question)
            return answer

        return note

    own, other = StoredCase(case(), ours=True), StoredCase(case(), ours=False)
    script = StoredScript(replace(REPRO, text="import os"), ours=False)
    assert may_run(1, own, confirm=confirm(False)) is not None
    assert (may_run(1, other), may_run(1, other, confirm=confirm(False)), len(asked)) == (None, None, 1)
    agreed = may_run(1, own, script=script, confirm=confirm(True))
    assert agreed is not None
    assert (agreed.script, agreed.ours, "| import os" in asked[1]) == ("import os", False, True)
    trusted = may_run(1, other, trust=True, confirm=confirm(False))
    assert trusted is not None
    assert (trusted.ours, len(asked)) == (False, 2)


#: All that starts what a capture executes: each takes what the gate made.
RUNNERS = {
    "minifier/session/resources.py": ["workers"], "minifier/session/capture.py": ["reduce_capture", "_first_guess"],
    "minifier/oracle/ablation.py": ["layers"], "minifier/reporting/emit.py": ["__init__", "_again"],
    "minifier/reporting/export.py": ["_run"], "minifier/reporting/find_cause.py": ["run"],
    "service/workers/fixed.py": ["_graph"],
}  # fmt: skip


def test_what_runs_takes_what_the_gate_made() -> None:
    package = Path(fxminify.__file__).parent
    trees = {
        str(file.relative_to(package)): ast.parse(file.read_text())
        for folder in ("service", "minifier", "backends", "repro_templates", "store")
        for file in (package / folder).rglob("*.py")
    }
    for module, names in RUNNERS.items():
        taking = {
            function.name
            for function in ast.walk(trees[module])
            if isinstance(function, ast.FunctionDef)
            and any(ast.unparse(a.annotation) == "AgreedCase" for a in function.args.args if a.annotation)
        }
        assert set(names) <= taking, module
    called = {
        (module, ast.unparse(node.func))
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert {module for module, name in called if name == "Pool"} == {
        "minifier/session/resources.py", "minifier/oracle/ablation.py", "minifier/reporting/find_cause.py",
        "minifier/sandbox/dask_worker.py",  # what a driver sends to it
        "minifier/hunting/translations.py",  # torch's operators, and no capture
        "minifier/hunting/campaign.py",  # suites that are installed, a backend that was typed, and no capture
    }  # fmt: skip
    assert {module for module, name in called if name == "verify"} <= {
        "minifier/reporting/emit.py", "minifier/regression/retest.py", "minifier/session/script_oracle.py",
        "repro_templates/formats.py", "minifier/reporting/script_file.py",
    }  # fmt: skip
    made = {module for module, tree in trees.items() if "__new__(AgreedCase" in ast.unparse(tree)}
    assert made == {"minifier/consent.py"}
    assert {module for module, name in called if name in ("trust.is_ours", "trust.is_our_script")} == {
        "store/index/stored.py"
    }


def test_access_is_what_the_question_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a worker, and in a sandbox the directories; both are said with --trust, too."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "team.py").touch()
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG", "1")
    backend = {"name": "inductor", "target": "inductor", "module": "team", "variables": ["TEAM_LEVEL"],
               "search_path": [str(tmp_path / "lib"), str(tmp_path)]}  # fmt: skip
    mine, theirs = (StoredCase(case(backend=backend), ours=ours) for ours in (True, False))
    asked: list[str] = []
    told: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return True

    def access_of(stored: StoredCase, *, sandbox: bool = False, trust: bool = False) -> Access:
        made = may_run(1, stored, trust=trust, confirm=confirm, sandbox=sandbox, tell=told.append)
        assert made is not None
        return made.access

    assert access_of(mine) == ALL
    names = access_of(theirs).variables
    assert names is not None
    assert {"TEAM_LEVEL", "TORCHINDUCTOR_DEBUG"} <= set(names)
    assert f"as far as they are set: {', '.join(names)}\n" in asked[0]
    assert "sandbox" not in asked[0]
    confined = Access(names, (str(tmp_path / "lib"),))
    assert access_of(theirs, sandbox=True) == confined
    line = f"reads in the sandbox: {tmp_path / 'lib'} (for team)"
    assert f"\n  - {line}\n" in asked[1]
    assert told == []
    assert access_of(theirs, sandbox=True, trust=True) == access_of(mine, sandbox=True) == confined
    assert (len(asked), told) == (2, [f"capture 1 {line}"] * 2)
