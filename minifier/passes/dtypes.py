"""Simpler element types. The result for a failure that does not depend on them has float32 and int64.

`SIMPLER` is the order. A dtype is replaced everywhere at once, in tensors and in the graph (``x.to(torch.float16)``,
``dtype=``, ``x.half()``), then in tensors alone, then in single tensors. Recorded values are rounded to the new dtype;
those that a script shows keep their digits, because the float16 number 0.1 is the float32 number 0.09997559. The dtype
of an autocast region stays: it takes few, and with any other one torch warns and leaves the region out. The eager run
of a candidate shows whether it still is a valid program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...repro_templates.source.elements import FLOATS, element, is_numeric, numbers, raw
from ...store.document.case import Case, Graph, Json, Node, TensorSpec, Value, every_node, tag, target_name
from ..candidate.graph_view import Storages
from .candidates import Candidates, data_tensors, first_of, own_key, together
from .layouts import sharers
from .values import READABLE

if TYPE_CHECKING:
    from ...repro_templates.source.elements import Array

#: For each dtype the simpler ones, the simplest first.
SIMPLER: dict[str, tuple[str, ...]] = {
    "float64": ("float32",),
    "bfloat16": ("float32", "float64"),
    "float16": ("float32", "float64", "bfloat16"),
    "complex64": ("float32",),
    "complex128": ("float32", "float64", "complex64"),
    "complex32": ("float32", "complex64"),
    "float8_e5m2": ("float32", "bfloat16"),
    "float8_e4m3fn": ("float32", "bfloat16", "float8_e5m2"),
    "float8_e5m2fnuz": ("float32", "bfloat16", "float8_e5m2"),
    "float8_e4m3fnuz": ("float32", "bfloat16", "float8_e4m3fn"),
    "int32": ("int64",),
    "int16": ("int64", "int32"),
    "int8": ("int64", "int32"),
    "uint8": ("int64", "int32"),
    "uint16": ("int64", "int32"),
    "uint32": ("int64", "int32"),
    "uint64": ("int64", "int32"),
}
#: Methods that convert to one dtype.
_METHODS = {
    "double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "cfloat": "complex64",
    "cdouble": "complex128", "long": "int64", "int": "int32", "short": "int16", "char": "int8", "byte": "uint8",
}  # fmt: skip
_METHOD_OF = {dtype: name for name, dtype in _METHODS.items()}
#: Floats with fewer digits than those that they become.
_NARROW = frozenset({"bfloat16", "float16"})
#: With more tensors of one dtype than this, none is converted alone.
MOST_TENSORS = 8


def plain_dtypes(case: Case, storages: Storages) -> Candidates:
    """Make element types float32 and int64, else any simpler one: all at once, type by type, tensor by tensor."""
    found = [kind for kind in SIMPLER if kind in set(_kinds(case))]
    simplest = {kind: SIMPLER[kind][0] for kind in found}
    plain = converted(case, simplest, storages)
    if plain == case:
        return case
    if (yield plain):
        return plain
    for kind in found:
        ways = [converted(case, {kind: to}, storages, graph=graph) for to in SIMPLER[kind] for graph in (True, False)]
        simpler = yield from first_of(case, [way for way in ways if way != plain])
        if simpler == case:
            simpler = yield from first_of(case, [converted(case, {kind: simplest[kind]}, storages, tensors=False)])
            simpler = yield from _single(simpler, kind, storages)
        case = simpler
    return case


def _single(case: Case, kind: str, storages: Storages) -> Candidates:
    """Convert single tensors of the dtype ``kind``."""
    alike = [i for i in data_tensors(case) if case.tensors[i].dtype == kind]
    if not 1 < len(alike) <= MOST_TENSORS:
        return case
    change = {kind: SIMPLER[kind][0]}
    edits = [partial(converted, change=change, storages=storages, only=i, graph=False) for i in alike]
    return (yield from together(case, edits))


def converted(
    case: Case,
    change: Mapping[str, str],
    storages: Storages,
    *,
    tensors: bool = True,
    only: int | None = None,
    graph: bool = True,
) -> Case:
    """``case`` with dtypes replaced by ``change``: in ``tensors`` (in ``only`` one of them) and in the ``graph``."""
    specs = list(case.tensors)
    for i in data_tensors(case) if tensors else ():
        if only is None or only == i:
            specs[i] = _converted(case, i, change, storages) or specs[i]
    subgraph = case.graph.map_nodes(partial(_renamed, change=change)) if graph else case.graph
    if tuple(specs) == case.tensors and subgraph == case.graph:
        return case
    given = dict(zip((n.name for n in case.graph.placeholders), case.inputs, strict=True))
    nodes = tuple(_described(node, given.get(node.name), specs) for node in subgraph.nodes)
    return replace(case, tensors=tuple(specs), graph=replace(subgraph, nodes=nodes))


def _converted(case: Case, index: int, change: Mapping[str, str], storages: Storages) -> TensorSpec | None:
    """The tensor in its new dtype; None if it has none, cannot be converted, or shares a storage with other dtypes."""
    spec = case.tensors[index]
    to = change.get(spec.dtype)
    if to is None or len({case.tensors[i].dtype for i in sharers(case, spec.storage)}) > 1:
        return None
    real = not to.startswith("complex")
    made = replace(spec, dtype=to, conj=spec.conj and not real)
    if spec.init is not None:
        return replace(made, init=_real(spec.init) if real else spec.init)
    if spec.storage is None:
        return made
    if not is_numeric(spec.dtype):
        return None
    try:
        data = raw(to, _with_their_digits(spec.dtype, to, numbers(spec.dtype, storages[spec.storage])))
    except ValueError:
        return None
    key = own_key(data, spec.storage)
    storages.put({key: data})
    return replace(made, storage=key)


def _with_their_digits(kind: str, to: str, values: Array) -> Array:
    """``values``; few of them, which become wider floats, as the numbers that a script shows of them."""
    import numpy as np

    if kind not in _NARROW or to not in FLOATS or values.size > READABLE:
        return values
    return np.array([v if v % 1 == 0 else float(element(kind, v)) for v in values.tolist()])


def _real(init: Json) -> Json:
    """``init`` with the real part of a complex constant."""
    return {**init, "value": init["value"]["complex"][0]} if tag(init.get("value")) == "complex" else init


def _kinds(case: Case) -> Iterator[str]:
    """The dtypes of tensors, and those that the graph names."""
    yield from (case.tensors[i].dtype for i in data_tensors(case))
    yield from _named(case.graph)


def _named(graph: Graph) -> Iterator[str]:
    for node in every_node(graph):
        if node.op == "call_method" and node.target in _METHODS:
            yield _METHODS[node.target]
        yield from _dtypes([*node.args, *node.kwargs.values()])


def _dtypes(value: Value) -> Iterator[str]:
    if type(value) is list:
        for item in value:
            yield from _dtypes(item)
    elif type(value) is dict:
        if "dtype" in value and type(value["dtype"]) is str:
            yield value["dtype"]
        else:
            yield from _dtypes(list(value.values()))


def _renamed(node: Node, change: Mapping[str, str]) -> Node:
    if not node.is_compute or target_name(node) == "_enter_autocast":
        return node
    to = change.get(_METHODS.get(node.target, "")) if node.op == "call_method" else None
    if to in _METHOD_OF:
        node = replace(node, target=_METHOD_OF[to])
    return node.map_values(lambda value: retyped(value, change))


def _described(node: Node, given: Value, tensors: list[TensorSpec]) -> Node:
    """``node`` with the dtype of its tensor in its metadata; without a dtype there if it is no tensor input."""
    if tag(given) == "tensor":
        return replace(node, meta={**node.meta, "dtype": tensors[given["tensor"]].dtype})
    return replace(node, meta={k: v for k, v in node.meta.items() if k != "dtype"})


def retyped(value: Value, change: Mapping[str, str]) -> Value:
    """``value`` with the dtypes that it names replaced."""
    if type(value) is list:
        return [retyped(item, change) for item in value]
    if type(value) is dict:
        if type(name := value.get("dtype")) is str:
            return {"dtype": change.get(name, name)}
        return {k: retyped(v, change) for k, v in value.items()}
    return value
