"""The source of the running program: the statements of its script, and the definition of a live function."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from . import modules, syntax


class CannotEmbed(Exception):
    """Why something cannot be written down as source; the text is for the person who reads the capture."""


def statements(namespace: Mapping[str, Any]) -> list[ast.stmt]:
    """The statements of the running script, none where the namespace is another module's or has no source."""
    try:
        return list(syntax.statements(script(namespace)[0], script=True)) if is_script(namespace) else []
    except CannotEmbed:
        return []


def is_script(namespace: Mapping[str, Any]) -> bool:
    return namespace.get("__name__") in modules.SCRIPT


def reimportable(value: Any) -> tuple[str, str, str] | None:
    """``(module, name, directory)`` under which the running script can be imported to get ``value`` again.

    Only a script with an ``if __name__ == "__main__":`` guard may be imported: the guard says that this is harmless.
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
    if not modules.is_dotted(module) or taken:
        return None
    try:
        tree, _, _ = script(vars(main))
    except CannotEmbed:
        return None
    names = {n for node in syntax.statements(tree) for n in syntax.names_bound_by(node)}
    name = min((n for n, v in list(vars(main).items()) if v is value and n in names), default="")
    return (module, name, directory) if name and any(map(syntax.is_guard, tree.body)) else None


def script(namespace: Mapping[str, Any]) -> tuple[ast.Module, list[str], str]:
    """Syntax tree, lines and file of the running script."""
    file = namespace.get("__file__")
    lines = linecache.getlines(file) if isinstance(file, str) else []
    if not lines or not isinstance(file, str):
        raise CannotEmbed("the source of the running script is not available (an interactive session?)")
    return parse("".join(lines)), [line.rstrip("\n") for line in lines], file


def parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as exc:
        raise CannotEmbed(f"its file cannot be parsed ({exc})") from exc


def definition_of(fn: FunctionType) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, list[str]]:
    """The syntax of a live function and the lines of its file."""
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
    """Refuse a function that is not what its file says now: edited since it was loaded, or made by ``exec``."""
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
