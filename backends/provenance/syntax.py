"""Facts about Python source from its syntax alone, without live objects.

They are: the names that a module binds when it is imported, the backends that it registers, the names that a text reads
from outside, and the text of a statement.
"""

from __future__ import annotations

import ast
import re
import symtable
import textwrap
from collections.abc import Iterator

from ...store.parsing import parse

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_REGISTERS = re.compile(r"^register_\w*backend$")


def statements(tree: ast.AST, *, script: bool = False) -> Iterator[ast.stmt]:
    """Statements that an import of the module runs, with those nested in ``if``, ``try``, ``with`` and ``for``.

    Statements under ``if __name__ == "__main__":`` are included only if ``script``.
    """
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for item in getattr(tree, field, []):
            if isinstance(item, ast.stmt):
                yield item
                if isinstance(item, DEFINITIONS):
                    continue
            if isinstance(item, ast.If) and is_guard(item) and not script:
                for other in item.orelse:
                    yield other
                    yield from statements(other)
                continue
            yield from statements(item, script=script)


def is_guard(node: ast.stmt) -> bool:
    """Whether ``node`` is ``if __name__ == "__main__":``."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or len(node.test.comparators) != 1:
        return False
    sides = (node.test.left, node.test.comparators[0])
    return any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides) and any(
        isinstance(s, ast.Constant) and s.value == "__main__" for s in sides
    )


def bound_names(tree: ast.Module) -> frozenset[str]:
    """Names that an import of the module binds. ``*`` is one of them if the module may bind any name."""
    return frozenset(name for node in statements(tree) for name in names_bound_by(node)) | _anything(tree)


def names_bound_by(node: ast.stmt) -> Iterator[str]:
    """Names that one statement binds, without those that nested statements bind."""
    if isinstance(node, DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (a.asname or a.name.split(".")[0] for a in node.names)
    else:
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
            targets = [node.target]
        elif isinstance(node, ast.With | ast.AsyncWith):
            targets = [i.optional_vars for i in node.items if i.optional_vars is not None]
        for target in targets:
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from (n.target.id for n in ast.walk(child) if isinstance(n, ast.NamedExpr))


def _anything(tree: ast.Module) -> frozenset[str]:
    """``{"*"}`` if the module calls ``globals``, ``exec`` or ``vars`` and so may bind any name; else nothing."""
    dynamic = any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("globals", "exec", "vars")
        for s in statements(tree)
        if not isinstance(s, DEFINITIONS)
        for n in ast.walk(s)
    )
    return frozenset({"*"} if dynamic else ())


def free_names(text: str) -> list[str]:
    """Names that ``text`` reads and does not bind, sorted. Raises `SyntaxError`."""
    top = symtable.symtable(text, "<embedded>", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    read = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    pending = list(top.get_children())
    while pending:
        table = pending.pop()
        pending.extend(table.get_children())
        read |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return sorted(read - bound)


def first_line(node: ast.stmt) -> int:
    """The number of the first line of a statement or of its decorators, as in ``co_firstlineno``."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def segment(node: ast.stmt | ast.Lambda, lines: list[str]) -> str:
    """The text of ``node`` as it was written; unparsed if that is not ASCII or not the same statement alone."""
    unparsed = ast.unparse(node)
    if isinstance(node, ast.Lambda):
        written = ast.get_source_segment("\n".join(lines), node) or unparsed
        written = f"({written})" if "\n" in written else written
        return written if written.isascii() else unparsed.encode("ascii", "backslashreplace").decode()
    cut = textwrap.dedent("\n".join(lines[first_line(node) - 1 : node.end_lineno]))
    try:
        same = ast.dump(parse(cut)) == ast.dump(ast.Module([node], []))
    except SyntaxError:
        same = False
    if same and cut.isascii():
        return cut.strip("\n")
    return unparsed if unparsed.isascii() else unparsed.encode("ascii", "backslashreplace").decode()


def touches(node: ast.stmt, name: str) -> bool:
    """Whether a statement binds or may change ``name``: it assigns it or its parts, or is an expression with it."""
    if name in names_bound_by(node):
        return True
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete | ast.Expr):
        parts = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", node)]
        return any(isinstance(n, ast.Name) and n.id == name for p in parts for n in ast.walk(p))
    return False


def attributes_of(text: str, name: str) -> frozenset[str] | None:
    """The attributes that ``text`` reads of the object ``name``; None if it also uses the object otherwise."""
    tree = parse(text)
    chains = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    read = [n for n in chains if isinstance(n.value, ast.Name) and n.value.id == name]
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    plain = len(read) == len(uses) and all(isinstance(n.ctx, ast.Load) for n in read)
    return frozenset(n.attr for n in read) if plain else None


def dotted(node: ast.AST) -> list[str]:
    """``["a", "b", "c"]`` for ``a.b.c``, ``["a"]`` for a name; empty for any other expression."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    return [node.id, *path] if isinstance(node, ast.Name) else []


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Names of the modules that are imported anywhere in ``tree``, without relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def required_modules(tree: ast.Module) -> Iterator[str]:
    """Names of the modules that ``tree`` imports and cannot do without, also inside of functions, without relative
    imports. Imports in a ``try`` with a handler, in such a handler, and for type checkers are left out."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported_modules(node)
        elif isinstance(node, ast.Try) and node.handlers:
            waiting += [*node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def without_annotations(text: str) -> str:
    """``text`` without the annotations of its functions."""
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


def registered_names(tree: ast.Module, *, conditional: bool = True) -> frozenset[str]:
    """Names of the backends that an import of the module registers.

    Without ``conditional``, only those that it registers under no condition.
    """
    nodes = statements(tree) if conditional else tree.body
    return frozenset(n for node in nodes for n in names_registered_by(node))


def names_registered_by(node: ast.stmt) -> list[str]:
    """Names of the backends that one statement registers: a decorated function or class, or a call."""
    if isinstance(node, DEFINITIONS):
        return [n for d in node.decorator_list if (n := _registration(d, node.name)) is not None]
    if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
        name = _registration(node.value, None)
        return [name] if name is not None else []
    return []


def _registration(expr: ast.expr, default: str | None) -> str | None:
    """The name that ``register_backend``, ``register_backend(...)`` or ``register_backend(...)(fn)`` registers."""
    call = expr if isinstance(expr, ast.Call) else None
    func = call.func if call is not None else expr
    if isinstance(func, ast.Call) and call is not None:  # register_backend(name="x")(fn)
        return _registration(func, _name(call.args[0]) if call.args else default)
    if not _REGISTERS.match(_name(func) or ""):
        return None
    if call is None:
        return default
    arguments = {k.arg: k.value for k in call.keywords} | dict(zip(("compiler_fn", "name"), call.args, strict=False))
    given = arguments.get("name")
    if given is not None:
        return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None
    return _name(arguments["compiler_fn"]) if "compiler_fn" in arguments else default


def _name(expr: ast.expr) -> str | None:
    if isinstance(expr, ast.Attribute):
        return expr.attr
    return expr.id if isinstance(expr, ast.Name) else None


def is_registration(node: ast.expr) -> bool:
    """Whether a decorator only registers a backend and returns the function itself."""
    func = node.func if isinstance(node, ast.Call) else node
    return _REGISTERS.match(_name(func) or "") is not None
