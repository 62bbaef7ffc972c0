"""The package unpickles, evaluates and executes nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from careful import dotted

import fxminify

PACKAGE = Path(fxminify.__file__).parent
FLOORS = ("store", "backends", "repro_templates", "minifier", "service")
FILES = sorted(
    [PACKAGE / "__init__.py", *(p for f in FLOORS for p in (PACKAGE / f).rglob("*.py")), *PACKAGE.glob("cli.py")]
)
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {"torch.load", "torch.save", "eval", "exec", "sympy.sympify", "yaml.load", "builtins.eval", "builtins.exec"}
SPEC, OBSERVE = "backends/provenance/spec.py", "minifier/tracing/source_function.py"
FOREIGN = "backends/capture/foreign_run.py"
SERVER, PROCESSES = "repro_templates/fork_server.py", "repro_templates/processes.py"
#: Where source is rendered and run, or embedded source is run, in a process made for it, and what such a process is
#: sent: file -> reason.
ALLOWED = {
    (SPEC, "exec"): "the source of a backend defined in the user's own script, after the user said so",
    (OBSERVE, "exec"): "source printed from a validated case, in a worker",
    (FOREIGN, "exec"): "the script that a user imports, after the user said so, in a process that runs nothing else",
    (SERVER, "exec"): "the script that is verified, in a process that runs nothing else",
    (SERVER, "marshal"): "strings and numbers from the process that started it, in a private directory",
    (PROCESSES, "marshal"): "writes these; a JSON reader would be imported before the script",
}


def uses(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [node.module] * (node.module.partition(".")[0] in MODULES)
            found += [f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in CALLS]
        elif isinstance(node, ast.Call) and dotted(node.func) in CALLS:
            found.append(dotted(node.func))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += [node.func.attr] if node.func.attr in ("sympify", "parse_expr", "unpickle") else []
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_unpickled_or_evaluated(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    assert [use for use in uses(path) if (name, use) not in ALLOWED] == []


def test_the_allow_list_is_not_stale() -> None:
    used = {(path.relative_to(PACKAGE).as_posix(), use) for path in FILES for use in uses(path)}
    assert set(ALLOWED) <= used


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import pickle\nfrom torch import load\nexec('1')\ntorch.load(f)\nimport dill.x\nmodel.eval()\n")
    assert uses(file) == ["pickle", "torch.load", "dill.x", "exec", "torch.load"]
