"""The structure of the package: no import cycles, no class name that stands for two things, no vague module names.

The contracts that `lint-imports` checks are in ``pyproject.toml``: which package may import which. What they cannot
say is here. Imports inside functions and those for type checking alone count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import grimp
import pytest

import fxminify

ROOT = Path(fxminify.__file__).parent
FLOORS = ("store", "backends", "repro_templates", "minifier", "service")
MODULES = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))] + [ROOT / "cli.py"]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "fxminify", include_external_packages=True, exclude_type_checking_imports=False, cache_dir=None
    )


def cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import one another, directly or through each other (Tarjan, SIAM J. Comput. 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = set(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(group)

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return found


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]


def test_no_modules_import_each_other(graph: grimp.ImportGraph) -> None:
    # The package itself shows what its modules export, and they read its version.
    ours = {m for m in graph.modules if m.startswith("fxminify.")}
    imports = {m: {n for n in graph.find_modules_directly_imported_by(m) if n in ours} for m in ours}
    assert cycles(imports) == []


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_vague_module_names() -> None:
    assert not [p for p in MODULES if p.stem in {"util", "utils", "helper", "helpers", "misc", "common"}]
