"""The exact names a stored graph may use: ``names.json``, read without torch.

A prefix such as ``torch.*`` admits functions that write files or load libraries, and a deny-list is never
complete, so the table lists every function, overload, method, higher-order operator, module class and module
attribute *by name*. It is generated and reviewed (`fxminify.store.live.names_generate`); the writer looks names up
here before it stores them, the reader before it believes them.

The one open door is a custom operator library, whose names torch cannot know: its overloads pass where the caller
says ``custom=True``, as long as their namespace is none of torch's own.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class NameTable:
    """The table. Sets hold full names (``torch.relu``, ``aten::add.Tensor``, ``sum`` as a method)."""

    functions: frozenset[str]
    ops: frozenset[str]
    packets: frozenset[str]
    #: Higher-order operator -> torch module that defines it.
    hops: Mapping[str, str]
    methods: frozenset[str]
    #: Attributes of a tensor that ``getattr`` may read.
    getattr: frozenset[str]
    #: Leaf module class -> attributes its instances may carry.
    modules: Mapping[str, frozenset[str]]
    #: Attribute names that a graph's root must not shadow.
    reserved: frozenset[str]
    #: Name -> where else it may stand in another version of torch.
    aliases: Mapping[str, tuple[str, ...]]
    #: Overload packet -> torch module to import before it exists.
    libraries: Mapping[str, str]
    #: Operator namespaces that belong to torch, whether listed or not.
    namespaces: frozenset[str]
    #: dtype -> bytes of one element.
    dtypes: Mapping[str, int]
    layouts: frozenset[str]
    memory_formats: frozenset[str]
    qschemes: frozenset[str]
    devices: frozenset[str]
    return_types: frozenset[str]
    enums: Mapping[str, tuple[str, ...]]


@cache
def table() -> NameTable:
    """The shipped table, read once."""
    doc = json.loads(Path(__file__).with_name("names.json").read_text("ascii"))
    ops = frozenset(doc["ops"])
    return NameTable(
        functions=frozenset(doc["functions"]),
        ops=ops,
        packets=frozenset(op.partition(".")[0] for op in ops),
        hops=doc["hops"],
        methods=frozenset(doc["methods"]),
        getattr=frozenset(doc["getattr"]),
        modules={name: frozenset(attrs) for name, attrs in doc["modules"].items()},
        reserved=frozenset(doc["reserved"]),
        aliases={name: tuple(others) for name, others in doc["aliases"].items()},
        libraries=doc["libraries"],
        namespaces=frozenset(doc["namespaces"]),
        dtypes=doc["dtypes"],
        layouts=frozenset(doc["layouts"]),
        memory_formats=frozenset(doc["memory_formats"]),
        qschemes=frozenset(doc["qschemes"]),
        devices=frozenset(doc["devices"]),
        return_types=frozenset(doc["return_types"]),
        enums={name: tuple(members) for name, members in doc["enums"].items()},
    )


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
        raise UnknownName(f"{ {'fn': 'function'}.get(kind, kind) } {name!r:.160} has no name in the table")


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
