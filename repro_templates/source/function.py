"""A case's graph as readable, functional Python: `print_graph`.

The text is what the maintainer of a backend reads, what `torch.compile` traces in the script, and what a worker
executes for the ``compile`` entry, so it must mean exactly what the graph means. Operators print as infix, methods
as methods, slices as slices, paired autocast calls as ``with`` blocks; each sub-graph is a function before its
user; a tensor the graph holds becomes a module-level name (`PrintedGraph.constants`). Nothing here imports torch or
builds a graph, and no string of the case reaches the text unchecked (see `expressions`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...backends.adapters import adapter_of
from ...store.document.case import Case, Graph, Node, Value, refs, tag, target_name
from ...store.privacy import private
from .expressions import Expressions, Unprintable, is_name
from .higher_order import closures, decorators, hop_call, items_of, untupled
from .layout import INDENT, PrintedCall, Statement, signature
from .naming import Scope, input_names, is_operation, tells_nothing, unnumbered

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "is_": "is", "is_not": "is not",
}  # fmt: skip
_PREFIX = {"neg": "-", "pos": "+", "invert": "~", "inv": "~"}
#: In-place forms that every tensor implements in place; `@=` is not among them.
_IN_PLACE = {
    "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ifloordiv": "//=", "imod": "%=", "iand": "&=",
    "ior": "|=", "ixor": "^=", "ilshift": "<<=", "irshift": ">>=",
}  # fmt: skip
#: Calls that open a context, the call that closes it, and the context manager that is both.
_CONTEXTS = {
    "torch.amp.autocast_mode._enter_autocast": (
        "torch.amp.autocast_mode._exit_autocast",
        "torch.autocast",
        ("device_type", "dtype", "enabled", "cache_enabled"),
    ),
    "torch.autograd.grad_mode._enter_inference_mode": (
        "torch.autograd.grad_mode._exit_inference_mode",
        "torch.inference_mode",
        ("mode",),
    ),
}
#: How often the nodes of a graph may read values. With more, the script would be an unreadable file of many megabytes.
MOST_READS = 200_000
_DTYPES = {"bool": "b8", "bfloat16": "bf16"}
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(?:\[\w+\])?\Z|\d+\Z|\d+\.\d+\Z")


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor the graph holds: ``name`` in the text stands for ``case.tensors[tensor]``."""

    name: str
    tensor: int
    kind: str = "attribute"


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """``text`` defines the sub-graphs' functions and then the graph's own, called ``name``.

    A graph whose output is a tuple of one value prints as a function that returns that value, not a tuple, and is
    ``single``. ``imports`` are statements besides ``import torch``.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    single: bool = False
    imports: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()


def is_lowered(case: Case) -> bool:
    """Whether AOTAutograd traces the printed function again, which makes ``aten.amax`` of ``torch.amax``."""
    backend = case.backend
    return backend.get("how") == "aot_autograd" or adapter_of(backend.get("target")).lowers_with_aot_autograd


def print_graph(
    case: Case, name: str = "forward", *, reserved: Collection[str] = (), public: bool = True
) -> PrintedGraph:
    """Print the graph of ``case`` as a function ``name``, or a similar name if it is ``reserved``.

    With ``public``, control flow prints as programs write it (`torch.cond`), else as the operators that Dynamo
    records. Raises `Unprintable`, naming the node, or for a graph that reads values more than `MOST_READS` times.
    """
    if (reads := _reads(case.graph)) > MOST_READS:
        raise Unprintable(f"its nodes read values {reads:,} times, and at most {MOST_READS:,} are printed")
    module = _Module(reserved, is_lowered(case), public=public)
    function = module.globals.fresh(name)
    parameters = module.define(case.graph, function, top=True)
    return PrintedGraph(
        name=function,
        text="\n\n".join(module.definitions),
        parameters=tuple(parameters),
        single=_single(case.graph.output),
        imports=tuple(sorted(module.imports)),
        constants=tuple(module.constants.values()),
    )


class _Module:
    """The functions printed so far and the names they share."""

    def __init__(self, reserved: Collection[str], lowered: bool, *, public: bool) -> None:
        self.globals = Scope(reserved)
        self.lowered = lowered
        self.public = public
        self.definitions: list[str] = []
        self.constants: dict[int, Constant] = {}
        self.imports: set[str] = set()

    def define(self, graph: Graph, name: str, *, top: bool = False, single: bool = False) -> list[str]:
        """Print ``graph`` as the function ``name``, its sub-graphs before it; its parameters are returned.

        A ``single`` one returns the value in the tuple that the graph returns.
        """
        function = _Function(self, graph, self.attributes(graph))
        self.definitions.append(function.print(name, top, single))
        return list(function.parameters.values())

    def attributes(self, graph: Graph) -> dict[str, str]:
        """The names of the tensors and sub-graphs that ``graph`` holds, by path. Sub-graphs are defined, but for those
        that are functions inside the function of ``graph``."""
        bare, _ = untupled(graph, public=self.public)
        inside = closures(graph) if self.public else {}
        attributes: dict[str, str] = {}
        decorated = decorators(graph, public=self.public)
        for path, attr in graph.attrs.items():
            base = unnumbered(path.rpartition(".")[2])
            if path in inside:
                continue
            if "graph" in attr:
                attributes[path] = self.globals.fresh(base)
                self.define(attr["graph"], attributes[path], single=path in bare)
                if decorator := decorated.get(path):
                    self.definitions[-1] = f"@{decorator}\n{self.definitions[-1]}"
            elif "tensor" in attr:
                attributes[path] = self.constant(attr["tensor"], base, attr.get("kind", "attribute"))
        return attributes

    def constant(self, index: int, base: str = "constant", kind: str = "attribute") -> str:
        if index not in self.constants:
            base = base.strip("_").removeprefix("self_").strip("_") or "constant"
            base = "constant" if base.startswith(("tensor_constant", "lifted_tensor")) else base
            self.constants[index] = Constant(self.globals.fresh(base), index, kind)
        return self.constants[index].name


class _Function:
    """A graph on its way to the text of one function, at module level or inside the function ``outer``.

    ``given`` maps placeholders that are not parameters to names of the function around it.
    """

    def __init__(
        self,
        module: _Module,
        graph: Graph,
        attributes: Mapping[str, str],
        outer: _Function | None = None,
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.graph = graph
        self.attributes = attributes
        self.given = given
        self.scope: Scope = Scope(module.globals if outer is None else outer.scope)
        self.inside = closures(graph) if module.public else {}
        self.names: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.expressions = Expressions(self.lookup, module.constant, lowered=module.lowered)
        self.nodes = {n.name: n for n in graph.nodes}
        self.uses = Counter(r for n in graph.nodes for r in refs([list(n.args), list(n.kwargs.values())]))
        self.last_use = {r: i for i, n in enumerate(graph.nodes) for r in n.inputs}
        self.last_read: dict[str, int] = {}
        self.depth = 1
        _, self.single = untupled(graph, public=module.public)
        self.contexts = _contexts(graph)
        self.comments = len(graph.compute) - len(self.contexts) > 2

    def lookup(self, name: str) -> str:
        try:
            return self.names[name]
        except KeyError:
            raise Unprintable(f"refers to {name!r}, which is not defined before it") from None

    def print(self, name: str, top: bool, single: bool) -> str:
        placeholders = self.graph.placeholders
        for node, base in zip(placeholders, input_names([str(n.target) for n in placeholders]), strict=True):
            if node.name in self.given:
                self.bind(node, self.given[node.name])
                continue
            self.parameters[node.name] = self.scope.fresh(base)
            self.bind(node, self.parameters[node.name])
        for position, node in enumerate(self.graph.nodes):
            try:
                self.node(position, node)
            except Unprintable as e:
                raise Unprintable(e.reason, e.node or node.name) from None
        self.result(self.graph.output, top, single)
        self.module.imports |= self.expressions.imports
        return "\n".join([signature(name, list(self.parameters.values())), *(s.layout() for s in self.statements)])

    def node(self, position: int, node: Node) -> None:
        if node.op in ("placeholder", "output"):
            return
        if node.op == "get_attr":
            self.attribute(node)
        elif node.op == "call_method":
            self.assign(node, self.method(node))
        elif node.op == "call_function":
            self.function(position, node)
        else:
            raise Unprintable(f"a {node.op} node has no source form")

    def attribute(self, node: Node) -> None:
        path = str(node.target)
        if path in self.inside:
            self.bind(node, self.scope.fresh(unnumbered(path.rpartition(".")[2])))
        elif path in self.attributes:
            self.bind(node, self.attributes[path])
        elif "value" in (attr := self.graph.attrs.get(path, {})):
            self.bind(node, self.expressions.value(attr["value"]))
        else:
            raise Unprintable(f"the attribute {path!r} has no source form")

    def method(self, node: Node) -> PrintedCall:
        if not is_name(str(node.target)):
            raise Unprintable(f"{node.target!r} is no method")
        receiver, *arguments = self.arguments(node)
        return PrintedCall(f"{_owner(receiver)}.{node.target}", tuple(arguments))

    def arguments(self, node: Node) -> list[str]:
        positional = [self.expressions.value(a) for a in node.args]
        return positional + [self.expressions.keyword(k, v) for k, v in node.kwargs.items()]

    def function(self, position: int, node: Node) -> None:
        name = node.target.get("fn", "")
        if node.name in self.contexts:
            self.context(node)
            return
        library, _, bare = name.rpartition(".")
        if library in ("operator", "_operator") and not node.kwargs and self.operator(position, node, bare):
            return
        if name == "builtins.getattr" and (len(node.args) != 2 or not _is_public(node.args[1])):
            raise Unprintable(f"reads the attribute {node.args[1:]!r}")
        if name == "builtins.getattr":
            self.assign(node, f"{_owner(self.expressions.value(node.args[0]))}.{node.args[1]}")
            return
        module = self.module
        node = self.closing_over(node)
        call = hop_call(node, self.expressions, module.definitions, module.globals, public=module.public)
        if call is not None:
            self.assign(node, call)
            return
        self.assign(node, PrintedCall(self.expressions.target(node.target), tuple(self.arguments(node))))

    def closing_over(self, node: Node) -> Node:
        """Print the functions that ``node`` calls and that close over its last operands. Return the call without these
        operands, or ``node`` itself if it has no such functions."""
        read = [self.nodes[name] for name in node.inputs if name in self.nodes]
        functions = [n.name for n in read if self.inside.get(str(n.target)) == node.name]
        if not functions:
            return node
        more = [self.expressions.value(value) for value in items_of(node.args[-1])]
        indent = INDENT * self.depth
        for name in functions:
            graph = self.graph.attrs[str(self.nodes[name].target)]["graph"]
            last = graph.placeholders[len(graph.placeholders) - len(more) :]
            given = {placeholder.name: text for placeholder, text in zip(last, more, strict=True)}
            inner = _Function(self.module, graph, self.module.attributes(graph), self, given)
            text = inner.print(self.names[name], top=False, single=False)
            self.statements.append(Statement(text.replace("\n", f"\n{indent}"), depth=self.depth))
        return replace(node, args=(*node.args[:-1], []))

    def operator(self, position: int, node: Node, name: str) -> bool:
        """Print a function of `operator` in its syntax; False where it has none."""
        value = self.expressions.value
        if name == "getitem" and node.args and tag(node.args[0]) == "ref" and node.args[0]["ref"] in self.single:
            self.bind(node, self.names[node.args[0]["ref"]])
        elif name == "getitem" and len(node.args) == 2:
            self.assign(node, f"{_atom(value(node.args[0]))}[{self.expressions.subscript(node.args[1])}]")
        elif name == "setitem" and len(node.args) == 3:
            target = f"{_atom(value(node.args[0]))}[{self.expressions.subscript(node.args[1])}]"
            self.state(f"{target} = {value(node.args[2])}")
            self.bind(node, "None")
        elif name in _IN_PLACE and len(node.args) == 2 and self.is_in_place(position, node.args[0]):
            target = value(node.args[0])
            self.state(f"{target} {_IN_PLACE[name]} {value(node.args[1])}", self.comment(node))
            self.bind(node, target)
        elif name in _INFIX and len(node.args) == 2:
            self.assign(node, f"{_atom(value(node.args[0]))} {_INFIX[name]} {_atom(value(node.args[1]))}")
        elif name in _PREFIX and len(node.args) == 1:
            self.assign(node, f"{_PREFIX[name]}{_atom(value(node.args[0]))}")
        elif name == "not_" and len(node.args) == 1:
            self.assign(node, f"not {_atom(value(node.args[0]))}")
        else:
            return False
        return True

    def is_in_place(self, position: int, value: Value) -> bool:
        """Whether ``value op= other`` as a statement means the same: a local that is a tensor, or is not read again."""
        if tag(value) != "ref" or not self.scope.owns(self.names[value["ref"]]):
            return False
        node = self.nodes[value["ref"]]
        return "dtype" in node.meta or self.last_read[self.names[node.name]] <= position

    def bind(self, node: Node, text: str) -> None:
        """Bind the value of ``node`` to ``text``, which may also stand for other values."""
        self.names[node.name] = text
        self.last_read[text] = max(self.last_read.get(text, 0), self.last_use.get(node.name, 0))

    def context(self, node: Node) -> None:
        """Open or close the ``with`` block that a pair of calls stands for."""
        entered = self.contexts[node.name]
        if not entered:
            if self.statements[-1].depth < self.depth:
                self.state("pass")
            self.depth -= 1
            return
        _, manager, names = _CONTEXTS[node.target["fn"]]
        values = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        first = self.expressions.value(values.pop(names[0]))
        given = {k: v for k, v in values.items() if v is not None and (k, v) != ("enabled", True)}
        rest = [self.expressions.keyword(k, v) for k, v in given.items()]
        self.state(f"with {manager}({', '.join([first, *rest])}):")
        self.depth += 1

    def assign(self, node: Node, expression: str | PrintedCall) -> None:
        """Bind the node's name to ``expression``, or just evaluate it where nothing reads it."""
        base = unnumbered(node.name)
        if self.expressions.lowered or tag(node.target) != "op":
            base = base.removesuffix("_default")
        if (is_operation(base) or tells_nothing(base)) and is_operation(operation := target_name(node).strip("_")):
            base = operation  # the search may have put another operator into the node
        self.bind(node, self.scope.fresh(base) if self.uses[node.name] else "None")
        target = self.names[node.name] if self.uses[node.name] else ""
        self.statements.append(Statement(expression, target, self.depth, self.comment(node)))

    def state(self, text: str, comment: str = "") -> None:
        self.statements.append(Statement(text, depth=self.depth, comment=comment))

    def comment(self, node: Node) -> str:
        """``f32[2, 8]``, where the graph is large enough for it to help."""
        return shape_text(node) if self.comments else ""

    def result(self, output: Node, top: bool, single: bool) -> None:
        """Return the output; what was bound just before, and is read nowhere else, is returned directly."""
        value: Value = output.args[0] if output.args else None
        items = items_of(value) if top or tag(value) == "tuple" else []
        if (top or single) and _single(output):
            value, items = items[0], []
        last = self.statements[-1] if self.statements else None
        if len(items) > 1:
            self.statements.append(
                Statement(PrintedCall("return ", tuple(self.expressions.value(i) for i in items)), depth=1)
            )
        elif last and last.target and last.target == self.name_of(value, once=True):  # perhaps inside a context
            self.statements[-1] = replace(last, target="", expression=_prefixed("return ", last.expression))
        else:
            self.state(f"return {self.expressions.value(value)}")

    def name_of(self, value: Value, *, once: bool) -> str | None:
        """The name a reference has; with ``once`` only where it is the sole reference to its node."""
        if tag(value) != "ref" or (once and self.uses[value["ref"]] != 1):
            return None
        return self.lookup(value["ref"])


def shape_text(node: Node) -> str:
    """``f32[2, 8]``; empty where it is not known."""
    kind, shape = node.meta.get("dtype"), node.meta.get("shape")
    if not isinstance(kind, str) or not isinstance(shape, list):
        return ""
    short = re.sub(r"^(float|int|uint|complex)(?=\d)", lambda m: m[1][0], _DTYPES.get(kind, kind))
    text = f"{short}[{', '.join(str(s) for s in shape)}]"
    return text if re.fullmatch(r"[\w\[\], +*()/.-]{1,60}", text, re.ASCII) and private(text) == text else ""


def _reads(graph: Graph) -> int:
    """Count how often nodes of ``graph`` and of the graphs in it read a value."""
    within = sum(_reads(attr["graph"]) for attr in graph.attrs.values() if "graph" in attr)
    return within + sum(len(node.inputs) for node in graph.nodes)


def _single(output: Node) -> bool:
    return bool(output.args) and len(items_of(output.args[0])) == 1


def _prefixed(text: str, expression: str | PrintedCall) -> str | PrintedCall:
    return (
        replace(expression, head=text + expression.head) if isinstance(expression, PrintedCall) else text + expression
    )


def _contexts(graph: Graph) -> dict[str, bool]:
    """Nodes that open (True) and close (False) a context, where opening and closing nest properly."""
    stack: list[Node] = []
    found: dict[str, bool] = {}
    for node in graph.nodes:
        name = node.target.get("fn", "") if node.op == "call_function" else ""
        if name in _CONTEXTS:
            stack.append(node)
        elif any(name == closing for closing, _, _ in _CONTEXTS.values()):
            opened = stack.pop() if stack else None
            if opened is None or node.inputs != (opened.name,) or _CONTEXTS[opened.target["fn"]][0] != name:
                return {}
            found[opened.name], found[node.name] = True, False
    return {} if stack else found


def _is_public(name: object) -> bool:
    return isinstance(name, str) and is_name(name) and not name.startswith("__")


def _owner(text: str) -> str:
    """``text`` so that a dot can follow it: ``(0).sum()``."""
    return f"({text})" if text[:1].isdigit() else _atom(text)


def _atom(text: str) -> str:
    """``text`` in parentheses unless it binds tightly by itself."""
    return text if _SIMPLE.match(text) else f"({text})"
