"""The origin of a live backend as a `BackendSpec`.

`spec_of` never raises. If a backend cannot be re-created, ``BackendSpec.problem`` says why. An object is described, in
this order, by a registered name, as an importable attribute, as a structure of importable parts (partial,
``aot_autograd(...)``, method, dataclass), by the call of an importable factory that returned it, or by the embedded
source of a function that is defined in the running script or inside another function. Where a factory is called, the
spec has the embedded source, too: it may turn out that the call makes another backend.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import math
import os
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

from . import factories, modules, private, registry, syntax, variables
from .embedded_source import Embedder
from .expression import Expression, constructor_arguments
from .factories import FactoryCall
from .modules import CannotEmbed, reimportable
from .spec import BackendSpec, CopiedBackend

_LONGEST = 2000


def spec_of(backend: Any, *, compile_kwargs: Mapping[str, Any] | None = None) -> BackendSpec:
    """The spec of ``backend``: a name, an argument of ``torch.compile(backend=...)``, or what Dynamo made of that.

    Never raises: `BackendSpec.problem` says why the backend cannot be re-created. ``compile_kwargs`` may have
    ``options``, ``mode`` and ``dynamic``, which replace those in a wrapper of torch.
    """
    name = ""
    try:
        name = shown(backend)
        found = registry.unwrap(backend)
        name = found.name or shown(found.backend)
        given = {"options": found.options, "mode": found.mode, "dynamic": found.dynamic}
        given |= {k: v for k, v in (compile_kwargs or {}).items() if k in given and v is not None}
        origin = _Origin()
        spec = origin.spec(found.backend, **given)
        return _with_copy(spec, found.backend, given) if origin.calls_factory else spec
    except CannotEmbed as exc:
        return BackendSpec(name=name, problem=f"backend {name!r} cannot be re-created: {exc}")
    except Exception as exc:  # noqa: BLE001  a backend is any object; looking at it may raise anything
        return BackendSpec(name=name, problem=f"backend {name!r} could not be examined: {type(exc).__name__}: {exc}")


def copied(function: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> BackendSpec:
    """The spec of a backend whose text is copied although it can be imported. Never raises, see `spec_of`."""
    try:
        return _Origin(imports=False).spec(function, options, None, None)
    except CannotEmbed as exc:
        name = shown(function)
        return BackendSpec(name=name, problem=f"backend {name!r} cannot be copied: {exc}")


def express(value: Any) -> Expression:
    """``value`` as an expression that needs no embedded source. Raises `CannotEmbed`."""
    return _Origin()._express_inside(value)


def _with_copy(spec: BackendSpec, backend: Any, given: Mapping[str, Any]) -> BackendSpec:
    """``spec``, which calls a factory, and the embedded source in place of the call, if the backend has any."""
    try:
        copy = _Origin(factories=False).spec(backend, **given)
    except CannotEmbed:
        return spec
    path = tuple(dict.fromkeys((*spec.search_path, *copy.search_path)))
    read = tuple(sorted({*spec.variables, *copy.variables}))
    copied = CopiedBackend(copy.how, copy.target, copy.options, copy.source)
    given = {**copy.environment, **spec.environment}
    return replace(spec, copied=copied, search_path=path, variables=read, environment=given)


class _Origin:
    """The analysis of one backend. One `Embedder` collects the source to embed. ``factories`` says whether importable
    factories are called, ``imports`` whether a backend that can be imported is."""

    def __init__(self, *, factories: bool = True, imports: bool = True) -> None:
        self._factories = factories
        self._imports = imports
        self.calls_factory = False
        #: Calls of factories whose result wraps a closure that this analysis found.
        self._wrapping: list[FactoryCall] = []
        self._embedder = Embedder(self._express_inside)
        self._inside = False
        self._path: list[str] = []
        self._depth = 0

    def spec(self, backend: Any, options: Any, mode: Any, dynamic: Any) -> BackendSpec:
        if not isinstance(dynamic, bool):
            dynamic = None
        mode = mode if isinstance(mode, str) and mode != "default" else None
        name = backend if isinstance(backend, str) else registry.name_of(backend) if self._imports else ""
        spec = (self._named(name) if name else None) or self._object(name, backend)
        written = self._options(options) if options else None
        spec = replace(spec, options=written, mode=mode, dynamic=dynamic, source=self._embedder.embedded())
        path = (*self._path, *modules.search_path(spec.modules()))
        spec = replace(spec, search_path=tuple(dict.fromkeys(path)))
        spec = replace(spec, variables=variables.read_by(spec))
        return replace(spec, environment=variables.public_values(spec))

    def _named(self, name: str) -> BackendSpec | None:
        """A spec that uses a registered name, None if no import can repeat its registration."""
        obj = registry.registered().get(name)
        if obj is None:
            raise CannotEmbed(f"no backend is registered as {name!r}")
        loaded = not isinstance(obj, EntryPoint)
        module = registry.registering_module(name, obj) if loaded else None
        if module is not None and module.startswith("torch."):
            return BackendSpec(name, "registered", name)
        point = obj if isinstance(obj, EntryPoint) else registry.entry_point(name)
        if point is not None and (module is None or registry.leaves_to(point, module, obj)):
            value = f"{point.module}:{point.attr}" if point.attr else point.module
            place = "" if point.dist is None else os.path.abspath(str(point.dist.locate_file("")))
            if place and not modules.is_installed(place):
                self._path.append(place)
            owner = "" if point.dist is None else point.dist.name
            return BackendSpec(name, "entry_point", name, point.module, value, owner)
        if module is not None and module not in modules.SCRIPT:
            return BackendSpec(name, "registered", name, module, distribution=modules.distribution(module))
        return None

    def _object(self, name: str, backend: Any) -> BackendSpec:
        if isinstance(backend, str):
            backend = registry.registered()[backend]
        if not callable(backend):
            raise CannotEmbed(f"it is {type(backend).__name__}, not callable")
        mark, before = self._embedder.mark(), self.calls_factory
        target = self.express(backend) if self._imports else self._carry(backend)
        if len(self._wrapping) == 1:
            try:
                self._embedder.reset(mark)
                target = self._called(self._wrapping[0])
            except CannotEmbed:
                self.calls_factory = before
                self._embedder.reset(mark)
                target = self.express(backend)
        label = name or shown(backend)
        how = _how(backend, target)
        embedded = self._embedder.embedded()
        if how == "source" and name and embedded is not None and name in syntax.registered_names(embedded.tree()):
            target = name
        return BackendSpec(label, how, target)

    def _options(self, options: Any) -> Expression:
        if not isinstance(options, Mapping):
            raise CannotEmbed(f"options is {type(options).__name__}, not a dict")
        pairs = []
        for key, value in options.items():
            try:
                pairs.append([self.express(key), self.express(value)])
            except CannotEmbed as exc:
                raise CannotEmbed(f"the option {key!r} cannot be written down: {exc}") from exc
        return {"dict": pairs}

    def express(self, value: Any) -> Expression:
        """``value`` as an expression. Raises `CannotEmbed`."""
        self._depth += 1
        try:
            if self._depth > 30:
                raise CannotEmbed("it is nested too deeply")
            plain = self._plain(value)
            return plain[0] if plain else self._live(value)
        finally:
            self._depth -= 1

    def _plain(self, value: Any) -> tuple[Expression] | None:
        """A plain value in a one-tuple, None for anything else."""
        if (again := private.expression_for(value)) is not None:
            return (again,)
        if type(value) in (str, bytes):
            private.check(value)
        if value is None or type(value) in (bool, int):
            return (value,)
        if type(value) is float:
            return (value if math.isfinite(value) else {"float": str(value)},)
        if type(value) is bytes:
            return ({"bytes": value.hex()},)
        if type(value) is str:
            return (value,)
        if type(value) not in (list, tuple, set, frozenset, dict):
            return None
        if len(value) > _LONGEST:
            raise CannotEmbed(f"a {type(value).__name__} of {len(value)} items is too large to write down")
        if type(value) is dict:
            return ({"dict": [[self.express(k), self.express(v)] for k, v in value.items()]},)
        items = sorted(value, key=repr) if type(value) in (set, frozenset) else value
        parts = [self.express(item) for item in items]
        return (parts if type(value) is list else {type(value).__name__: parts},)

    def _live(self, value: Any) -> Expression:
        if isinstance(value, enum.Enum):
            return {"get": [self.express(type(value)), value.name]}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if (atom := _torch_atom(value)) is not None:
            return atom
        if found := modules.find(value):
            return {"import": list(found)}
        structure = self._structure(value)
        if structure is not None:
            return structure
        mark = self._embedder.mark()
        if (made := self._made_by_factory(value)) is not None:
            return made
        try:
            return self._carry(value)
        except CannotEmbed:
            again = None if self._inside else reimportable(value)
            if again is None:
                raise
            self._embedder.reset(mark)
            module, name, directory = again
            self._path.append(directory)
            return {"import": [module, name]}

    def _made_by_factory(self, value: Any) -> Expression | None:
        """The call of the importable factory that returned ``value``, None if none is known to have."""
        found = factories.call_of(value) if self._factories and isinstance(value, types.FunctionType) else None
        if found is None:
            return None
        if found.wraps:
            self._wrapping += [] if found in self._wrapping else [found]
            return None
        mark = self._embedder.mark()
        try:
            return self._called(found)
        except CannotEmbed:
            self._embedder.reset(mark)
            return None

    def _called(self, factory: FactoryCall) -> Expression:
        """The calls of a factory as an expression. Raises `CannotEmbed`."""
        made: Expression = {"import": [factory.module, factory.path]}
        if factory.owner is not None:
            made = {"get": [self._owner(factory.owner), factory.path.rpartition(".")[2]]}
        for args, kwargs in factory.arguments:
            named = {name: self.express(value) for name, value in kwargs.items()}
            made = {"call": {"func": made, "args": [self.express(value) for value in args], "kwargs": named}}
        self.calls_factory = True
        return made

    def _carry(self, value: Any) -> Expression:
        if isinstance(value, types.FunctionType):
            return {"embedded": self._embedder.function(value)}
        script = vars(sys.modules["__main__"])
        name = value.__name__ if isinstance(value, type) else self._script_global(value) if callable(value) else None
        if name and script.get(name) is value:
            self._embedder.bind(name, value, script, name)
            return {"embedded": name}
        raise CannotEmbed(self._why_not(value))

    def _express_inside(self, value: Any) -> Expression:
        """`express` for a value that embedded source uses, without an import of the script."""
        before, self._inside = self._inside, True
        try:
            return self.express(value)
        finally:
            self._inside = before

    def _structure(self, value: Any) -> Expression:
        if type(value) is functools.partial:
            return self._call(functools.partial, value.func, *value.args, **value.keywords)
        if registry.is_aot_autograd(value):
            from torch._dynamo.backends.common import aot_autograd

            arguments = registry.aot_arguments(value)
            table = arguments.pop("decompositions", None)
            call = self._call(aot_autograd, **arguments)
            if table is not None:
                call["call"]["kwargs"]["decompositions"] = self._decompositions(table)
            return call
        if (inner := registry.boxed_compiler(value)) is not None:
            maker = {"import": ["functorch.compile", "make_boxed_compiler"]}
            return {"call": {"func": maker, "args": [self.express(inner)], "kwargs": {}}}
        if isinstance(value, types.MethodType) and getattr(value.__self__, value.__name__, None) == value:
            return {"get": [self._owner(value.__self__), value.__name__]}
        if isinstance(value, types.SimpleNamespace) or type(value) is argparse.Namespace:
            return self._call(type(value), **vars(value))
        if isinstance(value, type | types.FunctionType) or not hasattr(value, "__dict__"):
            return None
        cls = type(value)
        if dataclasses.is_dataclass(cls) and all(f.init for f in dataclasses.fields(cls)):
            return self._call(cls, **{f.name: getattr(value, f.name) for f in dataclasses.fields(cls)})
        return self._made(value) if callable(value) else None

    def _owner(self, value: Any) -> Expression:
        """The object of a bound method, which need not be callable, as an expression. Raises `CannotEmbed`."""
        try:
            return self.express(value)
        except CannotEmbed:
            if (made := None if isinstance(value, type) else self._made(value)) is None:
                raise
            return made

    def _made(self, value: Any) -> Expression | None:
        """The call that makes an equal instance, None if it is not known."""
        given = constructor_arguments(value) if hasattr(value, "__dict__") else None
        return None if given is None else self._call(type(value), **given)

    def _call(self, func: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        arguments = {k: self.express(v) for k, v in kwargs.items()}
        return {"call": {"func": self.express(func), "args": [self.express(a) for a in args], "kwargs": arguments}}

    def _decompositions(self, table: Any) -> Expression:
        """A decomposition table as an expression, if possible the call that makes it."""
        if callable(table) and not isinstance(table, Mapping):
            return self.express(table)
        if found := modules.find(table):
            return {"import": list(found)}
        from torch._decomp import core_aten_decompositions, decomposition_table, get_decompositions

        if dict(table) == dict(core_aten_decompositions()):
            return self._call(core_aten_decompositions)
        if all(decomposition_table.get(op) is fn for op, fn in table.items()) and len(table) <= 200:
            return self._call(get_decompositions, list(table))
        return self.express(dict(table))

    def _script_global(self, value: Any) -> str:
        """Return the name to which one statement of the running script binds this object, or an empty text."""
        main = vars(sys.modules["__main__"])
        names = [n for n, v in list(main.items()) if v is value and self._embedder.has_statement(n, main)]
        return min(names, default="")

    def _why_not(self, value: Any) -> str:
        cls = type(value)
        if isinstance(value, type):
            return f"the class {value.__qualname__} is not importable from {value.__module__}"
        if cls.__module__ == "builtins":
            return f"an object of type {cls.__name__} has no source"
        return (
            f"it is an instance of {cls.__qualname__} that no module holds under a name, and {cls.__qualname__} does "
            f"not keep what it was made with; assign it to a module-level name and pass that"
        )


def shown(backend: Any) -> str:
    """The name of a backend, or a name made for an object without one."""
    if isinstance(backend, str):
        return backend
    if registry.is_aot_autograd(backend):
        return f"aot_autograd({shown(backend.kwargs.get('fw_compiler'))})"
    if type(backend) is functools.partial:
        return f"partial({shown(backend.func)})"
    if isinstance(backend, types.MethodType):
        owner = backend.__self__
        return f"{(owner if isinstance(owner, type) else type(owner)).__name__}.{backend.__name__}"
    return str(getattr(backend, "__name__", "") or type(backend).__name__)


def _how(backend: Any, target: Expression) -> str:
    tag = next(iter(target)) if type(target) is dict else ""
    if tag in ("import", "embedded"):
        return "attribute" if tag == "import" else "source"
    if tag == "get":
        return "method"
    if tag == "call" and isinstance(backend, functools.partial):
        return "partial"
    if registry.is_aot_autograd(backend):
        return "aot_autograd"
    return "factory" if isinstance(backend, types.FunctionType) else "instance"


def _torch_atom(value: Any) -> Expression:
    """A dtype, layout, memory format, device or operator as an expression, None for anything else."""
    import torch

    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return {"import": ["torch", str(value).removeprefix("torch.")]}
    if isinstance(value, torch.device):
        return {"call": {"func": {"import": ["torch", "device"]}, "args": [str(value)], "kwargs": {}}}
    if isinstance(value, torch._ops.OpOverload):
        name = str(value)  # aten.relu.default
        return {"op": name.replace(".", "::", 1)}
    if isinstance(value, torch._ops.OpOverloadPacket):
        return {"op": value._qualified_op_name}
    return None
