"""Modules of this process and the running script: which module holds an object, and the source that defines one.

An object is importable if ``getattr`` on the module returns the same object *and* the source of the module binds the
name when it is imported: a global that is set later would be missing in a fresh process. ``__module__`` is only a hint,
because it is misleading for partials, ``aot_autograd`` objects and wrappers.
"""

from __future__ import annotations

import ast
import linecache
import os
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...store import parsing
from ...store.document.recreation import is_dotted
from ...store.live import ipython
from . import cells, syntax

#: Names of the running script. Another process cannot import them.
SCRIPT = frozenset({"__main__", "__mp_main__"})
_PACKAGE = __name__.partition(".")[0]


def find(obj: object) -> tuple[str, str] | None:
    """``(module, attribute path)`` from which a fresh process can import ``obj``, or None."""
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
        return attrgetter(path)(sys.modules[module]) is obj and binds(module, path)
    except Exception:  # noqa: BLE001  a module's __getattr__ may raise anything
        return False


def _holders(obj: object) -> Iterator[tuple[str, str]]:
    """``(module, name)`` of every global that is ``obj``, except in the running script and in this package."""
    for name, module in list(sys.modules.items()):
        if name in SCRIPT or name.partition(".")[0] == _PACKAGE or not is_dotted(name):
            continue
        if not isinstance(module, ModuleType):
            continue
        for attr, value in list(vars(module).items()):
            if value is obj and is_dotted(attr):
                yield name, attr


def _preference(hit: tuple[str, str]) -> tuple[bool, int, int, str]:
    """Sort key: public names first, then shallow modules, then short names."""
    module, attr = hit
    private = any(part.startswith("_") for part in (*module.split("."), attr))
    return private, module.count("."), len(module) + len(attr), module


def binds(module: str, path: str) -> bool:
    """Whether importing ``module`` binds the first part of ``path``; True if its source cannot be read."""
    source = tree_of(module)
    if source is None:
        return True
    names = syntax.bound_names(source)
    return "*" in names or path.split(".")[0] in names or f"{module}.{path.split('.')[0]}" in sys.modules


def tree_of(module: str) -> ast.Module | None:
    """The syntax tree of a loaded module, None if it has no Python source that can be read."""
    text = text_of(module)
    return None if text is None else _parse(text)


def text_of(module: str) -> str | None:
    """The source text of a loaded module, None if it has no Python source that can be read."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        if not isinstance(file, str) or not file.endswith(".py"):
            return None
        with tokenize.open(file) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def mentioning(*texts: str) -> Iterator[str]:
    """Names of loaded modules other than torch's whose source contains all of ``texts``, installed ones last."""
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
        return parsing.parse(text)
    except (SyntaxError, ValueError):
        return None


def search_path(names: Iterable[str]) -> tuple[str, ...]:
    """Directories, outside the interpreter and its site-packages, from which these modules were imported.

    The result includes such directories of the modules that these import, because a fresh process needs them.
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
    """The directories to put on ``sys.path`` for a loaded top-level module: for a package, its parent.

    None for a package that another one brings under another name, as setuptools brings ``distutils``: the modules
    beside such a package are not at the top level.
    """
    module = sys.modules.get(top)
    paths = getattr(module, "__path__", None)
    if paths is not None:
        return [os.path.dirname(path) for p in paths if os.path.basename(path := os.path.abspath(p)) == top]
    file = getattr(module, "__file__", None)
    return [os.path.dirname(os.path.abspath(file))] if file else []


def _references(top: str) -> list[str]:
    """Names of the modules of the globals of ``top`` and its loaded submodules."""
    out: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        if name == top or name.startswith(top + "."):
            for value in list(getattr(module, "__dict__", {}).values()):
                mentioned = _module_of(value)
                if isinstance(mentioned, str):
                    out[mentioned] = None
    return list(out)


def _module_of(value: object) -> object:
    """The name of the module of ``value``, or its own name if it is a module. Runs no code of its class."""
    try:
        if issubclass(type(value), ModuleType):
            return object.__getattribute__(value, "__name__")
        return object.__getattribute__(value, "__module__")
    except AttributeError:
        return None


def distribution(module: str) -> str:
    """Return the installed distribution of a module. Empty without one, or if several share its package."""
    owners = set(distributions().get(module.partition(".")[0], ()))
    return owners.pop() if len(owners) == 1 else ""


def distributions() -> Mapping[str, list[str]]:
    """The installed distributions of each top-level package. What is installed is read once: that takes long."""
    return _distributions(tuple(sys.path))


@lru_cache(maxsize=4)
def _distributions(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def is_installed(path: str) -> bool:
    """Whether ``path`` is in the interpreter's own directories, which every process of it has."""
    return any(path == root or path.startswith(root + os.sep) for root in _installed())


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    roots = {sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= set(site.getsitepackages()) | {site.getusersitepackages()}
    return tuple(sorted(os.path.abspath(r) for r in roots if r))


class CannotEmbed(Exception):
    """Something cannot be written as source. The message says why, for the person who reads the capture."""


def statements(namespace: Mapping[str, Any]) -> list[ast.stmt]:
    """Return the statements of the running script. Empty for another module's ``namespace``, or without source."""
    try:
        return list(syntax.statements(script(namespace)[0], script=True)) if is_script(namespace) else []
    except CannotEmbed:
        return []


def is_script(namespace: Mapping[str, Any]) -> bool:
    return namespace.get("__name__") in SCRIPT


def reimportable(value: Any) -> tuple[str, str, str] | None:
    """``(module, name, directory)`` with which another process can import ``value`` from the running script, or None.

    Only a script with an ``if __name__ == "__main__":`` guard is imported: the guard says that this is harmless.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    stem = os.path.basename(file).removesuffix(".py")
    module = spec.name if spec is not None else stem
    directory = os.path.dirname(os.path.abspath(file))
    for _ in range(module.count(".")):
        directory = os.path.dirname(directory)
    taken = spec is None and (stem in sys.stdlib_module_names or stem in sys.modules)
    if not is_dotted(module) or taken:
        return None
    try:
        tree, _, _ = script(vars(main))
    except CannotEmbed:
        return None
    names = {n for node in syntax.statements(tree) for n in syntax.names_bound_by(node)}
    name = min((n for n, v in list(vars(main).items()) if v is value and n in names), default="")
    return (module, name, directory) if name and any(map(syntax.is_guard, tree.body)) else None


def script(namespace: Mapping[str, Any]) -> tuple[ast.Module, list[str], str]:
    """The syntax tree, the lines and the file of the running script. Raises `CannotEmbed` if there is no source.

    The cells of a notebook are one script, and its file is the notebook.
    """
    file = namespace.get("__file__")
    if isinstance(file, str) and (lines := linecache.getlines(file)):
        return parse("".join(lines)), [line.rstrip("\n") for line in lines], file
    if written := cells.program().lines:
        return parse("\n".join(written)), written, ipython.notebook()
    raise CannotEmbed("Python keeps no source of what is typed into it or piped to it; put the program into a file")


def line_in_script(fn: FunctionType, namespace: Mapping[str, Any]) -> int:
    """The line of `script` at which ``fn`` begins, 0 if it does not. Raises `CannotEmbed` if its file has changed."""
    code, (_, lines, _) = fn.__code__, script(namespace)
    if not ipython.is_cell(code.co_filename):
        check_fresh(fn, "\n".join(lines))
        return code.co_firstlineno
    text = "".join(linecache.getlines(code.co_filename))
    check_fresh(fn, text)
    return cells.program().line(text, code.co_firstlineno)


def parse(text: str) -> ast.Module:
    try:
        return parsing.parse(text)
    except (SyntaxError, ValueError) as exc:
        raise CannotEmbed(f"its file cannot be parsed ({exc})") from exc


def definition_of(fn: FunctionType) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, list[str]]:
    """The syntax tree of a live function and the lines of its file. Raises `CannotEmbed` if they are not known."""
    lines = linecache.getlines(fn.__code__.co_filename, fn.__globals__)
    if not lines:
        raise CannotEmbed(f"the source of {fn.__qualname__} is not available")
    text = "".join(lines)
    check_fresh(fn, text)
    line, is_lambda = fn.__code__.co_firstlineno, fn.__name__ == "<lambda>"
    found = [
        n
        for n in ast.walk(parse(text))
        if (is_lambda and isinstance(n, ast.Lambda) and n.lineno == line)
        or (
            isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            and n.name == fn.__code__.co_name
            and syntax.first_line(n) == line
        )
    ]
    if is_lambda and len(found) > 1:
        found = [n for n in found if _compiles_to(n, fn.__code__)]
    if not found:
        raise CannotEmbed(f"the source of {fn.__qualname__} cannot be found in its file")
    return found[0], [line.rstrip("\n") for line in lines]


def check_fresh(fn: FunctionType, text: str) -> None:
    """Raise `CannotEmbed` unless ``text``, the file of ``fn``, still defines it: the file may have been edited."""
    if "@py_builtins" in fn.__globals__:  # rewritten by pytest
        return
    try:
        code = compile(text, fn.__code__.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as exc:
        raise CannotEmbed(f"the file of {fn.__qualname__} cannot be parsed ({exc})") from exc
    if not any(c == fn.__code__ for c in _codes(code)):
        raise CannotEmbed(f"the source of {fn.__qualname__} has changed since it was loaded")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _compiles_to(node: ast.Lambda | ast.AST, code: CodeType) -> bool:
    compiled = next(_codes(compile(ast.unparse(node), "<lambda>", "eval").co_consts[0]))
    names = {*code.co_names, *code.co_freevars}
    return (
        set(compiled.co_names) == names
        and compiled.co_varnames == code.co_varnames
        and (
            [c for c in compiled.co_consts if not isinstance(c, CodeType)]
            == [c for c in code.co_consts if not isinstance(c, CodeType)]
        )
    )
