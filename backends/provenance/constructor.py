"""How an instance was made: the call of its class that gives the same again, read from the source of ``__init__``.

Nothing is executed. A class qualifies if each parameter of ``__init__`` is kept as it was given, by a statement
``self.name = parameter`` of its body, ``**kwargs`` as a dict; the present value of that attribute is the argument.
So it is after ``parameter or DEFAULT``, ``list(parameter)`` and the like, which leave what they gave as it is.
What else the instance holds (counters, caches) starts afresh, as it does in a fresh process.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

#: What they give they leave as it is.
_CONVERTERS = ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "sorted", "str", "tuple")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(value: Any) -> dict[str, Any] | None:
    """Keyword arguments with which the class of ``value`` makes it again, None where that cannot be told.

    Arguments that are their default are left out. A class with ``__slots__`` or a ``__new__`` of its own is not read.
    """
    cls = type(value)
    makes: object = cls.__new__
    if makes is not object.__new__ or any(getattr(c, "__slots__", ()) for c in cls.__mro__):
        return None
    if not vars(value):
        return {}
    try:
        parameters = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return None
    kept = _kept(cls.__init__) if parameters else {}
    found: dict[str, Any] = {}
    for parameter in parameters:
        attribute = kept.get(parameter.name)
        if attribute is None or attribute not in vars(value):
            return None
        argument = vars(value)[attribute]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and type(argument) is dict:
            found |= argument
        elif parameter.kind not in _NAMED:
            return None
        elif argument is not parameter.default:
            found[parameter.name] = argument
    return found


def _kept(init: Any) -> dict[str, str]:
    """By parameter of ``__init__`` the attribute that holds it as it was given."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(init))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    if not isinstance(node, ast.FunctionDef) or not node.args.args:
        return {}
    me = node.args.args[0].arg
    rest = [node.args.kwarg] if node.args.kwarg is not None else []
    names = {a.arg for a in (*node.args.args[1:], *node.args.kwonlyargs, *rest)}
    rebound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    kept: dict[str, str] = {}
    for statement in node.body:
        for target, value in _assignments(statement):
            own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me
            if own and len(found := _settled(value) & (names - rebound)) == 1:
                kept.setdefault(found.pop(), target.attr)  # type: ignore[attr-defined]
    return kept


def _settled(value: ast.expr) -> set[str]:
    """The names of which ``value`` may be the value, such that it gives the same again where that is what they hold."""
    match value:
        case ast.Name(id=name):
            return {name}
        case ast.BoolOp(op=ast.Or(), values=[first, _]):
            return _settled(first)
        case ast.IfExp(body=one, orelse=other):
            return {branch.id for branch in (one, other) if isinstance(branch, ast.Name)}
        case ast.Call(func=ast.Name(id=converter), args=[given], keywords=[]) if converter in _CONVERTERS:
            return _settled(given)
    return set()


def _assignments(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Targets and values of a plain assignment, those of ``a, b = c, d`` one by one."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [(statement.target, statement.value)]
    if not isinstance(statement, ast.Assign):
        return []
    pairs = []
    for target in statement.targets:
        both = isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
        if both and len(target.elts) == len(statement.value.elts):  # type: ignore[attr-defined]
            pairs += list(zip(target.elts, statement.value.elts, strict=True))  # type: ignore[attr-defined]
        else:
            pairs.append((target, statement.value))
    return pairs
