"""`BackendSpec`: how to load a backend in another process, as plain data.

A spec both compiles (`BackendSpec.compile`, `load`, `callable`) and prints the lines of a script that compile
(`BackendSpec.to_source`). Both use the same expression, so the oracle and the script do the same. The module
`backends.provenance.origin` makes specs of live backends. This module imports torch only to load a backend. To read a
spec imports and executes nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ...store import codec
from ...store.document.recreation import check_backend
from .embedded_source import EmbeddedSource
from .expression import Expression, Printer, build, imported

Json = dict[str, Any]

_INLINE = 60


class InvalidSpec(ValueError):
    """The description of a backend in a file is not valid."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a capture names a backend that cannot be read: {what}")


class CannotLoad(Exception):
    """A backend or an operator cannot be loaded here. The message says why and, if known, what to do."""


@dataclass(frozen=True, slots=True)
class SpecSource:
    """The lines of a script that load a backend: ``imports``, ``setup``, then ``torch.compile(f, {arguments})``.

    The script must not use ``names`` for anything else.
    """

    imports: list[str]
    setup: list[str]
    arguments: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class CopiedBackend:
    """The fields of a `BackendSpec` that copies what another one calls a factory for."""

    how: str = "source"
    target: Expression = None
    options: Expression = None
    source: EmbeddedSource | None = None


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """The description from which a backend is loaded.

    * ``target`` is an expression (`backends.provenance.expression`) for the argument of
      ``torch.compile(backend=...)``: a registered name, or the backend itself.
    * ``module`` is imported first, because it registers the name. torch's own names need no module, and torch
      itself finds the ``entry_point`` of an installed ``distribution``.
    * ``how`` names the way in one word: ``registered``, ``entry_point``, ``attribute``, ``partial``,
      ``aot_autograd``, ``instance``, ``method``, ``factory``, ``source`` (embedded) or ``unknown``.
    * ``search_path`` has directories of this machine, which are never printed.
    * ``variables`` are the names of environment variables that were set and that the backend reads. ``environment``
      has the values that may be printed. ``required`` names variables without a value that the failure certainly
      needs.
    * ``problem`` is the reason why the backend cannot be loaded elsewhere, or empty.
    * ``copied`` is used if the factory that ``target`` calls makes another backend: see `ways`.
    """

    name: str = ""
    how: str = "unknown"
    target: Expression = None
    module: str = ""
    entry_point: str = ""
    distribution: str = ""
    options: Expression = None
    mode: str | None = None
    dynamic: bool | None = None
    source: EmbeddedSource | None = None
    search_path: tuple[str, ...] = field(default=(), compare=False)
    variables: tuple[str, ...] = field(default=(), compare=False)
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    required: tuple[str, ...] = field(default=(), compare=False)
    problem: str = ""
    copied: CopiedBackend | None = None

    def to_json(self) -> Json:
        """The spec as a JSON object, without fields that have their default."""
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(self)}
        out: Json = {k: v for k, v in codec.dump(self).items() if v != defaults[k]}
        sources = [doc["source"] for doc in (out, out.get("copied", {})) if doc.get("source")]
        tuples = ("search_path", "variables", "required")
        for holder, key in (*((out, key) for key in tuples), *((source, "imports") for source in sources)):
            if key in holder:
                holder[key] = list(holder[key])  # JSON has no tuples
        return out

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> BackendSpec:
        """Inverse of `to_json`. Checks all of ``doc`` and executes nothing. Raises `InvalidSpec`."""
        if unknown := set(doc) - {f.name for f in fields(cls)}:
            raise InvalidSpec(f"a backend has no field {min(map(str, unknown))!r}")
        try:
            spec = codec.load(doc, cls)
            check_backend(doc)
        except ValueError as error:
            raise InvalidSpec(str(error).replace("`$.", "`backend.")) from error
        return spec

    @property
    def attr(self) -> str:
        """The attribute path of the backend in its module; empty if it is not imported from one."""
        if type(self.target) is dict and "import" in self.target:
            return str(self.target["import"][1])
        return self.entry_point.partition(":")[2]

    def ways(self) -> list[BackendSpec]:
        """The specs to try in order: this one, then the one with copied source, if there is one."""
        if (copy := self.copied) is None:
            return [self]
        called = replace(self, copied=None)
        return [called, replace(called, how=copy.how, target=copy.target, options=copy.options, source=copy.source)]

    def modules(self) -> list[str]:
        """The modules, other than torch's, that loading the backend imports."""
        names = [self.module, *imported(self.target), *imported(self.options)]
        names += self.source.modules() if self.source is not None else []
        return [n for n in dict.fromkeys(names) if n and n.partition(".")[0] not in ("torch", "builtins", "functools")]

    def executes(self) -> list[str]:
        """All that loading and calling this backend runs, in lines for a person to agree to; source has one each."""
        if len(ways := self.ways()) > 1:
            first, copied = (way.executes() for way in ways)
            return [*first, "where that does not show the failure:", *(line for line in copied if line not in first)]
        lines = searches(self.search_path)
        lines += [f"sets the environment variable {name} to {value!r}" for name, value in self.environment.items()]
        if self.source is not None:
            lines += runs(self.source, "that define the backend")
        lines += [f"imports {name}" for name in self.modules()]
        if self.entry_point:
            owner = f" of {self.distribution}" if self.distribution else ""
            lines.append(f"loads the entry point {self.entry_point}{owner}")
        printer = Printer(qualified=True)
        arguments = [f"{key}={printer.text(value)}" for key, value in self._arguments()]
        return [*lines, f"calls the backend {self.name or 'without a name'}: torch.compile({', '.join(arguments)})"]

    def _arguments(self) -> list[tuple[str, Expression]]:
        given = [("options", self.options), ("mode", self.mode), ("dynamic", self.dynamic)]
        return [("backend", self.target), *((key, value) for key, value in given if value is not None)]

    def load(self) -> Any:
        """Load the backend, and return the argument of ``torch.compile(backend=...)``. Raises `CannotLoad`."""
        if self.problem:
            raise CannotLoad(self.problem)
        extend_path(self.search_path)
        try:
            if self.module:
                importlib.import_module(self.module)
            if type(self.target) is str:
                return self._registered(self.target)
            return build(self.target, self._namespace())
        except CannotLoad:
            raise
        except Exception as exc:
            raise CannotLoad(f"backend {self.name!r}: {type(exc).__name__}: {exc}") from exc

    def _registered(self, name: str) -> str | Callable[..., Any]:
        """``name`` if torch knows it, or the function of an entry point whose metadata is not installed."""
        from . import registry

        if name not in registry.registered():
            if self.entry_point:
                module, _, attr = self.entry_point.partition(":")
                found: Callable[..., Any] = build({"import": [module, attr]}, {})
                return found
            self._namespace()
        if name not in registry.registered():
            raise CannotLoad(f"importing {self.module or 'torch'} registers no backend called {name!r}")
        return name

    def _namespace(self) -> Mapping[str, Any]:
        return {} if self.source is None else run(self.source)

    def options_dict(self) -> dict[str, Any] | None:
        """A new ``options`` dictionary or None. It is new because `torch.compile` removes entries from its argument."""
        return None if self.options is None else build(self.options, self._namespace())

    def callable(self) -> Callable[[Any, Any], Any]:
        """The function ``(gm, inputs)`` that `torch.compile` would call, with options and mode applied."""
        from . import registry

        return registry.wrap(self.load(), self.options_dict(), self.mode, self.dynamic)

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.compile(fn, backend=..., ...)``, the call that `to_source` prints. Raises `CannotLoad`."""
        import torch

        compiled: Callable[..., Any] = torch.compile(
            fn, backend=self.load(), options=self.options_dict(), mode=self.mode, dynamic=self.dynamic
        )
        return compiled

    def to_source(self, reserved: Iterable[str] = ()) -> SpecSource:
        """The source lines of `compile`. ``reserved`` are names that the script already uses. Raises `CannotLoad`."""
        if self.problem:
            raise CannotLoad(self.problem)
        embedded = self.source.names() if self.source is not None else frozenset()
        printer = Printer(frozenset(reserved) | embedded | {"torch", "backend"})
        imports, setup = [], []
        if self.module and not self.entry_point:
            imports.append(f'import {self.module}  # registers the backend "{self.target}"')
        if self.source is not None:
            setup = self.source.text.split("\n")
        backend = printer.text(self.target)
        if len(backend) > _INLINE:
            setup, backend = [*setup, *([""] if setup else []), f"backend = {backend}"], "backend"
        arguments = [f"backend={backend}"]
        if self.options is not None:
            arguments.append(f"options={printer.text(self.options)}")
        if self.mode is not None:
            arguments.append(f"mode={printer.text(self.mode)}")
        if self.dynamic is not None:
            arguments.append(f"dynamic={self.dynamic}")
        imports += [*(self.source.imports if self.source is not None else ()), *printer.imports]
        names = embedded | {"backend"} | frozenset(_imported_name(line) for line in imports)
        return SpecSource(list(dict.fromkeys(imports)), setup, ", ".join(arguments), names)


def searches(directories: Iterable[str]) -> list[str]:
    """List the actions of `extend_path`, in lines for a person to agree to."""
    return [f"puts {directory} in front of sys.path" for directory in directories]


def runs(source: EmbeddedSource, purpose: str) -> list[str]:
    """List the lines of embedded source that are run, each behind a bar."""
    lines = source.source.split("\n")
    return [f"runs {len(lines)} lines from {source.file or 'the program'} {purpose}:", *(f"| {line}" for line in lines)]


def extend_path(directories: Iterable[str]) -> None:
    """Put those ``directories`` that exist and are not on ``sys.path`` at its front, in their order."""
    expanded = map(os.path.expanduser, directories)
    new = [d for d in expanded if d not in sys.path and os.path.isdir(d)]
    sys.path[:0] = new


_namespaces: dict[str, dict[str, Any]] = {}


def run(source: EmbeddedSource) -> dict[str, Any]:
    """The namespace of embedded source.

    The source is executed once in a process, because it may register things that cannot be registered twice. It runs
    with the name ``__main__`` and the name of its file, so that exceptions and frames look as in the captured process.
    """
    key = hashlib.sha256(source.source.encode()).hexdigest()
    if key not in _namespaces:
        file = source.file or "<embedded>"
        if "/" in file:  # relative to the installed packages, as `exceptions.portable` writes it
            file = os.path.join(os.path.dirname(os.__file__), file)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        linecache.cache[file] = (len(source.source), None, source.source.splitlines(keepends=True), file)
        exec(compile(source.source, file, "exec", dont_inherit=True), namespace)  # noqa: S102  what embedding is for
        _namespaces[key] = namespace
    return _namespaces[key]


def _imported_name(line: str) -> str:
    """The name that an import line binds."""
    words = line.partition("#")[0].split()
    return words[-1] if "as" in words or words[0] == "from" else words[1].partition(".")[0]
