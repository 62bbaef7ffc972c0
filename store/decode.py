"""From data to a `Case`, believing nothing: `validate` checks a document without torch, without running anything.

FX turns names into Python text and executes it (a placeholder called ``x=f()`` runs ``f`` while the module is
being made), storages grow when a shape asks for more, and a shape of a few bytes can ask for a petabyte. So every
name, number, reference and size is checked here, before anything is built; what passes can be listed, printed and
edited without torch, and built by `fxminify.store.build`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from .case import FORMAT, Case, Graph, Json, Node, TensorSpec, Value, tag
from .names import ANNOTATIONS, IDENTIFIER, UnknownName, check_target, is_attribute_path, is_node_name, table


class InvalidDocument(ValueError):
    """A document that no writer of ours makes; says where and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may ask for, well above real graphs (962 nodes, two levels) and well below harm."""

    characters: int = 1 << 28
    nodes: int = 50_000
    values: int = 5_000_000
    depth: int = 64
    graphs_depth: int = 16
    tensors: int = 50_000
    dimensions: int = 64
    numel: int = 1 << 33
    string: int = 1 << 20
    integer_bits: int = 256
    range: int = 1 << 20


_KEY = re.compile(r"[0-9a-f]{64}(\.[1-9][0-9]{0,5})?\Z")
_DEVICE = re.compile(r"([a-z]{2,16})(:[0-9]{1,3})?\Z")
_PRINTABLE = re.compile(r"[ -~]{0,600}\Z")
_OPS = frozenset({"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"})
_KINDS = ("parameter", "buffer", "attribute")
_INITS = {"randn": set(), "rand": set(), "arange": set(), "full": {"value"}, "randint": {"low", "high"}}
_PARTS = {"sparse_coo": 2, "sparse_csr": 3, "sparse_csc": 3, "sparse_bsr": 3, "sparse_bsc": 3, "_mkldnn": 1}


def parse(text: str | bytes, limits: Limits = Limits()) -> Json:  # noqa: B008 (immutable)
    """The JSON object in ``text``. Raises `InvalidDocument` also for what `json` lets through."""

    def once(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InvalidDocument("an object holds a key twice")
        return found

    def constant(name: str) -> NoReturn:
        raise InvalidDocument(f"{name} is no JSON")

    if len(text) > limits.characters:
        raise InvalidDocument(f"the document is longer than {limits.characters} characters")
    try:
        doc = json.loads(text, object_pairs_hook=once, parse_constant=constant)
    except InvalidDocument:
        raise
    except RecursionError:
        raise InvalidDocument("the document is nested too deeply") from None
    except ValueError as exc:
        raise InvalidDocument(f"the document is no JSON: {exc}"[:200]) from None
    if type(doc) is not dict:
        raise InvalidDocument("the document is no JSON object")
    return doc


def validate(doc: Json, limits: Limits = Limits()) -> Case:  # noqa: B008 (immutable)
    """The case that ``doc`` describes. Raises `InvalidDocument`, whatever ``doc`` is."""
    return _Reader(limits).case(doc)


def check_storage(spec: TensorSpec, size: int) -> None:
    """Check that ``spec`` stays inside its storage of ``size`` bytes: `torch.Tensor.set_` would grow it instead."""
    if spec.dtype not in table().dtypes or len(spec.shape) != len(spec.stride):
        raise InvalidDocument(f"a tensor of {spec.dtype!r:.40} with {len(spec.stride)} strides has no layout")
    last = sum((s - 1) * stride for s, stride in zip(spec.shape, spec.stride, strict=True))
    need = (spec.offset + last + 1) * table().dtypes[spec.dtype] if spec.numel else 0
    if need > size:
        raise InvalidDocument(f"a tensor reaches byte {need} of a storage of {size}")


class _Reader:
    """One reading of one document; counts what it has seen."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.where = "document"
        self.nodes = 0
        self.values = 0
        self.tensors: tuple[TensorSpec, ...] = ()
        self.custom = False

    def fail(self, why: str) -> NoReturn:
        raise InvalidDocument(f"{self.where}: {why}")

    def need(self, ok: object, why: str) -> None:
        if not ok:
            self.fail(why)

    def fields(self, doc: object, required: str, optional: str = "") -> Json:
        """``doc``, if it is an object with exactly these keys."""
        if type(doc) is not dict:
            self.fail("an object is missing")
        must, may = set(required.split()), set(optional.split())
        missing, strange = must - doc.keys(), doc.keys() - must - may
        self.need(not missing, f"{sorted(missing)} missing")
        self.need(not strange, f"{sorted(map(repr, strange))[0]:.60} does not belong here" if strange else "")
        return doc

    def items(self, x: object, most: int) -> list[Any]:
        if type(x) is not list or len(x) > most:
            self.fail(f"a list of at most {most} items is expected")
        return x

    def integer(self, x: object, low: int, high: int) -> int:
        if type(x) is not int or not low <= x <= high:
            self.fail(f"an integer from {low} to {high} is expected, not {x!r:.40}")
        return x

    def flag(self, x: object) -> bool:
        if type(x) is not bool:
            self.fail(f"true or false is expected, not {x!r:.40}")
        return x

    def text(self, x: object) -> str:
        if type(x) is not str or len(x) > self.limits.string:
            self.fail(f"a string of at most {self.limits.string} characters is expected")
        if not x.isascii() and any("\ud800" <= c <= "\udfff" for c in x):
            self.fail("a string holds half a character")
        return x

    def printable(self, x: object) -> str:
        if type(x) is not str or not _PRINTABLE.match(x):
            self.fail(f"short printable ASCII is expected, not {x!r:.60}")
        return x

    def one_of(self, x: object, known: Any, what: str) -> str:
        if type(x) is not str or x not in known:
            self.fail(f"{x!r:.60} is no {what}")
        return x

    # The document.

    def case(self, doc: object) -> Case:
        if type(doc) is dict and type(doc.get("format")) is int and doc["format"] > FORMAT:
            self.fail(f"format {doc['format']} is newer than this fxminify, which reads up to {FORMAT}: update it")
        doc = self.fields(
            doc, "format graph inputs", "torch tensors context backend imports backward compare"
        )
        self.integer(doc["format"], 1, FORMAT)
        self.where = "imports"
        imports = tuple(self.import_(i) for i in self.items(doc.get("imports", []), 1000))
        self.custom = bool(imports)
        self.tensors = self.specs(doc.get("tensors", []))
        graph = self.graph(doc["graph"], "graph", 0)
        self.where = "inputs"
        inputs = self.items(doc["inputs"], self.limits.nodes)
        self.need(len(inputs) == len(graph.placeholders), f"{len(inputs)} for {len(graph.placeholders)} placeholders")
        for index, value in enumerate(inputs):
            self.where = f"inputs[{index}]"
            self.value(value, frozenset())
        for name in ("context", "backend"):
            self.where = name
            self.fields(doc.get(name, {}), "", " ".join(map(str, doc.get(name, {}))) if type(doc.get(name)) is dict else "")
            self.plain(doc.get(name, {}), 0)
        self.where = "document"
        return Case(
            graph=graph,
            inputs=tuple(inputs),
            tensors=self.tensors,
            context=doc.get("context", {}),
            backend=doc.get("backend", {}),
            imports=imports,
            backward=self.flag(doc.get("backward", False)),
            compare=self.flag(doc.get("compare", False)),
            torch=self.printable(doc.get("torch", "")),
        )

    def import_(self, doc: object) -> Json:
        self.plain(doc, 0)
        self.need(type(doc) is dict, "an object is missing")
        assert isinstance(doc, dict)
        return doc

    def plain(self, x: object, depth: int) -> None:
        """Any JSON that a person could have meant."""
        self.count(depth)
        if type(x) is str:
            self.text(x)
        elif type(x) is float:
            self.need(math.isfinite(x), "a number is not finite")
        elif type(x) is int:
            self.need(x.bit_length() <= self.limits.integer_bits, "a number is too large")
        elif type(x) is list:
            for item in x:
                self.plain(item, depth + 1)
        elif type(x) is dict:
            for key, item in x.items():
                self.text(key)
                self.plain(item, depth + 1)
        else:
            self.need(x is None or type(x) is bool, f"{type(x).__name__} is no JSON")

    def count(self, depth: int) -> None:
        self.values += 1
        self.need(self.values <= self.limits.values, f"more than {self.limits.values} values")
        self.need(depth <= self.limits.depth, f"nested deeper than {self.limits.depth}")

    # Graphs.

    def graph(self, doc: object, where: str, depth: int) -> Graph:
        self.where = where
        self.need(depth <= self.limits.graphs_depth, f"graphs nested deeper than {self.limits.graphs_depth}")
        doc = self.fields(doc, "nodes", "attrs training")
        attrs: dict[str, Json] = {}
        for path, attr in self.fields_of(doc.get("attrs", {})):
            self.where = f"{where}.attrs"
            self.need(is_attribute_path(path), f"{path!r:.80} is no attribute's name")
            self.where = f"{where}.attrs[{path!r}]"
            attrs[path] = self.attribute(attr, depth)
        self.where = f"{where}.attrs"
        self.nesting(attrs)
        self.where = where
        found = self.items(doc["nodes"], self.limits.nodes)
        self.nodes += len(found)
        self.need(self.nodes <= self.limits.nodes, f"more than {self.limits.nodes} nodes")
        self.need(found, "no nodes")
        seen: set[str] = set()
        nodes = []
        for index, node in enumerate(found):
            self.where = f"{where}.nodes[{index}]"
            nodes.append(self.node(node, attrs, seen, last=index == len(found) - 1))
        self.where = where
        return Graph(tuple(nodes), attrs, self.flag(doc.get("training", False)))

    def fields_of(self, doc: object) -> list[tuple[str, Any]]:
        if type(doc) is not dict or len(doc) > self.limits.nodes:
            self.fail("an object is missing")
        return [(self.text(k), v) for k, v in doc.items()]

    def nesting(self, attrs: dict[str, Json]) -> None:
        """A path may go on inside a leaf module only to what that module holds, and inside nothing else."""
        for path in attrs:
            outer, _, leaf = path.rpartition(".")
            while outer:
                if outer in attrs:
                    module = attrs[outer].get("module")
                    held = {} if module is None else {n: k for k in ("parameters", "buffers", "modules") for n in module[k]}
                    below = path[len(outer) + 1 :].partition(".")[0]
                    self.need(below in held, f"{path!r:.80} is no part of {outer!r:.80}")
                    expected = "module" if held[below] == "modules" else "tensor"
                    self.need(expected in attrs[path] or "." in path[len(outer) + 1 :], f"{path!r:.80} is another thing")
                outer = outer.rpartition(".")[0]

    def attribute(self, attr: object, depth: int) -> Json:
        kind = tag(attr)
        assert isinstance(attr, dict) or kind is None
        if kind == "graph":
            return {"graph": self.graph(attr["graph"], f"{self.where}.graph", depth + 1)}  # type: ignore[index]
        if kind == "module":
            self.module(attr["module"], 0)  # type: ignore[index]
        elif kind == "value":
            self.value(attr["value"], frozenset())  # type: ignore[index]
        else:
            found = self.fields(attr, "tensor", "kind")
            self.index(found["tensor"])
            self.one_of(found.get("kind", "attribute"), _KINDS, "kind of tensor attribute")
        return attr  # type: ignore[return-value]

    def module(self, doc: object, depth: int) -> None:
        self.count(depth)
        doc = self.fields(doc, "class", "attrs parameters buffers modules training")
        name = self.one_of(doc["class"], table().modules, "leaf module")
        names: list[str] = []
        for key, value in self.fields_of(doc.setdefault("attrs", {})):
            self.one_of(key, table().modules[name], f"attribute of {name}")
            self.value(value, frozenset())
            names.append(key)
        for group in ("parameters", "buffers", "modules"):
            for key, value in self.fields_of(doc.setdefault(group, {})):
                self.need(key.isdigit() and key.isascii() and len(key) < 8 or is_attribute_path(key), f"bad name {key!r:.60}")
                self.need("." not in key, f"bad name {key!r:.60}")
                names.append(key)
                if value is None:
                    continue
                if group == "modules":
                    self.module(value, depth + 1)
                else:
                    self.index(value)
        self.need(len(names) == len(set(names)), "two attributes of one name")
        self.flag(doc.setdefault("training", False))
        weights = doc["attrs"].get("_flat_weights_names", [])
        self.need(all(type(n) is str and n in doc["parameters"] for n in self.items(weights, 10_000)), "unknown weight")

    def node(self, doc: object, attrs: dict[str, Json], seen: set[str], *, last: bool) -> Node:
        doc = self.fields(doc, "name op target", "args kwargs meta type")
        name, op, target = doc["name"], doc["op"], doc["target"]
        self.need(is_node_name(name), f"{name!r:.80} is no node's name")
        self.where += f" ({name})"
        self.need(name not in seen, "a second node of this name")
        self.one_of(op, _OPS, "op")
        self.need((op == "output") == last, "the output is the last node and only that")
        args = self.items(doc.get("args", []), 10_000)
        kwargs = doc.get("kwargs", {})
        for key, value in self.fields_of(kwargs):
            self.need(is_node_name(key) or key in ("self", "device"), f"{key!r:.60} is no argument's name")
            self.value(value, seen)
        for value in args:
            self.value(value, seen)
        if op == "call_function":
            self.target(target)
            if target == {"fn": "builtins.getattr"}:
                self.need(len(args) == 2 and not kwargs, "getattr takes an object and a name")
                self.one_of(args[1], table().getattr, "attribute in the table")
        elif op == "call_method":
            self.one_of(target, table().methods, "method in the table")
            self.need(args, "a method needs an object")
        elif op in ("get_attr", "call_module"):
            self.one_of(target, attrs, "attribute of the graph")
            self.need(op == "get_attr" or "module" in attrs[target] or "graph" in attrs[target], "it cannot be called")
        elif op == "placeholder":
            self.need(is_node_name(target), f"{target!r:.80} is no placeholder's name")
            self.need(len(args) <= 1 and not kwargs, "a placeholder takes a default at most")
        else:
            self.need(target == "output" and len(args) == 1 and not kwargs, "an output takes one value")
        seen.add(name)
        annotation = doc.get("type")
        if annotation is not None:
            self.one_of(annotation, ANNOTATIONS, "annotation")
        return Node(name, op, target, tuple(args), kwargs, self.meta(doc.get("meta", {})), annotation)

    def meta(self, doc: object) -> Json:
        doc = self.fields(doc, "", "dtype shape stack module")
        for key in doc.keys() - {"shape"}:
            self.printable(doc[key])
        for size in self.items(doc.get("shape", []), 200):
            self.need(type(size) is int or self.printable(size) is size, "a size is a number or text")
        return doc

    def target(self, x: object) -> None:
        try:
            check_target(x, custom=self.custom)
        except UnknownName as exc:
            self.fail(str(exc))

    # Values.

    def value(self, x: Value, seen: set[str] | frozenset[str], depth: int = 0) -> None:
        self.count(depth)
        kind = type(x)
        if x is None or kind is bool:
            return
        if kind is int:
            self.need(x.bit_length() <= self.limits.integer_bits, "a number is too large")
        elif kind is float:
            self.need(math.isfinite(x), "a number is not finite")
        elif kind is str:
            self.text(x)
        elif kind is list:
            for item in x:
                self.value(item, seen, depth + 1)
        elif kind is dict:
            name = tag(x)
            check = _TAGS.get(name) if type(name) is str else None
            if check is None:
                self.fail(f"{x!r:.60} is no value")
            if name == "ref":
                self.need(type(x["ref"]) is str and x["ref"] in seen, f"{x['ref']!r:.60} is no node before this one")
            else:
                check(self, x[name], seen, depth + 1)
        else:
            self.fail(f"{kind.__name__} is no value")

    def values_of(self, x: object, seen: set[str] | frozenset[str], depth: int) -> list[Value]:
        found = self.items(x, self.limits.values)
        for item in found:
            self.value(item, seen, depth)
        return found

    def key(self, x: Value) -> None:
        """A dictionary key or a set's member must have a hash."""
        inner = x[tag(x)] if tag(x) in ("tuple", "frozenset", "size") else None
        for item in inner if type(inner) is list else ():
            self.key(item)
        unhashable = type(x) is list or tag(x) in ("dict", "set", "slice", "ref", "tensor", "object", "return_type")
        self.need(not unhashable, "a key must be hashable")

    def index(self, x: object) -> None:
        if not self.tensors:
            self.fail("there are no tensors")
        self.integer(x, 0, len(self.tensors) - 1)

    # Tensors.

    def specs(self, docs: object) -> tuple[TensorSpec, ...]:
        self.where = "tensors"
        found = self.items(docs, self.limits.tensors)
        specs = []
        for index, doc in enumerate(found):
            self.where = f"tensors[{index}]"
            specs.append(self.spec(doc, index))
        for index, spec in enumerate(specs):
            self.where = f"tensors[{index}]"
            for part in spec.parts:
                self.integer(part, 0, len(specs) - 1)
            self.parts(spec, [specs[p] for p in spec.parts])
        return tuple(specs)

    def spec(self, doc: object, index: int) -> TensorSpec:
        doc = self.fields(
            doc,
            "dtype shape stride",
            "offset storage init device requires_grad leaf parameter conj neg inference layout parts extra",
        )
        big = 1 << 48
        size = self.limits.dimensions
        spec = TensorSpec(
            dtype=self.one_of(doc["dtype"], table().dtypes, "dtype"),
            shape=tuple(self.integer(s, 0, big) for s in self.items(doc["shape"], size)),
            stride=tuple(self.integer(s, 0, big) for s in self.items(doc["stride"], size)),
            offset=self.integer(doc.get("offset", 0), 0, big),
            storage=doc.get("storage"),
            init=doc.get("init"),
            device=self.device(doc.get("device", "cpu")),
            layout=self.one_of(doc.get("layout", "strided"), table().layouts, "layout"),
            parts=tuple(self.integer(p, 0, self.limits.tensors) for p in self.items(doc.get("parts", []), 4)),
            extra=self.fields(doc.get("extra", {}), "", "coalesced qscheme scale zero_point axis grad"),
            **{
                name: self.flag(doc.get(name, name == "leaf"))
                for name in ("requires_grad", "leaf", "parameter", "conj", "neg", "inference")
            },
        )
        self.need(spec.numel <= self.limits.numel, f"more than {self.limits.numel} elements")
        self.need(not (spec.requires_grad and spec.inference), "an inference tensor needs no gradient")
        if spec.requires_grad or spec.conj or spec.neg:
            self.need(re.match(r"float|bfloat|complex", spec.dtype), f"{spec.dtype} has no gradient, sign or conjugate")
        if spec.layout == "strided":
            self.need(len(spec.shape) == len(spec.stride), "shape and stride differ in length")
        if spec.storage is not None:
            self.need(type(spec.storage) is str and _KEY.match(spec.storage), "a storage is named by its SHA-256")
        if spec.init is not None:
            self.init(spec.init, spec)
        pieces = _pieces(spec)
        sources = [spec.storage is not None, spec.init is not None, pieces > 0]
        self.need(sum(sources) == (spec.device.partition(":")[0] != "meta"), "one source of values is expected")
        return spec

    def init(self, init: object, spec: TensorSpec) -> None:
        name = self.one_of(init.get("fn") if type(init) is dict else None, _INITS, "generator")
        init = self.fields(init, "fn " + " ".join(_INITS[name]))
        self.need(spec.layout == "strided" and spec.offset == 0 and not spec.conj and not spec.neg, "a view has a storage")
        if name == "randint":
            low = self.integer(init["low"], -(1 << 63), (1 << 63) - 2)
            self.integer(init["high"], low + 1, (1 << 63) - 1)
        if name == "full":
            self.value(init["value"], frozenset())
            plain = type(init["value"]) in (bool, int, float) or tag(init["value"]) in ("float", "complex")
            self.need(plain, "a scalar is expected")

    def parts(self, spec: TensorSpec, parts: list[TensorSpec]) -> None:
        """Components are plain tensors, so nothing can contain itself."""
        self.need(len(parts) == _pieces(spec) + (spec.extra.get("grad") is True), "wrong number of parts")
        for part in parts:
            self.need(not part.parts or part.layout == "sparse_coo" and part is parts[-1] and "grad" in spec.extra,
                      "a part is a plain tensor")
        extra = spec.extra
        for name in extra.keys() & {"coalesced", "grad"}:
            self.flag(extra[name])
        if "qscheme" in extra:
            self.one_of(extra["qscheme"], table().qschemes, "qscheme")
            self.need(spec.dtype.startswith(("qint", "quint")), "only quantized dtypes have a qscheme")
            if extra["qscheme"].startswith("per_tensor"):
                scale = extra.get("scale")
                self.need(type(scale) is float and math.isfinite(scale) and scale > 0, "a scale is a positive number")
                self.integer(extra.get("zero_point"), -(1 << 31), (1 << 31) - 1)
            else:
                self.integer(extra.get("axis"), 0, max(len(spec.shape) - 1, 0))

    def device(self, x: object) -> str:
        match = _DEVICE.match(x) if type(x) is str else None
        if match is None or match[1] not in table().devices:
            self.fail(f"{x!r:.60} is no device")
        return match[0]


def _pieces(spec: TensorSpec) -> int:
    """How many components make up the values of ``spec``; 0 for a plain tensor."""
    scheme = spec.extra.get("qscheme")
    if scheme is not None:
        return 1 if str(scheme).startswith("per_tensor") else 3
    return _PARTS.get(spec.layout, 0)


_Check = Callable[[_Reader, Any, "set[str] | frozenset[str]", int], Any]


def _float(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    r.one_of(x, ("inf", "-inf", "nan"), "float")


def _complex(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    parts = r.values_of(x, seen, depth)
    r.need(len(parts) == 2 and all(type(p) is float or tag(p) == "float" for p in parts), "two floats are expected")


def _slice(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    r.need(len(r.values_of(x, seen, depth)) == 3, "a slice has three parts")


def _range(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    big = 1 << 62
    r.need(len(found := [r.integer(i, -big, big) for i in r.items(x, 3)]) == 3 and found[2] != 0, "not a range")
    r.need(len(range(*found)) <= r.limits.range, "a range is too long")


def _dict(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    for pair in r.items(x, r.limits.values):
        key, _ = r.values_of(pair, seen, depth) if len(r.items(pair, 2)) == 2 else r.fail("a pair is expected")
        r.key(key)


def _set(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    for item in r.values_of(x, seen, depth):
        r.key(item)


def _enum(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a class and a member are expected")
    r.one_of(pair[1], table().enums[r.one_of(pair[0], table().enums, "enum")], "member")


def _return_type(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a name and values are expected")
    r.one_of(pair[0], table().return_types, "return type")
    r.values_of(pair[1], seen, depth)


def _sym(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    x = r.fields(x, "kind expr hint")
    kinds = {"SymInt": int, "SymFloat": float, "SymBool": bool}
    kind = kinds[r.one_of(x["kind"], kinds, "symbolic number")]
    r.printable(x["expr"])
    r.need(type(x["hint"]) is kind or (kind is float and tag(x["hint"]) == "float"), "the hint is of another type")
    r.value(x["hint"], frozenset())


def _bytes(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    r.need(re.fullmatch(r"(?:[0-9a-f]{2})*", r.text(x)), "hexadecimal digits are expected")


def _generator(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a device and a state are expected")
    r.device(pair[0])
    r.index(pair[1])
    state = r.tensors[pair[1]]
    r.need(state.dtype == "uint8" and len(state.shape) == 1, "a state is a row of bytes")


def _object(r: _Reader, _x: Any, _s: Any, _d: int) -> None:
    r.fail("an object of a process that is gone")


def _among(names: Callable[[], Any], what: str) -> _Check:
    return lambda r, x, _s, _d: r.one_of(x, names(), what)


_TAGS: dict[str, _Check] = {
    "ref": lambda *_: None,
    "tuple": lambda r, x, s, d: r.values_of(x, s, d),
    "size": lambda r, x, s, d: r.values_of(x, s, d),
    "dict": _dict,
    "set": _set,
    "frozenset": _set,
    "float": _float,
    "complex": _complex,
    "slice": _slice,
    "range": _range,
    "ellipsis": lambda r, x, _s, _d: r.need(x is True, "true is expected"),
    "dtype": _among(lambda: table().dtypes, "dtype"),
    "layout": _among(lambda: table().layouts, "layout"),
    "memory_format": _among(lambda: table().memory_formats, "memory format"),
    "qscheme": _among(lambda: table().qschemes, "qscheme"),
    "finfo": _among(lambda: table().dtypes, "dtype"),
    "iinfo": _among(lambda: table().dtypes, "dtype"),
    "device": lambda r, x, _s, _d: r.device(x),
    "enum": _enum,
    "target": lambda r, x, _s, _d: r.target(x),
    "tensor": lambda r, x, _s, _d: r.index(x),
    "sym": _sym,
    "bytes": _bytes,
    "return_type": _return_type,
    "generator": _generator,
    "object": _object,
}
