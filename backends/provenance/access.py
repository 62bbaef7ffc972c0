"""Access of a process that executes a capture: environment variables and, in a sandbox, directories of this user.

A capture says where its modules are, and which variables its backend reads. A stranger may have written both. So a
directory counts only if a module that is needed lies in it, after its links are resolved, and never if a part of
its path begins with a dot, where programs keep keys.
"""

from __future__ import annotations

import ast
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...store.parsing import parse
from ..adapters import adapter_of
from ..running.compiler_caches import known
from .spec import BackendSpec
from .syntax import imported_modules
from .variables import ORDINARY, named

#: Variables that a process needs to import torch and to compile, whatever it executes.
NEEDED = (
    *ORDINARY, "LC_*", "PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
)  # fmt: skip
#: Settings of torch.
_TORCH = ("TORCH*", "PYTORCH_*")
#: The most files of a module that are looked through for what it imports, and the most bytes of one.
_MOST_FILES, _MOST_BYTES = 300, 1 << 20


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a process to this user's data.

    ``variables`` are names of environment variables besides `NEEDED`; None: all. ``directories`` are visible in a
    sandbox, read-only.
    """

    variables: tuple[str, ...] | None = None
    directories: tuple[str, ...] = ()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the part of ``variables`` that the process gets."""
        if self.variables is None:
            return dict(variables)
        patterns = (*NEEDED, *_caches(), *self.variables)
        return {name: value for name, value in variables.items() if any(fnmatchcase(name, p) for p in patterns)}


#: Access of processes that execute what this user made, outside of a sandbox.
ALL = Access()


def variables(spec: BackendSpec, script: str = "") -> tuple[str, ...]:
    """Return the names of environment variables that running ``spec``, or a script of it, is given: those that the
    capture names, and those that are set here and that its compiler reads."""
    patterns = (*_TORCH, *adapter_of(spec.name).environment_variables)
    ours = {name for name in os.environ if any(fnmatchcase(name, pattern) for pattern in patterns)} - _caches()
    return tuple(sorted({*spec.variables, *named(script), *ours} - {*spec.environment}))


def _caches() -> set[str]:
    """The variables that say where compilers keep their caches."""
    return {cache.variable for cache in known()}


def directories(search_path: Iterable[str], modules: Iterable[str], libraries: Iterable[str] = ()) -> dict[str, str]:
    """Return the directories of ``search_path`` in which one of these modules or libraries lies, or a module that one
    of them imports, each with the name of the first. Their links are resolved."""
    places = [place for path in search_path if (place := _real(path))]
    found: dict[str, str] = {}
    for library in libraries:
        if (place := next((p for p in places if os.path.isfile(os.path.join(p, library))), "")) != "":
            found.setdefault(place, library)
    wanted = deque(name.partition(".")[0] for name in modules)
    seen: set[str] = set()
    while wanted:
        if (name := wanted.popleft()) in seen:
            continue
        seen.add(name)
        for place in places:
            if (files := _files(Path(place), name)) is not None:
                found.setdefault(place, name)
                wanted += [one for file in files for one in _imports(file)]
                break
    return found


def of_case(backend: Mapping[str, Any], imports: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return `directories` of what a case imports."""
    spec, imports = BackendSpec.from_json(backend), list(imports)
    paths = [*spec.search_path, *(path for item in imports for path in item.get("search_path", ()))]
    sources = [name for item in imports if "source" in item for name in _imported(str(item["source"]))]
    lines = [name for item in imports for line in item.get("imports", ()) for name in _imported(str(line))]
    modules = [*spec.modules(), *(str(item["module"]) for item in imports if "module" in item), *sources, *lines]
    return directories(paths, modules, [str(item["library"]) for item in imports if "library" in item])


def of_script(text: str, search_path: Iterable[str]) -> dict[str, str]:
    """Return `directories` of what a script imports, or loads by a name that stands in it."""
    paths = list(search_path)
    libraries = sorted(set(_texts(text))) if "load_library" in text else []
    return directories(paths, _imported(text), libraries)


def _real(path: str) -> str:
    """Return the directory without links. Empty if it does not exist, or a part of its path begins with a dot."""
    real = os.path.realpath(os.path.expanduser(path))
    return real if os.path.isdir(real) and not any(part.startswith(".") for part in Path(real).parts) else ""


def _files(place: Path, name: str) -> list[Path] | None:
    """The Python files of a top-level module in a directory, None if it is not there."""
    if not name.isidentifier():
        return None
    if (file := place / f"{name}.py").is_file():
        return [file]
    if (place / name).is_dir():
        files = [file for _, file in zip(range(_MOST_FILES), (place / name).rglob("*.py"), strict=False)]
        return files or None
    return [] if any(place.glob(f"{name}.*so")) else None


def _imports(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            return _imported(opened.read(_MOST_BYTES).decode("utf-8", "replace"))
    except OSError:
        return []


def _imported(text: str) -> list[str]:
    """The top-level modules that a source imports; none if it is no Python."""
    tree = _tree(text)
    return [] if tree is None else [name.partition(".")[0] for name in imported_modules(tree)]


def _texts(text: str) -> Iterator[str]:
    tree = _tree(text)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "/" not in node.value:
            yield node.value


def _tree(text: str) -> ast.Module | None:
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
