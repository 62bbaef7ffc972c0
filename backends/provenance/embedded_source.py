"""Embedded source: the source of a function that is defined in the running script or inside another function.

Such a function cannot be imported, so the case has its text, after the globals and closure cells that it uses: modules
as ``import x as y``, importable objects as ``from m import n``, other functions and classes of the script as their own
text, plain values as ``NAME = value``. There are four rules:

* The text must match the live function: a code object compiled from it must equal the function's.
* Capturing executes nothing: the text only has to pass ``compile()``.
* Text that is not the program's own (a variable's value, a path below the home directory) never becomes a literal: its
  assignment is embedded instead, or it is refused (`private`).
* A value that cannot be written as source is refused, with the name of the global or the cell.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from ...store.document.recreation import CONTROL, is_dotted
from ...store.parsing import parse
from ..running.exceptions import portable
from . import modules, private, syntax
from .expression import Expression, Printer
from .modules import CannotEmbed

_IMPLICIT = frozenset({"__name__", "__doc__", "__builtins__", "__debug__", "__spec__"})


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """Complete source: its import lines, the text after them, and the base name of the file that it is from."""

    imports: tuple[str, ...]
    text: str
    file: str

    @property
    def source(self) -> str:
        return "\n".join(self.imports) + ("\n\n\n" if self.imports else "") + self.text

    def tree(self) -> ast.Module:
        return parse(self.source)

    def modules(self) -> list[str]:
        """Names of the modules that the source imports, also inside of functions."""
        return list(dict.fromkeys(syntax.imported_modules(self.tree())))

    def names(self) -> frozenset[str]:
        """Names that the source binds at top level."""
        return syntax.bound_names(self.tree())


class Embedder:
    """Collects the source of functions. ``express`` returns the expression of a live value or raises `CannotEmbed`."""

    def __init__(self, express: Callable[[Any], Expression]) -> None:
        self._express = express
        self._imports: dict[str, None] = {}
        self._blocks: list[str] = []
        self._bound: dict[str, Any] = {}
        self._open: set[str] = set()
        self._read: dict[str, frozenset[str]] = {}
        self._file = ""

    def embedded(self) -> EmbeddedSource | None:
        """All that was collected, None if that is nothing. Raises `CannotEmbed` if it is no valid source."""
        if not self._blocks:
            return None
        # `import a.b` includes `import a`, unless it binds another name.
        longer = [i for i in self._imports if " as " not in i]
        imports = [i for i in sorted(self._imports) if not any(o.startswith(i + ".") for o in longer)]
        out = EmbeddedSource(tuple(imports), _joined(self._blocks), self._file)
        try:
            compile(out.source, "<embedded>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as exc:
            raise CannotEmbed(f"its source does not stand on its own ({exc})") from exc
        if CONTROL.search(out.source):
            raise CannotEmbed("its source has a control character")
        private.check_source(out.source)
        return out

    def mark(self) -> tuple[Any, ...]:
        """The state for `reset`, in case that embedding something fails half-way."""
        return dict(self._imports), list(self._blocks), dict(self._bound), self._file

    def reset(self, mark: tuple[Any, ...]) -> None:
        self._imports, self._blocks, self._bound, self._file = mark

    def function(self, fn: FunctionType, name: str = "") -> str:
        """Embed ``fn``. Returns the name that its text binds. Raises `CannotEmbed`."""
        inner = inspect.unwrap(fn)
        script_global = next((n for n in (fn.__name__, name) if n and fn.__globals__.get(n) is fn), "")
        if not isinstance(inner, FunctionType):
            raise CannotEmbed(f"{fn.__qualname__} wraps {type(inner).__name__}, which has no source")
        if script_global and modules.is_script(fn.__globals__):
            self.bind(script_global, fn, fn.__globals__, fn.__qualname__)
            return script_global
        node, lines = modules.definition_of(inner)
        wrapped = inner is not fn
        if wrapped and not (isinstance(node, syntax.DEFINITIONS) and node.decorator_list and node.name == fn.__name__):
            raise CannotEmbed(f"{fn.__qualname__} is a wrapper made inside another function")
        if isinstance(node, ast.Lambda):
            named = (n for n, v in fn.__globals__.items() if v is fn and self.has_statement(n, fn.__globals__))
            name = min(named, default=name or "backend")
            text = f"{name} = {syntax.segment(node, lines)}"
        else:
            if not wrapped:
                node.decorator_list = [d for d in node.decorator_list if syntax.is_registration(d)]
            name = node.name
            text = syntax.segment(node, lines)
        if name in self._bound and self._bound[name] is not fn:
            raise CannotEmbed(f"two objects are called {name!r}")
        self._bound[name] = fn
        self._add(text, _cells(inner), inner.__globals__, fn.__qualname__, inner.__code__.co_filename)
        return name

    def bind(self, name: str, value: Any, namespace: Mapping[str, Any], user: str, *, what: str = "global") -> None:
        """Bind ``name`` to ``value`` in the embedded source. Raises `CannotEmbed`, whose message names ``user``."""
        if name in self._open:
            raise CannotEmbed(f"{name!r} needs itself")
        if name in self._bound:
            if self._bound[name] is value or _same_plain(self._bound[name], value):
                return
            raise CannotEmbed(f"two objects are called {name!r}")
        self._bound[name] = value
        if isinstance(value, ModuleType):
            self._imports[_import_line(value, name)] = None
            return
        try:
            imported = self._imported(name, value, namespace) or self._importable(name, value)
            if not (imported or self._defined(name, value, namespace)):
                self._written(name, value, namespace if what == "global" else {})
        except CannotEmbed as exc:
            reason = f"the {what} {name!r} of {user}, {_describe(value)}, cannot be written down"
            raise exc if str(exc).startswith("the ") else CannotEmbed(f"{reason}: {exc}") from exc

    def _imported(self, name: str, value: Any, namespace: Mapping[str, Any]) -> bool:
        """Repeat the script's own ``from m import n``, if that gives ``value``. Returns whether it did."""
        for node in modules.statements(namespace):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level and name in _bound_by(node):
                original = next((a.name for a in node.names if (a.asname or a.name) == name), name)
                if getattr(sys.modules.get(node.module), original, None) is value:
                    self._imports[_from_line(node.module, original, name)] = None
                    return True
        return False

    def _settings(self, name: str, value: Any, namespace: Mapping[str, Any], user: str, text: str) -> bool:
        """Embed those command-line arguments that ``text`` reads of the namespace ``value``. Returns whether it did.

        The other arguments may be private.
        """
        if type(value) not in (argparse.Namespace, SimpleNamespace):
            return False
        used, known = syntax.attributes_of(text, name), self._read.get(name, frozenset())
        if used is None or self._bound.get(name, value) is not value:
            return False
        self._read[name] = known | used
        place = len(self._blocks)
        if name in self._bound:
            del self._bound[name]
            place = next(i for i, b in enumerate(self._blocks) if b.startswith(f"{name} = "))
            del self._blocks[place]
        part = type(value)(**{k: v for k, v in sorted(vars(value).items()) if k in known | used})
        self.bind(name, part, namespace, user)
        self._blocks.insert(place, self._blocks.pop())
        self._bound[name] = value
        return True

    def _importable(self, name: str, value: Any) -> bool:
        found = None if _is_plain(value) else modules.find(value)
        if found is None:
            return False
        module, path = found
        first, _, rest = path.partition(".")
        if rest:
            self._imports[f"import {module}"] = None
            self._blocks.append(f"{name} = {module}.{path}")
        else:
            self._imports[_from_line(module, first, name)] = None
        return True

    def _defined(self, name: str, value: Any, namespace: Mapping[str, Any]) -> bool:
        """Embed the ``def`` or ``class`` statement of the script that binds ``name``. Returns whether it did."""
        if not modules.is_script(namespace):
            return False
        tree, lines, file = modules.script(namespace)
        nodes = [n for n in syntax.statements(tree, script=True) if name in _bound_by(n)]
        definitions = [n for n in nodes if isinstance(n, syntax.DEFINITIONS)]
        inner = inspect.unwrap(value) if callable(value) else value
        if isinstance(inner, FunctionType):
            line = modules.line_in_script(inner, namespace)
            definitions = [n for n in definitions if syntax.first_line(n) == line]
        elif len(nodes) > 1:
            return False
        if len(definitions) != 1:
            return False
        self._add(syntax.segment(definitions[0], lines), {}, namespace, name, file)
        return True

    def _written(self, name: str, value: Any, namespace: Mapping[str, Any]) -> None:
        """Embed ``name = expression``, or the assignment of the script that made the value. Raises `CannotEmbed`."""
        if _is_plain(value) and any(not private.in_program(text) for text in private.texts(value)):
            where = private.origin(name, namespace)
            if where is private.Origin.MACHINE and self._assigned(name, namespace):
                return
            known = all(private.in_program(t) or private.expression_for(t) for t in private.texts(value))
            if where is not private.Origin.INSIDE and not known:
                raise CannotEmbed(
                    f"its value comes from outside the program and may be private; write it into {name} as a literal"
                )
        printer = Printer(qualified=True)
        self._open.add(name)
        try:
            text = printer.text(self._express(value))
        except CannotEmbed:
            if not self._assigned(name, namespace):
                raise
            return
        finally:
            self._open.discard(name)
        for line in printer.imports:
            top = line.split()[1].partition(".")[0]
            if not isinstance(self._bound.setdefault(top, sys.modules.get(top)), ModuleType):
                raise CannotEmbed(f"the name {top!r} means something else there")
        self._imports.update(printer.imports)
        if text != name:
            self._blocks.append(f"{name} = {text}")

    def _assigned(self, name: str, namespace: Mapping[str, Any]) -> bool:
        """Embed the one assignment of the script to ``name``, if nothing else touches it. Returns whether it did."""
        nodes = [n for n in modules.statements(namespace) if syntax.touches(n, name)]
        if len(nodes) != 1 or not isinstance(nodes[0], ast.Assign | ast.AnnAssign):
            return False
        targets = nodes[0].targets if isinstance(nodes[0], ast.Assign) else [nodes[0].target]
        if not isinstance(targets[0], ast.Name):
            return False
        _, lines, file = modules.script(namespace)
        self._open.discard(name)
        self._add(syntax.segment(nodes[0], lines), {}, namespace, name, file)
        return True

    def has_statement(self, name: str, namespace: Mapping[str, Any]) -> bool:
        """Whether the script binds ``name`` by one definition or assignment that `bind` could embed."""
        nodes = [n for n in modules.statements(namespace) if syntax.touches(n, name)]
        return len(nodes) == 1 and isinstance(nodes[0], (*syntax.DEFINITIONS, ast.Assign, ast.AnnAssign))

    def statement(self, node: ast.stmt, namespace: Mapping[str, Any], already: Iterable[str] = ()) -> None:
        """Embed one statement of the script as it is. Other statements embedded so bind the names ``already``."""
        _, lines, file = modules.script(namespace)
        self._bound.update({n: namespace.get(n) for n in already})
        self._bound.update({n: namespace.get(n) for n in syntax.names_bound_by(node)})
        self._add(syntax.segment(node, lines), {}, namespace, f"line {node.lineno}", file)

    def _add(self, text: str, cells: Mapping[str, Any], namespace: Mapping[str, Any], user: str, file: str) -> None:
        """Append a block of source, after all that it needs. Raises `CannotEmbed`."""
        self._file = self._file or portable(file)
        if any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(parse(text))):
            raise CannotEmbed(f"{user} imports relative to its package")
        missing = []
        for name in syntax.free_names(text):
            if name in cells:
                self.bind(name, cells[name], namespace, user, what="closure cell")
            elif name == "__file__":
                raise CannotEmbed(f"the global '__file__' of {user} would be another file elsewhere")
            elif name in namespace and name not in _IMPLICIT:
                if not self._settings(name, namespace[name], namespace, user, text):
                    self.bind(name, namespace[name], namespace, user)
            elif name not in _IMPLICIT and not hasattr(builtins, name):
                missing.append(name)
        if missing:
            text = syntax.without_annotations(text)
            if undefined := [n for n in syntax.free_names(text) if n in missing]:
                raise CannotEmbed(f"{user} uses the name {undefined[0]!r}, which is not defined")
        for module in _submodules(text, namespace):
            self._imports[f"import {module}"] = None
        self._blocks.append(text)


def _joined(blocks: list[str]) -> str:
    """The blocks of source with two blank lines around definitions and none between values."""
    out = ""
    for before, block in zip(["", *blocks], blocks, strict=False):
        both_values = not _is_definition(before) and not _is_definition(block)
        out += ("" if not before else "\n" if both_values else "\n\n\n") + block
    return out


def _is_definition(block: str) -> bool:
    return block.startswith(("def ", "class ", "@", "async "))


def _bound_by(node: ast.stmt) -> set[str]:
    return set(syntax.names_bound_by(node))


def _from_line(module: str, original: str, name: str) -> str:
    return f"from {module} import {original}" + (f" as {name}" if name != original else "")


def _submodules(text: str, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Loaded submodules that ``text`` uses as attributes (``a.b.c``): another process must import them, too."""
    for node in ast.walk(parse(text)):
        path = syntax.dotted(node)
        root = namespace.get(path[0]) if len(path) > 1 else None
        if isinstance(root, ModuleType) and hasattr(root, "__path__") and root.__name__ == path[0] != "torch":
            reached = (".".join(path[:length]) for length in range(len(path), 1, -1))
            yield from [m for m in reached if isinstance(sys.modules.get(m), ModuleType)][:1]


def _import_line(module: ModuleType, name: str) -> str:
    actual = module.__name__
    if actual in modules.SCRIPT or sys.modules.get(actual) is not module or not is_dotted(actual):
        raise CannotEmbed(f"the module {name!r} cannot be imported by name")
    return f"import {actual}" if actual == name else f"import {actual} as {name}"


def _cells(fn: FunctionType) -> dict[str, Any]:
    out = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            raise CannotEmbed(f"the closure cell {name!r} of {fn.__qualname__} is still empty") from None
        if out[name] is fn:
            del out[name]
    return out


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def _same_plain(a: Any, b: Any) -> bool:
    return _is_plain(a) and type(a) is type(b) and bool(a == b)


def _describe(value: Any) -> str:
    kind = type(value)
    name = kind.__name__ if kind.__module__ in ("builtins", *modules.SCRIPT) else f"{kind.__module__}.{kind.__name__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
