"""Calls of higher-order operators as programs write them: ``torch.cond(pred, true_fn, false_fn, (x,))``.

Dynamo records the operator (``torch.ops.higher_order.cond``) with what its functions close over as operands. A program
calls a function of torch, and its functions close over what they need. Where the two are not alike, the operator itself
can be printed (``public=False``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...store.document.case import Graph, Node, Value, tag
from .expressions import Expressions
from .layout import PrintedCall
from .naming import Scope

#: What the function of a sub-graph must be, where Dynamo traces the operator's call.
_DECORATORS = {"scan": "torch.fx.symbolic_trace", "invoke_subgraph": "torch.compiler.nested_compile_region"}
#: Their functions may return a tensor as well as a tuple; so does the call then.
_SINGLE_RESULT = frozenset({"cond", "tag_activation_checkpoint", "invoke_subgraph"})


def decorators(graph: Graph, *, public: bool) -> dict[str, str]:
    """The decorator for each sub-graph, by attribute path, whose operator wants more than a plain function."""
    paths = {n.name: str(n.target) for n in graph.nodes if n.op == "get_attr"}
    calls = [(n, n.target.get("hop")) for n in graph.nodes if n.op == "call_function"]
    wanting = [(n, hop) for n, hop in calls if hop in _DECORATORS and not (public and _public_form(n) is not None)]
    return {paths[r]: _DECORATORS[hop] for n, hop in wanting for r in n.inputs if r in paths}


def untupled(graph: Graph, *, public: bool) -> tuple[set[str], set[str]]:
    """Sub-graphs that return one value, and the calls of which that is the result: they need no tuple.

    Attribute paths and names of nodes. Only where every reader of every call takes the value out of the tuple.
    """
    paths = {
        n.name: str(n.target) for n in graph.nodes if n.op == "get_attr" and "graph" in graph.attrs.get(n.target, {})
    }
    bodies: dict[str, set[str]] = {n.name: {paths[r] for r in n.inputs if r in paths} for n in graph.compute}
    nodes = {n.name: n for n in graph.nodes}
    refused = {p for p in paths.values() if len(items_of(graph.attrs[p]["graph"].output.args[0])) != 1}
    readers: dict[str, list[Node]] = {name: [] for name, read in bodies.items() if read}
    for node in graph.nodes:
        for name in readers.keys() & set(node.inputs):
            readers[name].append(node)
    calls = {
        name
        for name, users in readers.items()
        if nodes[name].op == "call_function"
        and _returns_single(nodes[name], public=public)
        and all(u.op == "call_function" and list(u.args) == [{"ref": name}, 0] and _is_getitem(u) for u in users)
    }
    refused |= {path for name in readers if name not in calls for path in bodies[name]}
    callers: dict[str, list[str]] = {}
    for name in calls:
        for path in bodies[name]:
            callers.setdefault(path, []).append(name)
    waiting = list(refused)
    while waiting:
        for name in callers.get(waiting.pop(), ()):
            calls.discard(name)
            waiting += bodies[name] - refused
            refused |= bodies[name]
    return set(paths.values()) - refused, calls


def _is_getitem(node: Node) -> bool:
    return str(node.target.get("fn", "")).endswith("operator.getitem")


def _returns_single(call: Node, *, public: bool) -> bool:
    """Whether the functions of a higher-order call may return a tensor as well as a tuple."""
    operator = call.target.get("hop")
    return operator in _SINGLE_RESULT or (operator == "map_impl" and public and _public_form(call) is not None)


def closures(graph: Graph) -> dict[str, str]:
    """Sub-graphs that are functions inside the function of ``graph``, and the call that has them: they close over the
    last operands of the call. Attribute paths and names of nodes. Only where nothing else reads the sub-graph."""
    paths = {n.name: str(n.target) for n in graph.nodes if n.op == "get_attr"}
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name in paths:
                readers.setdefault(paths[name], []).append(node)
    found = {}
    for path, nodes in readers.items():
        call = nodes[0]
        closes = call.op == "call_function" and call.target.get("hop") in _CLOSE_OVER
        if closes and len(nodes) == 1 and _public_form(call) is not None and items_of(call.args[-1]):
            found[path] = call.name
    return found


def hop_call(
    node: Node, expressions: Expressions, definitions: list[str], names: Scope, *, public: bool
) -> PrintedCall | None:
    """The call of a higher-order operator in its natural form, None for every other function.

    What must be defined first is appended to ``definitions`` under a name from ``names``. Without ``public`` control
    flow is printed as the operator that Dynamo records.
    """
    operator = node.target.get("hop")
    if public and (form := _public_form(node)) is not None:
        return form(node, expressions)
    arguments = [expressions.value(a) for a in node.args] if operator in _FORMS else []
    if operator == "tag_activation_checkpoint":
        expressions.imports.add("import torch.utils.checkpoint")
        keywords = [expressions.keyword(k, v) for k, v in node.kwargs.items()]
        return PrintedCall("torch.utils.checkpoint.checkpoint", (*arguments, *keywords))
    if operator == "invoke_subgraph" and len(arguments) >= 2:
        region, _, *operands = arguments
        return PrintedCall(region, tuple(operands))
    if operator == "autograd_function_apply" and len(arguments) >= 2:
        forward, backward, *operands = arguments
        name = names.take(f"{forward.title().replace('_', '')}Function")
        definitions.append(_autograd_function(name, forward, backward, node.kwargs))
        return PrintedCall(f"{name}.apply", tuple(operands))
    if operator == "flex_attention" and 7 <= len(node.args) <= 9 and not node.kwargs:
        return PrintedCall(
            "torch.ops.higher_order.flex_attention", tuple(_flex_attention(list(node.args), expressions))
        )
    return None


#: Their last argument has what their functions close over.
_CLOSE_OVER = frozenset({"while_loop", "scan"})
_FORMS = frozenset({"tag_activation_checkpoint", "invoke_subgraph", "autograd_function_apply"})
#: Functions that programs call for control flow, besides `torch.cond` and `torch.while_loop`.
_MODULE = "torch._higher_order_ops"


def has_public_form(graph: Graph) -> bool:
    """Whether a call in ``graph`` or its sub-graphs is printed in another way with ``public`` than without."""
    inner = [attr["graph"] for attr in graph.attrs.values() if "graph" in attr]
    calls = (n for n in graph.nodes if n.op == "call_function")
    return any(_public_form(call) is not None for call in calls) or any(map(has_public_form, inner))


def _public_form(node: Node) -> Callable[[Node, Expressions], PrintedCall] | None:
    """Return a printer for the function of torch that leads to the operator ``node``, or None."""
    name, args = node.target.get("hop"), node.args
    if node.kwargs or len(args) != (4 if name in ("cond", "while_loop", "scan") else 3):
        return None
    known: dict[str, tuple[Callable[[Node, Expressions], PrintedCall], bool]] = {
        "cond": (_cond, True),
        "while_loop": (_while_loop, bool(items_of(args[2]))),
        "map_impl": (_map, bool(items_of(args[1])) and isinstance(args[1], list) and isinstance(args[2], list)),
        "scan": (_scan, len(args) == 4 and [len(items_of(given)) for given in args[1:3]] == [1, 1]),
    }
    form, fits = known.get(str(name), (_cond, False))
    return form if fits else None


def _cond(node: Node, expressions: Expressions) -> PrintedCall:
    arguments = [expressions.value(a) for a in node.args]
    return PrintedCall("torch.cond", tuple(arguments if items_of(node.args[3]) else arguments[:3]))


def _while_loop(node: Node, expressions: Expressions) -> PrintedCall:
    condition, body, carried, more = node.args
    functions = [_closing_over(f, items_of(more), expressions) for f in (condition, body)]
    return PrintedCall("torch.while_loop", (*functions, expressions.value({"tuple": items_of(carried)})))


def _map(node: Node, expressions: Expressions) -> PrintedCall:
    body, mapped, more = node.args
    arguments = [expressions.value(a) for a in items_of(more)]
    if len(items_of(mapped)) == 1:
        return PrintedCall(f"{_MODULE}.map", (expressions.value(body), expressions.value(mapped[0]), *arguments))
    function = f"lambda x, *args: {expressions.value(body)}(*x, *args)"
    return PrintedCall(f"{_MODULE}.map", (function, expressions.value({"tuple": items_of(mapped)}), *arguments))


def _scan(node: Node, expressions: Expressions) -> PrintedCall:
    body, carried, scanned, more = node.args
    function = _closing_over(body, items_of(more), expressions)
    first = [expressions.value(given) for given in (carried[0], scanned[0])]
    return PrintedCall(f"{_MODULE}.scan", (function, *first))


def _closing_over(function: Value, more: list[Value], expressions: Expressions) -> str:
    """``function``, whose last arguments are those that it closes over in a program."""
    name = expressions.value(function)
    return f"lambda *args: {name}(*args, {expressions.items(more)})" if more else name


def _flex_attention(arguments: list[Value], expressions: Expressions) -> list[str]:
    """Seven arguments, as users give them: what the score and mask functions read besides is closed over."""
    texts = [expressions.value(a) for a in arguments[:7]]
    scores, masks = ([*items_of(a)] for a in (*arguments[7:9], *[None] * (9 - len(arguments))))
    if scores:
        texts[3] = f"lambda *args: {texts[3]}(*args, {expressions.items(scores)})"
    if masks and (block_mask := items_of(arguments[4])):
        mask = f"lambda *args: {expressions.value(block_mask[-1])}(*args, {expressions.items(masks)})"
        texts[4] = f"({', '.join([*(expressions.value(v) for v in block_mask[:-1]), mask])})"
    return texts


def _autograd_function(name: str, forward: str, backward: str, options: Mapping[str, Value]) -> str:
    """The class whose ``apply`` does what the operator does; ``forward`` returns outputs and saved values."""
    lines = [f"class {name}(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, *args):"]
    lines += [f"        outputs, ctx.saved = {forward}(*args)"]
    for key, method in (("non_differentiable_idx", "mark_non_differentiable"), ("dirty_idx", "mark_dirty")):
        if outputs := ", ".join(f"outputs[{i}]" for i in items_of(options.get(key)) if type(i) is int):
            lines += [f"        ctx.{method}({outputs})"]
    lines += ["        return outputs", "", "    @staticmethod", "    def backward(ctx, *gradients):"]
    return "\n".join([*lines, f"        return {backward}(*gradients, *ctx.saved)"])


def items_of(value: Value) -> list[Value]:
    """Return the items of a tuple or list, nothing for any other value."""
    return list(value["tuple"]) if tag(value) == "tuple" else value if isinstance(value, list) else []
