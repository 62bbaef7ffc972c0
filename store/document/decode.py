"""From data to a `Case`, believing nothing: `validate` checks a document without torch, without running anything.

FX turns names into Python text and executes it (a placeholder called ``x=f()`` runs ``f`` while the module is
being made), storages grow when a shape asks for more, and a shape of a few bytes can ask for a petabyte. So every
name, number, reference and size is checked here, before anything is built; what passes can be listed, printed and
edited without torch, and built by `fxminify.store.live.build`.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from . import context, tolerance
from .case import FORMAT, MOST_CALLS, Case, Graph, Json, Node, tag
from .check_tensors import check_storage
from .check_values import ValueChecks
from .checks import DEFAULT, InvalidDocument, Limits, brief
from .names import ANNOTATIONS, is_argument_name, is_attribute_path, is_node_name, table

__all__ = ["InvalidDocument", "Limits", "check_storage", "parse", "parse_value", "validate"]

_OPS = frozenset({"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"})
#: The fields of a backend that are strings.
_BACKEND_TEXTS = "name how module entry_point distribution problem"
_KINDS = ("parameter", "buffer", "attribute")


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


class _Reader(ValueChecks):
    """Checks of documents and graphs."""

    nodes = 0

    def case(self, doc: object) -> Case:
        if type(doc) is dict and type(doc.get("format")) is int and doc["format"] > FORMAT:
            self.fail(f"format {doc['format']} is newer than this fxminify, which reads up to {FORMAT}: update it")
        optional = "torch tensors context backend imports backward compare calls earlier tolerance"
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
        """Its fields are what they are called; what its expressions may hold is for `backends.provenance.spec`."""
        self.where = "backend"
        self.plain(doc, 0)
        self.fields(doc, "", f"{_BACKEND_TEXTS} target options mode dynamic source search_path")
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

    def tolerance(self, doc: object) -> dict[str, float]:
        for name, value in self.fields_of(doc):
            self.need(name in tolerance.DTYPES and tolerance.is_tolerance(value), "no tolerance of a floating type")
        assert isinstance(doc, dict)
        return doc

    def import_(self, doc: object) -> Json:
        self.plain(doc, 0)
        self.need(type(doc) is dict, "an object is missing")
        assert isinstance(doc, dict)
        return doc

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
        """A path goes on inside a leaf module only to a part of it, and inside nothing else."""
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


def _is_part(module: Json | None, names: list[str], attr: Json) -> bool:
    """Whether ``names`` lead to what ``attr`` is: a tensor of a leaf module, or a module in it."""
    for name in names[:-1]:
        module = module["modules"].get(name) if module is not None else None
    if module is None:
        return False
    if "tensor" in attr:
        return attr["tensor"] in (module["parameters"].get(names[-1]), module["buffers"].get(names[-1]))
    return "module" in attr and attr["module"] == module["modules"].get(names[-1])
