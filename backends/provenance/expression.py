"""An *expression* describes a Python object as JSON. `build` makes the object, `Printer` prints its source.

Plain ``None``, ``bool``, ``int``, finite ``float``, ``str`` and lists describe themselves. All others have one tag:

| tag | content | prints as |
|---|---|---|
| ``float`` | ``"inf"``, ``"-inf"``, ``"nan"`` | ``float("inf")`` |
| ``bytes`` | hexadecimal | ``bytes.fromhex("00ff")`` |
| ``tuple``, ``set``, ``frozenset`` | list of expressions | the literal |
| ``dict`` | list of ``[key, value]`` | the literal |
| ``import`` | ``[module, attribute path]`` | the name, after ``from module import name`` |
| ``module`` | name | the name, after ``import name`` |
| ``op`` | ``"aten::relu.default"`` | ``torch.ops.aten.relu.default`` |
| ``get`` | ``[expression, attribute]`` | ``expression.attribute`` |
| ``call`` | ``{"func", "args", "kwargs"}`` | the call |
| ``embedded`` | a name in the embedded source | the name |

`store.document.recreation.check_expression` refuses everything else, so a document cannot put code into a printed name.
`build` imports modules and calls functions, so it is only used if a person agreed to run the case.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Mapping
from operator import attrgetter
from types import ModuleType
from typing import Any

from ...store.document.recreation import SEQUENCES, parts
from ...store.parsing import parse

Expression = Any
Json = dict[str, Any]

_SEQUENCES = dict(zip(SEQUENCES, (tuple, set, frozenset), strict=True))


def imported(e: Expression) -> list[str]:
    """Names of the modules that ``e`` imports, in their order, each once."""
    out: dict[str, None] = {}
    pending = [e]
    while pending:
        item = pending.pop(0)
        if type(item) is list:
            pending = item + pending
        elif type(item) is dict:
            ((tag, content),) = item.items()
            if tag == "import":
                out[content[0]] = None
            elif tag == "module":
                out[content] = None
            pending = parts(tag, content) + pending
    return list(out)


def build(e: Expression, embedded: Mapping[str, Any]) -> Any:
    """The object that ``e`` describes. Imports modules and calls functions. ``embedded`` is the embedded namespace."""
    if type(e) is list:
        return [build(item, embedded) for item in e]
    if type(e) is not dict:
        return e
    ((tag, content),) = e.items()
    made = [build(part, embedded) for part in parts(tag, content)]
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](made)
    if tag == "dict":
        return dict(zip(made[::2], made[1::2], strict=True))
    if tag == "call":
        count = 1 + len(content["args"])
        return made[0](*made[1:count], **dict(zip(content["kwargs"], made[count:], strict=True)))
    if tag == "get":
        return _attribute(made[0], content[1])
    if tag == "import":
        return _attribute(importlib.import_module(content[0]), content[1])
    if tag == "module":
        return importlib.import_module(content)
    if tag == "embedded":
        return embedded[content]
    if tag == "op":
        return attrgetter(content.replace("::", "."))(importlib.import_module("torch").ops)
    return float(content) if tag == "float" else bytes.fromhex(content)


def _attribute(found: Any, path: str) -> Any:
    """Return ``found.path``. Refuse a step from a module to an unrelated module, which the user did not agree to."""
    for name in path.split("."):
        holder, found = found, getattr(found, name)
        if isinstance(found, ModuleType) and isinstance(holder, ModuleType):
            inside = found.__name__.startswith(f"{holder.__name__}.") or holder.__name__.partition(".")[0] == "torch"
            if not inside or found.__name__.partition(".")[0] in sys.stdlib_module_names:
                raise AttributeError(f"{holder.__name__}.{name} is another module: {found.__name__}")
    return found


class Printer:
    """Prints expressions as source and collects their import lines in ``imports``.

    A name in ``reserved`` is imported as ``module_name``. If ``qualified``, names are printed as ``module.name`` after
    ``import module``.
    """

    def __init__(self, reserved: frozenset[str] = frozenset(), *, qualified: bool = False) -> None:
        self.imports: dict[str, None] = {}
        self._reserved = set(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._qualified = qualified

    def text(self, e: Expression) -> str:
        if type(e) is list:
            return "[" + ", ".join(map(self.text, e)) + "]"
        if type(e) is not dict:
            text = ascii(e)
            return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text
        ((tag, content),) = e.items()
        if tag == "call":
            func = self.text(content["func"])
            args = [self.text(a) for a in content["args"]]
            args += [f"{k}={self.text(v)}" for k, v in content["kwargs"].items()]
            return f"{func}({', '.join(args)})"
        if tag == "import":
            return self.name(content[0], content[1])
        if tag == "get":
            return f"{self.text(content[0])}.{content[1]}"
        if tag == "op":
            self.imports["import torch"] = None
            return f"torch.ops.{content.replace('::', '.')}"
        if tag == "module":
            self.imports[f"import {content}"] = None
            return str(content)
        if tag == "embedded":
            return str(content)
        if tag == "dict":
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in content) + "}"
        if tag == "tuple":
            return "(" + ", ".join(map(self.text, content)) + ("," if len(content) == 1 else "") + ")"
        if tag in ("set", "frozenset"):
            inside = ", ".join(map(self.text, content))
            literal = "{" + inside + "}" if inside else ""
            return literal or "set()" if tag == "set" else f"frozenset({literal})"
        return f'float("{content}")' if tag == "float" else f'bytes.fromhex("{content}")'

    def name(self, module: str, path: str) -> str:
        """The name of ``module.path`` in the printed source."""
        first, _, rest = path.partition(".")
        if module == "builtins":
            return path
        if self._qualified or module == "torch":
            self.imports[f"import {module}"] = None
            return f"{module}.{path}"
        if (module, first) not in self._names:
            local = first
            while local in self._reserved:
                local = f"{module.rpartition('.')[2]}_{local}"
            self._reserved.add(local)
            self._names[module, first] = local
            self.imports[f"from {module} import {first}" + (f" as {local}" if local != first else "")] = None
        local = self._names[module, first]
        return f"{local}.{rest}" if rest else local


#: Functions that return the same value for their own result.
_CONVERTERS = ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "sorted", "str", "tuple")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def constructor_arguments(value: Any) -> dict[str, Any] | None:
    """Keyword arguments with which the class of ``value`` makes an equal object, None if they are not known.

    Arguments with their default value are left out. A class with ``__slots__`` or its own ``__new__`` is not analysed.
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
    """For parameters of ``__init__``, the attributes that hold their values unchanged."""
    try:
        (node,) = parse(textwrap.dedent(inspect.getsource(init))).body
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
            if own and len(found := forwarded(value) & (names - rebound)) == 1:
                kept.setdefault(found.pop(), target.attr)  # type: ignore[attr-defined]
    return kept


def forwarded(value: ast.expr) -> set[str]:
    """Names of arguments that ``value`` may be: as they are, or converted so that converting again changes nothing."""
    match value:
        case ast.Name(id=name):
            return {name}
        case ast.BoolOp(op=ast.Or(), values=[first, _]):
            return forwarded(first)
        case ast.IfExp(body=one, orelse=other):
            return {branch.id for branch in (one, other) if isinstance(branch, ast.Name)}
        case ast.Call(func=ast.Name(id=converter), args=[given], keywords=[]) if converter in _CONVERTERS:
            return forwarded(given)
    return set()


def _assignments(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Pairs of target and value of an assignment, two of them for ``a, b = c, d``; none for another statement."""
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
