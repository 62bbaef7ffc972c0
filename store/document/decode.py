"""From data to a `Case`, believing nothing: `validate` checks a document without torch, without running anything.

FX turns names into Python text and executes it (a placeholder called ``x=f()`` runs ``f`` while the module is made).
A storage grows when a shape asks for more, and a shape of a few bytes can ask for a petabyte. So every name, number,
reference and size is checked here before anything is built. A checked document can be listed, printed and edited
without torch; `fxminify.store.live.build` builds it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, NoReturn

from . import context, recreation, tolerance
from .case import FORMAT, MOST_CALLS, Case, Graph, Json, Node, TensorSpec, Value, tag
from .names import ANNOTATIONS, UnknownName, check_target, is_argument_name, is_attribute_path, is_node_name, table

_OPS = frozenset({"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"})
#: The fields of a backend that are strings.
_BACKEND_TEXTS = "name how module entry_point distribution problem"
_BACKEND_FIELDS = "target options mode dynamic source copied search_path variables environment required"
_KINDS = ("parameter", "buffer", "attribute")
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_DEVICE = re.compile(r"([a-z]{2,16})(:[0-9]{1,3})?\Z")
_BIG = 1 << 48
_INITS: dict[str, tuple[str, ...]] = {
    "randn": (), "rand": (), "arange": (), "full": ("value",), "randint": ("low", "high"),
}  # fmt: skip
_PARTS = {"sparse_coo": 2, "sparse_csr": 3, "sparse_csc": 3, "sparse_bsr": 3, "sparse_bsc": 3, "_mkldnn": 1}


class InvalidDocument(ValueError):
    """The document is not one that fxminify writes; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a document: well above real graphs (962 nodes, two levels), and low enough to be harmless."""

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


#: The limits unless a caller says otherwise.
DEFAULT = Limits()
_PRINTABLE = re.compile(r"[ -~]{0,600}\Z")


def parse(text: str | bytes, limits: Limits = DEFAULT) -> Json:
    """The JSON object in ``text``. Raises `InvalidDocument` also for what `json` lets through."""
    doc = parse_value(text, limits)
    if type(doc) is not dict:
        raise InvalidDocument("the document is no JSON object")
    return doc


def parse_value(text: str | bytes, limits: Limits = DEFAULT) -> Any:
    """The JSON value in ``text``. Raises `InvalidDocument` also for what `json` lets through."""

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
        return json.loads(text, object_pairs_hook=once, parse_constant=constant)
    except InvalidDocument:
        raise
    except RecursionError:
        raise InvalidDocument("the document is nested too deeply") from None
    except ValueError as exc:
        raise InvalidDocument(f"the document is no JSON: {exc}"[:200]) from None


def validate(doc: Json, limits: Limits = DEFAULT) -> Case:
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


def brief(x: object) -> str:
    """``x`` for a message: short and printable. It is cheap for any ``x``."""
    if isinstance(x, str):
        return ascii(x[:60])
    if x is None or isinstance(x, bool | float) or (isinstance(x, int) and x.bit_length() < 100):
        return repr(x)
    return f"{type(x).__name__} of {len(x)}" if isinstance(x, list | dict) else type(x).__name__


class _Reader:
    """Reads one document. Each method checks one thing and raises `InvalidDocument` if it is not exactly right.

    ``where`` is the current place, for messages. ``values`` and ``nodes`` count the values and nodes read so far.
    ``tensors`` are the tensors of the document. ``custom`` admits operators of libraries outside torch.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.where = "document"
        self.values = 0
        self.nodes = 0
        self.custom = False
        self.tensors: tuple[TensorSpec, ...] = ()

    def fail(self, why: str) -> NoReturn:
        raise InvalidDocument(f"{self.where[-160:]}: {why}")

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
        if strange:
            self.fail(f"{min(map(brief, strange))} does not belong here")
        return doc

    def items(self, x: object, most: int) -> list[Any]:
        if type(x) is not list or len(x) > most:
            self.fail(f"a list of at most {most} items is expected")
        return x

    def integer(self, x: object, low: int, high: int) -> int:
        if type(x) is not int or not low <= x <= high:
            self.fail(f"an integer from {low} to {high} is expected, not {brief(x)}")
        return x

    def flag(self, x: object) -> bool:
        if type(x) is not bool:
            self.fail(f"true or false is expected, not {brief(x)}")
        return x

    def text(self, x: object) -> str:
        if type(x) is not str or len(x) > self.limits.string:
            self.fail(f"a string of at most {self.limits.string} characters is expected")
        if not x.isascii() and any("\ud800" <= c <= "\udfff" for c in x):
            self.fail("a string holds half a character")
        return x

    def printable(self, x: object) -> str:
        if type(x) is not str or not _PRINTABLE.match(x):
            self.fail(f"short printable ASCII is expected, not {brief(x)}")
        return x

    def one_of(self, x: object, known: Container[str], what: str) -> str:
        if type(x) is not str or x not in known:
            self.fail(f"{brief(x)} is no {what}")
        return x

    def plain(self, x: object, depth: int) -> None:
        """Check that ``x`` is plain JSON within the limits."""
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

    def index(self, x: object) -> None:
        if not self.tensors:
            self.fail("there are no tensors")
        self.integer(x, 0, len(self.tensors) - 1)

    def device(self, x: object) -> str:
        match = _DEVICE.match(x) if type(x) is str else None
        if match is None or match[1] not in table().devices:
            self.fail(f"{brief(x)} is no device")
        return match[0]

    def specs(self, docs: object) -> tuple[TensorSpec, ...]:
        self.where = "tensors"
        found = self.items(docs, self.limits.tensors)
        specs = []
        for index, doc in enumerate(found):
            self.where = f"tensors[{index}]"
            specs.append(self.spec(doc))
        for index, spec in enumerate(specs):
            self.where = f"tensors[{index}]"
            for part in spec.parts:
                self.integer(part, 0, len(specs) - 1)
            self.parts(spec, [specs[p] for p in spec.parts])
        return tuple(specs)

    def spec(self, doc: object) -> TensorSpec:
        doc = self.fields(
            doc,
            "dtype shape stride",
            "offset storage init device requires_grad leaf parameter conj neg inference layout parts dynamic extra "
            "subclass attributes",
        )
        size = self.limits.dimensions
        spec = TensorSpec(
            dtype=self.one_of(doc["dtype"], table().dtypes, "dtype"),
            shape=tuple(self.integer(s, 0, _BIG) for s in self.items(doc["shape"], size)),
            stride=tuple(self.integer(s, 0, _BIG) for s in self.items(doc["stride"], size)),
            offset=self.integer(doc.get("offset", 0), 0, _BIG),
            storage=doc.get("storage"),
            init=doc.get("init"),
            device=self.device(doc.get("device", "cpu")),
            layout=self.one_of(doc.get("layout", "strided"), table().layouts, "layout"),
            parts=tuple(self.integer(p, 0, self.limits.tensors) for p in self.items(doc.get("parts", []), 4)),
            dynamic=tuple(self.integer(d, 0, len(doc["shape"]) - 1) for d in self.items(doc.get("dynamic", []), size)),
            extra=self.fields(doc.get("extra", {}), "", "coalesced qscheme scale zero_point axis grad"),
            requires_grad=self.flag(doc.get("requires_grad", False)),
            leaf=self.flag(doc.get("leaf", True)),
            parameter=self.flag(doc.get("parameter", False)),
            conj=self.flag(doc.get("conj", False)),
            neg=self.flag(doc.get("neg", False)),
            inference=self.flag(doc.get("inference", False)),
            subclass=self.text(doc.get("subclass", "")),
            attributes=self.attributes(doc.get("attributes", {})),
        )
        self.need(spec.subclass == "" or recreation.is_dotted(spec.subclass), "a class has a dotted name")
        self.need(spec.subclass or not spec.attributes, "only a tensor of a class of its own has attributes")
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

    def attributes(self, doc: object) -> Json:
        """The attributes of a tensor with a class of its own: plain values under names that are not Python's own."""
        for name, value in self.fields_of(doc):
            self.need(name.isidentifier() and name.isascii() and not name.startswith("__"), "an attribute has a name")
            self.value(value, frozenset())
        assert isinstance(doc, dict)
        return doc

    def init(self, init: object, spec: TensorSpec) -> None:
        init = self.fields(init, "fn", "value low high std")
        name = self.one_of(init["fn"], _INITS, "generator")
        self.fields(init, "fn " + " ".join(_INITS[name]), "std" if name == "randn" else "")
        view = spec.layout != "strided" or spec.offset or spec.conj or spec.neg
        self.need(not view, "a view has a storage")
        if name == "randint":
            low = self.integer(init["low"], -(1 << 63), (1 << 63) - 2)
            self.integer(init["high"], low + 1, (1 << 63) - 1)
        if name == "full":
            self.need(_is_scalar(init["value"]), "a scalar is expected")
        if (std := init.get("std")) is not None:
            self.need(type(std) is float and 0 < std < math.inf, "a standard deviation is a positive number")

    def parts(self, spec: TensorSpec, parts: list[TensorSpec]) -> None:
        """Check that components are plain tensors, so that no tensor contains itself."""
        self.need(len(parts) == _pieces(spec) + (spec.extra.get("grad") is True), "wrong number of parts")
        self.need(all(_pieces(p) == 0 and not p.extra for p in parts), "a part is a plain tensor")
        extra = spec.extra
        quantized = spec.dtype.startswith(("qint", "quint"))
        self.need(quantized == ("qscheme" in extra), "a qscheme and a quantized dtype go together")
        for name in extra.keys() & {"coalesced", "grad"}:
            self.flag(extra[name])
        if "qscheme" in extra:
            self.one_of(extra["qscheme"], table().qschemes, "qscheme")
            if extra["qscheme"].startswith("per_tensor"):
                scale = extra.get("scale")
                self.need(type(scale) is float and math.isfinite(scale) and scale > 0, "a scale is a positive number")
                self.integer(extra.get("zero_point"), -(1 << 31), (1 << 31) - 1)
            else:
                self.integer(extra.get("axis"), 0, max(len(spec.shape) - 1, 0))

    def target(self, x: object) -> None:
        try:
            check_target(x, custom=self.custom)
        except UnknownName as exc:
            self.fail(str(exc))

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
            if check is None or name is None:
                self.fail(f"{brief(x)} is no value")
            if name == "ref":
                self.need(type(x["ref"]) is str and x["ref"] in seen, f"{brief(x['ref'])} is no node before this one")
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
        """Check that a dictionary key or member of a set is hashable."""
        name = tag(x)
        if name in ("tuple", "frozenset", "size"):
            for item in x[name]:
                self.key(item)
        self.need(type(x) is not list and name not in _UNHASHABLE, "a key must be hashable")

    def case(self, doc: object) -> Case:
        if type(doc) is dict and type(doc.get("format")) is int and doc["format"] > FORMAT:
            self.fail(f"format {doc['format']} is newer than this fxminify, which reads up to {FORMAT}: update it")
        optional = "torch tensors context backend imports backward compare calls earlier tolerance strict"
        doc = self.fields(doc, "format graph inputs", optional)
        self.integer(doc["format"], 1, FORMAT)
        self.where = "imports"
        imports = tuple(self.import_(i) for i in self.items(doc.get("imports", []), 1000))
        self.custom = any("processes" not in item for item in imports)
        self.tensors = self.specs(doc.get("tensors", []))
        graph = self.graph(doc["graph"], "graph", 0)
        self.where = "inputs"
        inputs = self.items(doc["inputs"], self.limits.nodes)
        self.need(len(inputs) == len(graph.placeholders), f"{len(inputs)} for {len(graph.placeholders)} placeholders")
        for index, value in enumerate(inputs):
            self.where = f"inputs[{index}]"
            self.value(value, frozenset())
        earlier = self.items(doc.get("earlier", []), MOST_CALLS)
        for call in earlier:
            self.where = "earlier"
            for _, value in self.fields_of(call):
                self.value(value, frozenset())
        self.context(doc.get("context", {}))
        self.backend(doc.get("backend", {}))
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
            calls=self.integer(doc.get("calls", 1), 1, MOST_CALLS),
            earlier=tuple(earlier),
            tolerance=self.tolerance(doc.get("tolerance", {})),
            strict=self.flag(doc.get("strict", False)),
        )

    def context(self, doc: object) -> None:
        self.where = "context"
        self.plain(doc, 0)
        self.need(type(doc) is dict, "an object is missing")
        assert isinstance(doc, dict)
        try:
            context.check(doc)
        except ValueError as error:
            self.fail(str(error))
        for device, state in doc.get("rng", {}).items():
            self.device(device)
            self.index(state["tensor"])

    def backend(self, doc: object) -> None:
        self.where = "backend"
        self.plain(doc, 0)
        self.fields(
            doc,
            "",
            f"{_BACKEND_TEXTS} target options mode dynamic source search_path variables environment required copied",
        )
        assert isinstance(doc, dict)
        for name in _BACKEND_TEXTS.split():
            self.where = f"backend.{name}"
            self.text(doc.get(name, ""))
        self.where = "backend"
        if doc.get("mode") is not None:
            self.printable(doc["mode"])
        self.need(doc.get("dynamic") is None or type(doc["dynamic"]) is bool, "dynamic is true, false or null")
        for path in self.items(doc.get("search_path", []), 1000):
            self.text(path)
        self.need(type(doc.get("environment", {})) is dict, "environment is an object")
        for name in (*self.items(doc.get("variables", []), 1000), *self.items(doc.get("required", []), 1000)):
            self.need(self.text(name).isascii() and name.isidentifier(), f"{brief(name)} is no name of a variable")
        self.recreated(recreation.check_backend, doc)

    def tolerance(self, doc: object) -> dict[str, float]:
        for name, value in self.fields_of(doc):
            self.need(name in tolerance.DTYPES and tolerance.is_tolerance(value), "no tolerance of a floating type")
        assert isinstance(doc, dict)
        return doc

    def import_(self, doc: object) -> Json:
        self.plain(doc, 0)
        self.recreated(recreation.check_import, doc)
        assert isinstance(doc, dict)
        return doc

    def recreated(self, check: Callable[[Any], None], doc: object) -> None:
        try:
            check(doc)
        except ValueError as error:
            self.fail(str(error))

    def graph(self, doc: object, where: str, depth: int) -> Graph:
        self.where = where
        self.need(depth <= self.limits.graphs_depth, f"graphs nested deeper than {self.limits.graphs_depth}")
        doc = self.fields(doc, "nodes", "attrs training")
        attrs: dict[str, Json] = {}
        for path, attr in self.fields_of(doc.get("attrs", {})):
            self.where = f"{where}.attrs"
            self.need(is_attribute_path(path), f"{brief(path)} is no attribute's name")
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
        """Check that a path inside a leaf module names a part of it, and that other attributes have no parts."""
        for path, attr in attrs.items():
            names = path.split(".")
            for cut in range(1, len(names)):
                holder = attrs.get(".".join(names[:cut]))
                if holder is not None:
                    self.need(
                        _is_part(holder.get("module"), names[cut:], attr), f"{brief(path)} is no part of a module"
                    )

    def attribute(self, attr: object, depth: int) -> Json:
        kind = tag(attr)
        doc = self.fields(attr, "", "graph module value tensor kind")
        if kind == "graph":
            return {"graph": self.graph(doc["graph"], f"{self.where}.graph", depth + 1)}
        if kind == "module":
            self.module(doc["module"], 0)
        elif kind == "value":
            self.value(doc["value"], frozenset())
        else:
            self.fields(doc, "tensor", "kind")
            self.index(doc["tensor"])
            self.one_of(doc.get("kind", "attribute"), _KINDS, "kind of tensor attribute")
        return doc

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
                self.need("." not in key and is_attribute_path(key), f"bad name {brief(key)}")
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
        self.need(is_node_name(name), f"{brief(name)} is no node's name")
        self.where += f" ({name})"
        self.need(name not in seen, "a second node of this name")
        self.one_of(op, _OPS, "op")
        self.need((op == "output") == last, "the output is the last node and only that")
        args = self.items(doc.get("args", []), 10_000)
        kwargs = doc.get("kwargs", {})
        for key, value in self.fields_of(kwargs):
            self.need(is_argument_name(key), f"{brief(key)} is no argument's name")
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
            self.need(is_argument_name(target) and target != "self", f"{brief(target)} is no placeholder's name")
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


def _is_scalar(x: object) -> bool:
    if type(x) is float:
        return math.isfinite(x)
    if type(x) is int:
        return x.bit_length() <= 64
    name = tag(x)
    if name == "complex":
        parts = x["complex"]  # type: ignore[index]
        return type(parts) is list and len(parts) == 2 and all(type(p) is float and math.isfinite(p) for p in parts)
    return type(x) is bool or (name == "float" and x["float"] in ("inf", "-inf", "nan"))  # type: ignore[index]


def _pieces(spec: TensorSpec) -> int:
    """The number of components of ``spec``; 0 for a plain tensor."""
    scheme = spec.extra.get("qscheme")
    if scheme is not None:
        return 1 if str(scheme).startswith("per_tensor") else 3
    return _PARTS.get(spec.layout, 0)


def _is_part(module: Json | None, names: list[str], attr: Json) -> bool:
    """Whether ``names`` lead to ``attr`` inside a leaf module: to a tensor or a module."""
    for name in names[:-1]:
        module = module["modules"].get(name) if module is not None else None
    if module is None:
        return False
    if "tensor" in attr:
        return attr["tensor"] in (module["parameters"].get(names[-1]), module["buffers"].get(names[-1]))
    return "module" in attr and attr["module"] == module["modules"].get(names[-1])


_UNHASHABLE = ("dict", "set", "slice", "ref", "tensor", "generator", "return_type")
_Check = Callable[[_Reader, Any, "set[str] | frozenset[str]", int], Any]


def _float(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    r.one_of(x, ("inf", "-inf", "nan"), "float")


def _complex(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    parts = r.values_of(x, seen, depth)
    r.need(len(parts) == 2 and all(type(p) is float or tag(p) == "float" for p in parts), "two floats are expected")


def _slice(r: _Reader, x: Any, seen: Any, depth: int) -> None:
    r.need(len(r.values_of(x, seen, depth)) == 3, "a slice has three parts")


def _range(r: _Reader, x: Any, _s: Any, _d: int) -> None:
    big = 1 << 60
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
