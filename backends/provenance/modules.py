"""Modules of this process: which one holds an object, where it was imported from, what its source binds.

Two ideas: an object counts as importable only if ``getattr`` on the module gives that very object back *and* the
module's source binds the name when it is imported (a global filled in later would be missing in a fresh process);
and ``__module__`` is only a hint, because partials, ``aot_autograd`` objects and wrappers have a misleading one.
"""

from __future__ import annotations

import ast
import keyword
import os
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata
from types import ModuleType
from typing import Any

from . import syntax

#: The running script goes by these names; nothing can be imported from them elsewhere.
SCRIPT = frozenset({"__main__", "__mp_main__"})
_PACKAGE = __name__.partition(".")[0]


def is_dotted(name: str) -> bool:
    """Whether ``name`` is a dotted path of identifiers, the only thing ever imported or printed as a name."""
    return bool(name) and all(p.isidentifier() and p.isascii() and not keyword.iskeyword(p) for p in name.split("."))


def attribute(root: Any, path: str) -> Any:
    """``root.a.b`` for ``path`` = ``"a.b"``. Raises `AttributeError`."""
    for part in path.split("."):
        root = getattr(root, part)
    return root


def find(obj: object) -> tuple[str, str] | None:
    """``(module, attribute path)`` from which a fresh process can import this very object, or None."""
    module, qualname = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str) and holds(module, qualname, obj):
        return module, qualname
    hits = [hit for hit in _holders(obj) if binds(*hit)]
    return min(hits, key=_preference) if hits else None


def holds(module: str, path: str, obj: object) -> bool:
    """Whether importing ``module`` in a fresh process gives ``obj`` at ``path``."""
    if module in SCRIPT or module not in sys.modules or not is_dotted(module) or not is_dotted(path):
        return False
    try:
        return attribute(sys.modules[module], path) is obj and binds(module, path)
    except Exception:  # noqa: BLE001  a module's __getattr__ may raise anything
        return False


def _holders(obj: object) -> Iterator[tuple[str, str]]:
    """Every module global that is ``obj``, the running script and this package left out."""
    for name, module in list(sys.modules.items()):
        if name in SCRIPT or name.partition(".")[0] == _PACKAGE or not is_dotted(name):
            continue
        if not isinstance(module, ModuleType):
            continue
        for attr, value in list(vars(module).items()):
            if value is obj and is_dotted(attr):
                yield name, attr


def _preference(hit: tuple[str, str]) -> tuple[bool, int, int, str]:
    """Public names first, then shallow modules, then short names."""
    module, attr = hit
    private = any(part.startswith("_") for part in (*module.split("."), attr))
    return private, module.count("."), len(module) + len(attr), module


def binds(module: str, path: str) -> bool:
    """Whether importing ``module`` binds the first part of ``path``; True where its source cannot be read."""
    source = tree_of(module)
    if source is None:
        return True
    names = syntax.bound_names(source)
    return "*" in names or path.split(".")[0] in names or f"{module}.{path.split('.')[0]}" in sys.modules


def tree_of(module: str) -> ast.Module | None:
    """The syntax tree of a loaded module, None where there is no Python source."""
    text = text_of(module)
    return None if text is None else _parse(text)


def text_of(module: str) -> str | None:
    """The source text of a loaded module, None where there is none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        if not isinstance(file, str) or not file.endswith(".py"):
            return None
        with tokenize.open(file) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def mentioning(*texts: str) -> Iterator[str]:
    """Loaded modules other than torch's whose source holds all of ``texts``, installed ones last."""
    sought = [text.encode() for text in texts]
    files = {n: getattr(m, "__file__", None) for n, m in list(sys.modules.items()) if n.partition(".")[0] != "torch"}
    python = [(n, f) for n, f in files.items() if isinstance(f, str) and f.endswith(".py") and n != "__mp_main__"]
    for name, file in sorted(python, key=lambda item: is_installed(item[1])):
        try:
            with open(file, "rb") as stream:
                content = stream.read()
        except OSError:
            continue
        if all(text in content for text in sought):
            yield name


@lru_cache(maxsize=256)
def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def search_path(names: Iterable[str]) -> tuple[str, ...]:
    """Directories, outside the interpreter and its site-packages, from which these modules were imported.

    The modules they pull in from other such directories count too: a fresh process needs all of them.
    """
    found: dict[str, None] = {}
    seen: set[str] = set()
    pending = [n for n in names if n]
    while pending:
        top = pending.pop(0).partition(".")[0]
        if top in seen or top in SCRIPT:
            continue
        seen.add(top)
        roots = [r for r in _roots(top) if not is_installed(r)]
        if roots:
            found.update(dict.fromkeys(roots))
            pending += _references(top)
    return tuple(found)


def _roots(top: str) -> list[str]:
    """The directories to put on ``sys.path`` for a loaded top-level module: for a package, its parent."""
    module = sys.modules.get(top)
    paths = getattr(module, "__path__", None)
    if paths is not None:
        return [os.path.dirname(os.path.abspath(p)) for p in paths]
    file = getattr(module, "__file__", None)
    return [os.path.dirname(os.path.abspath(file))] if file else []


def _references(top: str) -> list[str]:
    """Modules mentioned by the globals of ``top`` and its loaded submodules."""
    out: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        if name == top or name.startswith(top + "."):
            for value in list(getattr(module, "__dict__", {}).values()):
                mentioned = _module_of(value)
                if isinstance(mentioned, str):
                    out[mentioned] = None
    return list(out)


def _module_of(value: object) -> object:
    """The module of ``value``, or its own name, without running code of its class: that may warn, or compute."""
    try:
        if issubclass(type(value), ModuleType):
            return object.__getattribute__(value, "__name__")
        return object.__getattribute__(value, "__module__")
    except AttributeError:
        return None


def distribution(module: str) -> str:
    """The installed distribution that a module is from; nothing if there is none, or several share its package."""
    owners = set(metadata.packages_distributions().get(module.partition(".")[0], ()))
    return owners.pop() if len(owners) == 1 else ""


def is_installed(path: str) -> bool:
    """Whether ``path`` lies in the interpreter's own directories, which every process of it has."""
    return any(path == root or path.startswith(root + os.sep) for root in _installed())


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    roots = {sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= set(site.getsitepackages()) | {site.getusersitepackages()}
    return tuple(sorted(os.path.abspath(r) for r in roots if r))
