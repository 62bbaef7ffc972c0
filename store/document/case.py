"""A compilation as plain data: a `Case` is a graph, its inputs, its context and its backend.

* **Everything is JSON.** A value inside a graph is a plain ``None``/``bool``/``int``/finite ``float``/``str``,
  a list, or a dict with exactly one key, its *tag* (``{"ref": "relu"}``, ``{"tuple": [...]}``,
  ``{"dtype": "float32"}``...). ``docs/format.md`` lists the closed set of tags.
* **Bytes stay outside.** A `TensorSpec` has dtype, shape, strides and the *key* of its storage. The bytes are in a
  mapping ``key -> bytes`` beside the case. So cases are cheap to copy, compare and edit, and several tensors may share
  one storage.
* **Nothing here needs torch.** Passes edit cases, the index stores them and the printer prints them without importing
  torch; only `fxminify.store.live.build` turns a case back into a live graph.

All objects are frozen: an edit is `dataclasses.replace`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

#: Version of the document layout. A reader refuses a larger one.
FORMAT = 1

#: A tagged JSON value, see the module docstring.
Value = Any
#: A JSON object.
Json = dict[str, Any]
#: Storage key -> raw little-endian bytes of the storage.
Blobs = Mapping[str, bytes]

COMPUTE_OPS = frozenset({"call_function", "call_method", "call_module"})


class _Read:
    """A place for the names that a node reads: they are found once, since candidates share most of their nodes."""

    __slots__ = ("_read",)
    _read: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node(_Read):
    """An FX node.

    ``target`` is a tagged target for ``call_function`` (``{"op": "aten::relu.default"}``, ``{"packet":
    "aten::relu"}``, ``{"hop": "cond"}``, ``{"fn": "torch.relu"}``), otherwise the string FX keeps: the
    placeholder's own target (not its name), the method's name, the attribute's path. ``meta`` is for display and
    heuristics only: ``{"dtype": str, "shape": [int | str], "stack": str, "module": str}``.
    """

    name: str
    op: str
    target: Value
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict)
    meta: Json = field(default_factory=dict)
    type: str | None = None

    @property
    def is_compute(self) -> bool:
        """Whether it calls something: an operation, a function, a method or a module."""
        return self.op in COMPUTE_OPS

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the nodes this node reads, in order, without repeats."""
        try:
            return self._read
        except AttributeError:
            found: dict[str, None] = {}
            for value in (*self.args, *self.kwargs.values()):
                if type(value) is dict and "ref" in value:  # nearly all there is
                    found[value["ref"]] = None
                elif type(value) is list or type(value) is dict:
                    found.update(dict.fromkeys(refs(value)))
            read = tuple(found)
            object.__setattr__(self, "_read", read)
            return read

    def map_values(self, edit: Callable[[Value], Value]) -> Node:
        """This node with ``edit`` applied to each whole argument."""
        return replace(
            self, args=tuple(edit(a) for a in self.args), kwargs={k: edit(v) for k, v in self.kwargs.items()}
        )


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, and what its ``get_attr``/``call_module`` targets name.

    An attribute is one of ``{"graph": Graph}``, ``{"tensor": index, "kind": "parameter"|"buffer"|"attribute"}``,
    ``{"value": Value}``, ``{"module": {...}}``; in process only, ``{"object": index}``.
    """

    nodes: tuple[Node, ...]
    attrs: Mapping[str, Json] = field(default_factory=dict)
    training: bool = False

    @property
    def placeholders(self) -> tuple[Node, ...]:
        """The nodes that stand for the inputs, in order."""
        return tuple(n for n in self.nodes if n.op == "placeholder")

    @property
    def compute(self) -> tuple[Node, ...]:
        """The compute nodes, in order, without the nodes of subgraphs."""
        return tuple(n for n in self.nodes if n.is_compute)

    @property
    def count(self) -> int:
        """The number of compute nodes, including the nodes of subgraphs."""
        inner: list[Graph] = [attr["graph"] for attr in self.attrs.values() if "graph" in attr]
        return sum(n.is_compute for n in self.nodes) + sum(graph.count for graph in inner)

    @property
    def output(self) -> Node:
        """The node that says what is returned. It is the last one."""
        return self.nodes[-1]

    def map_nodes(self, edit: Callable[[Node], Node]) -> Graph:
        """Return this graph with ``edit`` applied to each node, including the nodes of subgraphs."""
        attrs = {p: {**a, "graph": a["graph"].map_nodes(edit)} if "graph" in a else a for p, a in self.attrs.items()}
        return replace(self, nodes=tuple(map(edit, self.nodes)), attrs=attrs)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A strided tensor over a storage, or one that a seeded generator makes.

    ``shape``/``stride``/``offset`` count elements, ``dtype`` is torch's name without ``torch.``. Exactly one of
    these says where the values come from:

    * ``storage``: SHA-256 of the storage, the key into the blobs that travel with the case. Tensors with one key
      share the storage; a storage may be longer than they reach;
    * ``init``: ``{"fn": "randn"}``, ``{"fn": "rand"}``, ``{"fn": "randint", "low": int, "high": int}``,
      ``{"fn": "full", "value": scalar Value}``, ``{"fn": "arange"}``; random ones draw in input order after one
      ``torch.manual_seed(0)``, in the build and in the printed script alike;
    * ``parts``: indices of the component tensors of a sparse (``layout``) or quantized (``extra``) tensor.

    ``dynamic`` lists dimensions that `torch._dynamo.mark_dynamic` makes symbolic. ``subclass`` is the dotted name of
    a class that is not torch's own: an import of the case has it. ``attributes`` are the tensor's own attributes.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    storage: str | None = None
    init: Json | None = None
    device: str = "cpu"
    requires_grad: bool = False
    leaf: bool = True
    parameter: bool = False
    conj: bool = False
    neg: bool = False
    inference: bool = False
    layout: str = "strided"
    parts: tuple[int, ...] = ()
    dynamic: tuple[int, ...] = ()
    extra: Json = field(default_factory=dict)
    subclass: str = ""
    attributes: Json = field(default_factory=dict)

    @property
    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def reach(self) -> int:
        """The number of elements from the start of the storage to the last one that the tensor reads."""
        steps = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.offset + steps + 1 if self.numel else 0


def is_drawn_natively(fn: str, dtype: str) -> bool:
    """Whether ``torch.<fn>(..., dtype=dtype)`` draws that dtype; else float32 or int64 is drawn and ``.to(dtype)``
    follows, in a worker and in a printed script alike."""
    if fn in ("randn", "rand"):
        return dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    counted = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
    return dtype in counted or (fn == "randint" and dtype == "bool")


#: The most calls of a case.
MOST_CALLS = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A compilation.

    * ``inputs`` has one value per placeholder of ``graph``, in order.
    * ``context`` is the ambient state (`fxminify.backends.running.ambient`), ``backend`` a
      `fxminify.backends.provenance.spec.BackendSpec` as data. ``imports`` are imported besides the backend
      (custom-op libraries).
    * ``backward`` asks for a backward pass after the forward one, ``compare`` for a comparison with eager.
    * ``calls`` is how often the compiled graph is called: some failures need a second call. ``earlier`` has the
      inputs of earlier calls by name of the placeholder; inputs without a name there are the same.
    * ``tolerance`` is a person's tolerance for the comparison, by dtype (`fxminify.store.document.tolerance`). If
      ``strict``, differences of ill-conditioned results are divergences, too.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    tensors: tuple[TensorSpec, ...] = ()
    context: Json = field(default_factory=dict)
    backend: Json = field(default_factory=dict)
    imports: tuple[Json, ...] = ()
    backward: bool = False
    compare: bool = False
    torch: str = ""
    calls: int = 1
    earlier: tuple[Json, ...] = ()
    tolerance: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False

    @property
    def storages(self) -> frozenset[str]:
        """Keys of every storage a tensor of this case lies in."""
        return frozenset(t.storage for t in self.tensors if t.storage is not None)

    def input_tensor(self, index: int) -> TensorSpec | None:
        """The tensor given to placeholder ``index``, or None where the input is no tensor."""
        value = self.inputs[index]
        return self.tensors[value["tensor"]] if tag(value) == "tensor" else None


def tag(value: Value) -> str | None:
    """The tag of a tagged value, None for a plain one or a list."""
    if type(value) is dict and len(value) == 1:
        name: str = next(iter(value))
        return name
    return None


def refs(value: Value) -> Iterator[str]:
    """Names of the nodes a value refers to, in order, repeats included."""
    if type(value) is list:
        for item in value:
            yield from refs(item)
    elif type(value) is dict:
        for key, item in value.items():
            if key == "ref":
                yield item
            elif key not in _LEAF_TAGS:
                yield from refs(item)


def map_refs(value: Value, edit: Callable[[str], Value]) -> Value:
    """``value`` with every ``{"ref": name}`` replaced by ``edit(name)``."""
    if type(value) is list:
        return [map_refs(item, edit) for item in value]
    if type(value) is dict:
        if len(value) == 1 and "ref" in value:
            return edit(value["ref"])
        return {k: v if k in _LEAF_TAGS else map_refs(v, edit) for k, v in value.items()}
    return value


def tensors_in(value: Value) -> Iterator[int]:
    """Indices of the tensors in a value, in order, repeats included. States of generators are not among them."""
    if type(value) is list:
        for item in value:
            yield from tensors_in(item)
    elif tag(value) == "tensor":
        yield value["tensor"]
    elif type(value) is dict:
        yield from tensors_in(list(value.values()))


def every_node(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, then the nodes of its sub-graphs."""
    yield from graph.nodes
    for attr in graph.attrs.values():
        if "graph" in attr:
            yield from every_node(attr["graph"])


def target_name(node: Node) -> str:
    """Last part of what a node calls: ``relu`` for ``torch.relu``, ``aten::relu.default`` and ``.relu()`` alike."""
    target: Any = node.target
    if not isinstance(target, str):
        target = next(iter(target.values()), "") if isinstance(target, dict) else ""
        if not isinstance(target, str):
            return json.dumps(target)
        if "::" in target:
            return target.split("::")[-1].split(".")[0]
        return target.rsplit(".", 1)[-1]
    return target


def called_names(case: Case) -> str:
    """The last parts of what the graph calls, sorted, each once: ``relu, sum``."""
    return ", ".join(sorted({target_name(node) for node in case.graph.compute}))


def operators(graph: Graph) -> Iterator[str]:
    """``ns::name`` or ``ns::name.overload`` of every operator a graph and its sub-graphs mention, repeats included."""
    for node in every_node(graph):
        if node.op == "call_function":
            yield from _operators(node.target)
        yield from _operators([*node.args, *node.kwargs.values()])


def _operators(value: Value) -> Iterator[str]:
    if type(value) is list:
        for item in value:
            yield from _operators(item)
    elif type(value) is dict:
        for key, item in value.items():
            if key in ("op", "packet") and type(item) is str:
                yield item
            else:
                yield from _operators(item)


#: Tags whose content holds no references.
_LEAF_TAGS = frozenset(
    {"float", "complex", "dtype", "device", "layout", "memory_format", "qscheme", "enum", "finfo", "iinfo", "target",
     "tensor", "sym", "bytes", "ellipsis", "range", "object"}
)  # fmt: skip


def to_json(case: Case) -> Json:
    """The case as a JSON document. `fxminify.store.document.decode.validate` reads it back, checking everything."""
    return {
        "format": FORMAT,
        "torch": case.torch,
        "graph": graph_to_json(case.graph),
        "inputs": list(case.inputs),
        "tensors": [_sparse(t) for t in case.tensors],
        "context": case.context,
        "backend": case.backend,
        "imports": list(case.imports),
        "backward": case.backward,
        "compare": case.compare,
        **({"calls": case.calls} if case.calls != 1 else {}),
        **({"earlier": list(case.earlier)} if case.earlier else {}),
        **({"tolerance": dict(case.tolerance)} if case.tolerance else {}),
        **({"strict": True} if case.strict else {}),
    }


def graph_to_json(graph: Graph) -> Json:
    """A graph as part of a document."""
    return {
        "nodes": [_sparse(n) for n in graph.nodes],
        "attrs": {
            path: {"graph": graph_to_json(attr["graph"])} if "graph" in attr else attr
            for path, attr in graph.attrs.items()
        },
        "training": graph.training,
    }


def _sparse(item: Node | TensorSpec) -> Json:
    """The fields that differ from their default, tuples as lists, so that documents stay short."""
    out: Json = {}
    for f in fields(item):
        value = getattr(item, f.name)
        default = f.default_factory() if callable(f.default_factory) else f.default
        if value != default:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out
