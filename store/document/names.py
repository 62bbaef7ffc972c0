"""The exact names a stored graph may use: ``names.json``, read without torch.

A prefix such as ``torch.*`` admits functions that write files or load libraries, and a deny-list is never
complete. So the table lists every function, overload, method, higher-order operator, module class and module
attribute by its name. `fxminify.store.live.names_generate` generates it. The writer looks names up here before it
stores them, the reader before it accepts them. For a torch of another version `grow` adds the names of that version.

Torch does not know the operators of other libraries. They pass where the caller says ``custom=True``, if their
namespace is not one of torch's own.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from . import names_cache
from .case import Graph, Value, every_node, tag

#: A Python identifier in ASCII (other alphabets normalise to other names), with a length a person can read.
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,511}\Z")
_NUMBER = re.compile(r"[0-9]{1,7}\Z")
_OPERATOR = re.compile(r"([A-Za-z_]\w{0,127})::([A-Za-z_]\w{0,127})(?:\.(\w{1,127}))?\Z", re.ASCII)


#: Names that the code FX generates uses for itself.
RESERVED_NAMES = frozenset({"self", "torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"})
#: Annotations of nodes that FX prints.
ANNOTATIONS = (
    "torch.Tensor", "torch.nn.Parameter", "torch.SymInt", "torch.SymFloat", "torch.SymBool", "int", "float", "bool",
)  # fmt: skip
#: Methods called through the class, ``torch.Tensor.add(x, y)``.
TENSOR = "torch.Tensor."


class UnknownName(ValueError):
    """A name that the table does not hold."""


Identifier = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
Dotted = Annotated[str, Meta(pattern=r"\A(torch|math|_operator|builtins)(\.[A-Za-z_][A-Za-z0-9_]{0,127}){1,12}\Z")]
Packet = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}::[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
Overload = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}::[A-Za-z_]\w{0,127}\.[A-Za-z0-9_]{1,127}\Z")]
Size = Annotated[int, Meta(ge=1, le=64)]


@dataclass(frozen=True, slots=True)
class NameTable:
    """The table. Sets hold full names (``torch.relu``, ``aten::add.Tensor``, ``sum`` as a method)."""

    #: The version of torch with which the table was generated.
    torch: str
    functions: frozenset[Dotted]
    ops: frozenset[Overload]
    #: Higher-order operator -> torch module that defines it.
    hops: Mapping[Identifier, Dotted]
    methods: frozenset[Identifier]
    #: Attributes of a tensor that ``getattr`` may read.
    getattr: frozenset[Identifier]
    #: Leaf module class -> attributes its instances may carry.
    modules: Mapping[Dotted, frozenset[Identifier]]
    #: Attribute names that a graph's root must not shadow.
    reserved: frozenset[Identifier]
    #: Name -> where else it may stand in another version of torch.
    aliases: Mapping[Dotted, tuple[Dotted, ...]]
    #: Overload packet -> torch module to import before it exists.
    libraries: Mapping[Packet, Dotted]
    #: Operator namespaces that belong to torch, whether listed or not.
    namespaces: frozenset[Identifier]
    #: dtype -> bytes of one element.
    dtypes: Mapping[Identifier, Size]
    layouts: frozenset[Identifier]
    memory_formats: frozenset[Identifier]
    qschemes: frozenset[Identifier]
    devices: frozenset[Identifier]
    return_types: frozenset[Identifier]
    enums: Mapping[Identifier, frozenset[Identifier]]
    #: The operators without their overloads; derived from ``ops``.
    packets: frozenset[str] = frozenset()


SHIPPED = Path(__file__).with_name("names.json")


@cache
def _shipped() -> NameTable:
    return msgspec.json.decode(SHIPPED.read_bytes(), type=NameTable)


@cache
def table() -> NameTable:
    """Return the shipped table, united with the table of the installed torch if it exists. It is read once."""
    names = _shipped()
    if (path := names_cache.path_for(names.torch)) and (own := _own(path)):
        names = NameTable(**{f.name: _united(getattr(names, f.name), getattr(own, f.name)) for f in fields(names)})
    return replace(names, packets=frozenset(op.partition(".")[0] for op in names.ops))


def _own(path: Path) -> NameTable | None:
    """Return the table of the installed torch, or None if it is missing or not trusted."""
    try:
        content = names_cache.read(path)
        return None if content is None else msgspec.json.decode(content, type=NameTable)
    except ValueError:
        return None


def _united(shipped: Any, own: Any) -> Any:
    """Both sets, or both mappings with the sets under one key united. Otherwise ``own`` comes first."""
    if isinstance(own, Mapping):
        return {**shipped, **{k: _united(shipped.get(k, v), v) for k, v in own.items()}}
    return shipped | own if isinstance(own, frozenset) else own


def growable() -> Path | None:
    """Return the path at which the table of the installed torch is missing, or None if it is not needed."""
    path = names_cache.path_for(_shipped().torch)
    return path if path is not None and _own(path) is None else None


@cache
def grow() -> bool:
    """Add the names of the installed torch to the table, once in a process; whether it has new names now.

    It takes some seconds, once for each installation. Call it where torch is imported, for a graph of this process that
    cannot be stored. Reading a file never leads here.
    """
    before = table()
    table.cache_clear()
    if (path := growable()) is not None:
        names_cache.generate(path)
    return table() != before


def check_target(target: Value, *, custom: bool = False) -> None:
    """Check the target of a ``call_function`` node; ``custom`` admits operators of libraries outside torch.

    Raises `UnknownName`.
    """
    kind = tag(target)
    name = target[kind] if kind is not None else None
    if type(name) is not str:
        raise UnknownName(f"{target!r:.100} is no target")
    names = table()
    if kind == "fn":
        known = name in names.functions or (name.startswith(TENSOR) and name[len(TENSOR) :] in names.methods)
    elif kind == "op":
        known = name in names.ops or (custom and is_custom(name) and "." in name)
    elif kind == "packet":
        known = name in names.packets or (custom and is_custom(name) and "." not in name)
    elif kind == "hop":
        known = name in names.hops
    else:
        raise UnknownName(f"{kind!r:.40} is no kind of target")
    if not known:
        raise UnknownName(f"{ {'fn': 'function'}.get(kind, kind) } {name!r:.160} {without_name()}")


def without_name() -> str:
    """The end of the sentence about something that is not in the table."""
    more = "; to add the names of this torch: python -m fxminify.store.live.names_generate" if growable() else ""
    return f"has no name in the table{more}"


def is_custom(name: str) -> bool:
    """Whether an operator or packet name is well formed and of a namespace that is not torch's."""
    match = _OPERATOR.match(name)
    if match is None or match[1] in table().namespaces:
        return False
    return not any(part.startswith("__") for part in match.groups() if part is not None)


def namespace(target: Value) -> str | None:
    """The operator namespace of a target, where it lies outside torch: the library that must be imported."""
    name = target.get("op") or target.get("packet") if type(target) is dict else None
    if type(name) is not str or not is_custom(name):
        return None
    return name.partition("::")[0]


def libraries(graph: Graph) -> frozenset[str]:
    """The operator namespaces outside torch that a graph calls or passes on, sub-graphs included."""
    targets: list[Value] = []
    for node in every_node(graph):
        targets += [node.target] if node.op == "call_function" else []
        targets += _targets([*node.args, *node.kwargs.values()])
    return frozenset(space for target in targets if (space := namespace(target)) is not None)


def _targets(value: Value) -> Iterator[Value]:
    if type(value) is dict and "target" in value:
        yield value["target"]
    elif type(value) is dict or type(value) is list:
        for item in value.values() if type(value) is dict else value:
            yield from _targets(item)


def is_node_name(name: object) -> bool:
    """Whether FX accepts ``name`` for a node as it stands, and the code it generates stays valid."""
    return is_argument_name(name) and name not in RESERVED_NAMES


def is_argument_name(name: object) -> bool:
    """Whether ``name`` may stand before ``=`` in a call."""
    return type(name) is str and IDENTIFIER.match(name) is not None and not keyword.iskeyword(name)


def is_attribute_path(path: object) -> bool:
    """Whether ``path`` may name an attribute of a graph's root: dotted names, none of torch.nn.Module's own.

    Children of a ``Sequential`` have numbers for names.
    """
    return type(path) is str and all(
        _NUMBER.match(name) or (is_argument_name(name) and name not in table().reserved) for name in path.split(".")
    )
