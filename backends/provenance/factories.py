"""Factories: the call of an importable function or method that returned a closure.

A closure that a package made is better called for than copied: a script with ``make_backend(2)`` sees what its vendor
mends later. The call is read from the source of the factory and from the cells of the closure. Nothing is called here:
whether a backend that was made so shows the failure is for a worker to find out.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any

from . import modules, syntax
from .expression import forwarded
from .modules import CannotEmbed

_LOCALS = ".<locals>."
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
#: A parameter whose argument is not known, and may be left out.
_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class FactoryCall:
    """The calls that return a closure: of ``path`` of ``module``, then of what that returned, for each pair of
    positional and keyword ``arguments``. ``owner`` is the object or class whose method the factory is, None for a
    function. ``wraps`` is True if the factory returns something that it made of the closure, and not the closure
    itself.
    """

    module: str
    path: str
    owner: Any
    arguments: tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...]
    wraps: bool


def call_of(value: FunctionType) -> FactoryCall | None:
    """The call that returns ``value``, None if no importable factory is known to return it.

    None for a function of the running script, too, whose decorators are factories: its own statement says all.
    """
    inner = inspect.unwrap(value)
    if not isinstance(inner, FunctionType) or modules.is_script(inner.__globals__):
        return None
    found = _made(inner, decorated=inner is not value)
    return _made(value, decorated=False) if found is None and inner is not value else found


def _made(closure: FunctionType, *, decorated: bool) -> FactoryCall | None:
    """The call that returns ``closure``, or with ``decorated`` what the decorators of its definition made of it."""
    module = closure.__globals__.get("__name__")
    path, *inside = closure.__code__.co_qualname.split(_LOCALS)
    if not inside or "<" in path or not isinstance(module, str) or not _binds(module, path):
        return None
    holder = _holder(module, path)
    factory = getattr(holder, path.rpartition(".")[2], None)
    factory = inspect.unwrap(getattr(factory, "__func__", factory)) if callable(factory) else None
    if not isinstance(factory, FunctionType):
        return None
    chain = _codes_down_to(factory.__code__, closure.__code__)
    if len(chain) != len(inside) + 1:
        return None
    try:
        definition, _ = modules.definition_of(factory)
        cells = _cells(closure)
    except CannotEmbed:
        return None
    definitions = _definitions(definition, [code.co_name for code in chain[1:]])
    if definitions is None or (decorated and not _decorators(definitions[-1])):
        return None
    levels, wraps = _levels_to_call(definitions, decorated)
    owner, arguments = None, []
    for level, node in enumerate(definitions[:levels]):
        names = dict(cells)
        for deeper in definitions[level + 1 :]:  # a name that is bound further inside is another variable
            for name in _bound(deeper):
                names.pop(name, None)
        defaults = _defaults(factory) if level == 0 else {}
        bound_to_first = level == 0 and isinstance(holder, type) and _takes_owner(holder, path)
        if bound_to_first:
            first = node.args.args[0].arg if node.args.args else ""
            if first not in names:
                return None
            owner = names.pop(first)
        given = _arguments(node, names, defaults, skip=bound_to_first)
        if given is None:
            return None
        arguments.append(given)
    return FactoryCall(module, path, owner, tuple(arguments), wraps)


def _binds(module: str, path: str) -> bool:
    return module not in modules.SCRIPT and module in sys.modules and modules.binds(module, path)


def _holder(module: str, path: str) -> Any:
    """The module or class that has the factory as an attribute, None if it is not there."""
    outer, _, name = path.rpartition(".")
    try:
        holder = attrgetter(outer)(sys.modules[module]) if outer else sys.modules[module]
        return holder if callable(getattr(holder, name)) else None
    except Exception:  # noqa: BLE001  a module's __getattr__ may raise anything
        return None


def _takes_owner(holder: type, path: str) -> bool:
    """Whether the attribute of a class is a method or class method, whose first parameter is not given by a caller."""
    return not isinstance(inspect.getattr_static(holder, path.rpartition(".")[2]), staticmethod)


def _codes_down_to(outer: CodeType, wanted: CodeType) -> list[CodeType]:
    """The code objects from ``outer`` to ``wanted``, each among the constants of the one before; empty if there are
    none."""
    if outer is wanted or outer == wanted:
        return [outer]
    for const in outer.co_consts:
        if isinstance(const, CodeType) and (found := _codes_down_to(const, wanted)):
            return [outer, *found]
    return []


def _cells(closure: FunctionType) -> dict[str, Any]:
    """The values of the cells of ``closure``, and of the functions of the same factory among them."""
    factory = closure.__code__.co_qualname.partition(_LOCALS)[0] + _LOCALS
    found: dict[str, Any] = {}
    pending = [closure]
    seen: set[int] = set()
    while pending:
        function = pending.pop(0)
        if id(function) in seen:
            continue
        seen.add(id(function))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            found.setdefault(name, value)
            inner = inspect.unwrap(value) if callable(value) else value
            same_module = isinstance(inner, FunctionType) and inner.__globals__ is closure.__globals__
            if same_module and inner.__code__.co_qualname.startswith(factory):
                pending.append(inner)
    return found


def _definitions(outer: ast.AST, names: list[str]) -> list[_Definition] | None:
    """The definitions of ``outer`` and of functions of ``names``, each inside the one before. None where it is not
    certain which they are."""
    if not isinstance(outer, _Definition):
        return None
    found: list[_Definition] = [outer]
    for name in names:
        candidates = _returned(found[-1]) if name == "<lambda>" else syntax.statements(found[-1])
        inside = [n for n in candidates if isinstance(n, _Definition) and getattr(n, "name", "<lambda>") == name]
        if len(inside) != 1:
            return None
        found.append(inside[0])
    return found


def _levels_to_call(definitions: list[_Definition], decorated: bool) -> tuple[int, bool]:
    """Count the outer ``definitions`` that a user of the factory calls, and decide whether the last one returns
    something that it made of the closure."""
    if not decorated and _decorators(definitions[-1]):
        return 1, True
    calls = 1
    for outer, inner in pairwise(definitions):
        last = inner is definitions[-1]
        returned = _returned(outer)
        if all(value is inner or _is_name(value, inner) for value in returned):
            calls += not last
        elif last or not all(isinstance(value, ast.Call) and _is_name(value.func, inner) for value in returned):
            return calls, True
    return calls, False


def _decorators(node: _Definition) -> list[ast.expr]:
    """The decorators that may replace the function."""
    return [d for d in getattr(node, "decorator_list", ()) if not syntax.is_registration(d) and not _is_wraps(d)]


def _is_wraps(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and syntax.dotted(decorator.func)[-1:] == ["wraps"]


def _returned(function: _Definition) -> list[ast.expr | None]:
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [n.value for n in syntax.statements(function) if isinstance(n, ast.Return)]


def _is_name(value: ast.expr | None, of: _Definition) -> bool:
    return isinstance(value, ast.Name) and value.id == getattr(of, "name", "")


def _bound(function: _Definition) -> Iterator[str]:
    """The names of the parameters and variables of a function."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    yield from (a.arg for a in every if a is not None)
    for node in () if isinstance(function, ast.Lambda) else syntax.statements(function):
        yield from syntax.names_bound_by(node)


def _defaults(factory: FunctionType) -> dict[str, Any]:
    parameters = inspect.signature(factory, follow_wrapped=False).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _arguments(
    node: _Definition, cells: Mapping[str, Any], defaults: Mapping[str, Any], *, skip: bool
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call of the function, None if one is not known that has no default.

    Arguments that are their defaults are left out. A single argument for the first parameter has no keyword.
    """
    spec = node.args
    positional = [*(a.arg for a in spec.posonlyargs), *(a.arg for a in spec.args)][skip:]
    optional = {a for a, _ in zip(reversed(positional), reversed(spec.defaults), strict=False)}
    optional |= {a.arg for a, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is not None}
    given: dict[str, Any] = {}
    for name in (*positional, *(a.arg for a in spec.kwonlyargs)):
        value = cells.get(name, _UNKNOWN) if _keeps(node, name) else _UNKNOWN
        if value is _UNKNOWN:
            if name not in optional:
                return None
        elif not (name in defaults and _same(value, defaults[name])):
            given[name] = value
    rest = cells.get(spec.vararg.arg, ()) if spec.vararg is not None else ()
    more = cells.get(spec.kwarg.arg, {}) if spec.kwarg is not None else {}
    if type(rest) is not tuple or type(more) is not dict:
        return None
    if rest:
        if any(name not in given for name in positional):
            return None
        first = tuple(given.pop(name) for name in positional)
        return (*first, *rest), {**given, **more}
    required = [a.arg for a in spec.posonlyargs][skip:]
    first_only = [*given] == positional[:1] and not more
    by_place = positional[:1] if first_only else [name for name in required if name in given]
    if by_place != positional[: len(by_place)]:
        return None
    return tuple(given.pop(name) for name in by_place), {**given, **more}


def _keeps(function: _Definition, name: str) -> bool:
    """Whether the variable ``name`` of a function still has the value of the argument, or one that gives it again."""
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return False
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and name in syntax.names_bound_by(node):
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if name in read and name not in forwarded(node.value):
                return False
    return True


def _same(value: Any, default: Any) -> bool:
    plain = (bool, int, float, str, bytes, type(None))
    return value is default or (type(value) is type(default) and isinstance(value, plain) and value == default)
