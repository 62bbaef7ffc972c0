"""Higher-order operators in the form a person writes them, where the operator itself cannot be called from Python.

Most print as ``torch.ops.higher_order.NAME`` on plain functions. These do not: outside of a trace some accept FX graphs
only, and Dynamo accepts some only from the function that users call. The forms here mean the same and are captured as
the same operator again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...store.document.case import Graph, Node, Value, tag
from .expressions import Expressions
from .layout import Call
from .naming import Scope

#: What the function of a sub-graph must be, where Dynamo traces the operator's call.
_DECORATORS = {"scan": "torch.fx.symbolic_trace", "invoke_subgraph": "torch.compiler.nested_compile_region"}


def decorators(graph: Graph) -> dict[str, str]:
    """The decorator for each sub-graph, by attribute path, whose operator wants more than a plain function."""
    paths = {n.name: str(n.target) for n in graph.nodes if n.op == "get_attr"}
    calls = [(n, n.target.get("hop")) for n in graph.nodes if n.op == "call_function"]
    return {paths[r]: _DECORATORS[hop] for n, hop in calls if hop in _DECORATORS for r in n.inputs if r in paths}


def single(graph: Graph) -> tuple[set[str], set[str]]:
    """Sub-graphs that return one value, and the calls of which that is the result: they need no tuple.

    Attribute paths and names of nodes. Only where every reader of every call takes the value out of the tuple.
    """
    paths = {
        n.name: str(n.target) for n in graph.nodes if n.op == "get_attr" and "graph" in graph.attrs.get(n.target, {})
    }
    bodies: dict[str, set[str]] = {n.name: {paths[r] for r in n.inputs if r in paths} for n in graph.compute}
    nodes = {n.name: n for n in graph.nodes}
    refused = {p for p in paths.values() if len(_items(graph.attrs[p]["graph"].output.args[0])) != 1}
    readers: dict[str, list[Node]] = {name: [] for name, read in bodies.items() if read}
    for node in graph.nodes:
        for name in readers.keys() & set(node.inputs):
            readers[name].append(node)
    calls = {
        name
        for name, users in readers.items()
        if nodes[name].op == "call_function"
        and nodes[name].target.get("hop") in _SINGLE
        and all(u.op == "call_function" and list(u.args) == [{"ref": name}, 0] and _is_getitem(u) for u in users)
    }
    before = -1
    while len(refused) != before:
        before = len(refused)
        calls = {name for name in calls if not bodies[name] & refused}
        refused |= {path for name in readers if name not in calls for path in bodies[name]}
    return set(paths.values()) - refused, calls


def _is_getitem(node: Node) -> bool:
    return str(node.target.get("fn", "")).endswith("operator.getitem")


def call(node: Node, expressions: Expressions, definitions: list[str], names: Scope) -> Call | None:
    """The call of a higher-order operator in its natural form, None for every other function.

    What must be defined first is appended to ``definitions`` under a name from ``names``.
    """
    operator = node.target.get("hop")
    arguments = [expressions.value(a) for a in node.args] if operator in _FORMS else []
    if operator == "tag_activation_checkpoint":
        expressions.imports.add("import torch.utils.checkpoint")
        keywords = [expressions.keyword(k, v) for k, v in node.kwargs.items()]
        return Call("torch.utils.checkpoint.checkpoint", (*arguments, *keywords))
    if operator == "invoke_subgraph" and len(arguments) >= 2:
        region, _, *operands = arguments
        return Call(region, tuple(operands))
    if operator == "autograd_function_apply" and len(arguments) >= 2:
        forward, backward, *operands = arguments
        name = names.take(f"{forward.title().replace('_', '')}Function")
        definitions.append(_autograd_function(name, forward, backward, node.kwargs))
        return Call(f"{name}.apply", tuple(operands))
    if operator == "flex_attention" and 7 <= len(node.args) <= 9 and not node.kwargs:
        return Call("torch.ops.higher_order.flex_attention", tuple(_flex_attention(list(node.args), expressions)))
    return None


#: Their functions may return a tensor as well as a tuple; so does the call then.
_SINGLE = frozenset({"cond", "tag_activation_checkpoint", "invoke_subgraph"})
_FORMS = frozenset({"tag_activation_checkpoint", "invoke_subgraph", "autograd_function_apply"})


def _flex_attention(arguments: list[Value], expressions: Expressions) -> list[str]:
    """Seven arguments, as users give them: what the score and mask functions read besides is closed over."""
    texts = [expressions.value(a) for a in arguments[:7]]
    scores, masks = ([*_items(a)] for a in (*arguments[7:9], *[None] * (9 - len(arguments))))
    if scores:
        texts[3] = f"lambda *args: {texts[3]}(*args, {expressions.items(scores)})"
    if masks and (block_mask := _items(arguments[4])):
        mask = f"lambda *args: {expressions.value(block_mask[-1])}(*args, {expressions.items(masks)})"
        texts[4] = f"({', '.join([*(expressions.value(v) for v in block_mask[:-1]), mask])})"
    return texts


def _items(value: Value) -> list[Value]:
    found: Value = value["tuple"] if tag(value) == "tuple" else value
    return found if isinstance(found, list) else []


def _autograd_function(name: str, forward: str, backward: str, options: Mapping[str, Value]) -> str:
    """The class whose ``apply`` does what the operator does; ``forward`` returns outputs and saved values."""
    lines = [f"class {name}(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, *args):"]
    lines += [f"        outputs, ctx.saved = {forward}(*args)"]
    for key, method in (("non_differentiable_idx", "mark_non_differentiable"), ("dirty_idx", "mark_dirty")):
        if outputs := ", ".join(f"outputs[{i}]" for i in _items(options.get(key)) if type(i) is int):
            lines += [f"        ctx.{method}({outputs})"]
    lines += ["        return outputs", "", "    @staticmethod", "    def backward(ctx, *gradients):"]
    return "\n".join([*lines, f"        return {backward}(*gradients, *ctx.saved)"])
