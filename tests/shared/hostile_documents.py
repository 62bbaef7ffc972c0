"""Documents that mean harm, and small ones that do not, for the tests of everything that reads documents.

The cases come from a survey of documents that torch.fx, torch and json accept: FX pastes placeholder targets, method
names and attribute paths into Python text; a storage grows to fit a shape; a stride of 0 makes petabytes of a byte.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
KEY = "0" * 64
X = {"name": "x", "op": "placeholder", "target": "x"}
OUT = {"name": "output", "op": "output", "target": "output", "args": [{"ref": "x"}]}
TENSOR = {"dtype": "float32", "shape": [2], "stride": [1], "storage": KEY}
PLANTED = "fxminify_planted"


def document(nodes: list[Json] | None = None, **changes: Any) -> Json:
    graph = {"nodes": copy.deepcopy(nodes) if nodes is not None else [X, OUT], "attrs": changes.pop("attrs", {})}
    inputs = [{"tensor": 0}] * sum(n.get("op") == "placeholder" for n in graph["nodes"])
    return {"format": 1, "graph": graph, "inputs": inputs, "tensors": [dict(TENSOR)]} | changes


def calling(**node: Any) -> Json:
    return document(
        [X, {"name": "y", "op": "call_function", "target": {"fn": "torch.sin"}, "args": [{"ref": "x"}]} | node, OUT]
    )


def value(x: Any) -> Json:
    return document(inputs=[x])


def tensor(**changes: Any) -> Json:
    return document(tensors=[TENSOR | changes])


def attribute(path: str, attr: Any, op: str = "get_attr") -> Json:
    node = {"name": "y", "op": op, "target": path, "args": [{"ref": "x"}] if op == "call_module" else []}
    return document([X, node, OUT], attrs={path: attr})


def leaf(**changes: Any) -> Json:
    return attribute(
        "m",
        {"module": {"class": "torch.nn.modules.activation.ReLU", "attrs": {"inplace": False}} | changes},
        "call_module",
    )


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    x: Any = 1
    for _ in range(depth):
        x = wrap(x)
    return x


def subgraphs(depth: int) -> Json:
    graph: Json = {"nodes": [X, OUT]}
    for _ in range(depth):
        inner = {"name": "y", "op": "get_attr", "target": "s"}
        graph = {"nodes": [X, inner, OUT], "attrs": {"s": {"graph": graph}}}
    return document() | {"graph": graph}


CODE = f"{PLANTED}()"
REFUSED: dict[str, Json] = {
    # Code in names.
    "placeholder target with a default": document([X | {"target": f"x={CODE}"}, OUT]),
    "placeholder target with a newline": document([X | {"target": f"x\n{CODE}"}, OUT]),
    "placeholder target with stars": document([X | {"target": "**x"}, OUT]),
    "method name that closes the quote": calling(op="call_method", target=f'a", {CODE}) or ("x'),
    "method name with a newline": calling(op="call_method", target=f'a", 0)\n{CODE}\n'),
    "method path": calling(op="call_method", target="register_hook.__func__.__globals__.get"),
    "method outside the list": calling(op="call_method", target="apply_"),
    "method without an object": calling(op="call_method", target="sin", args=[]),
    "attribute path with a newline": attribute(f"a\n{CODE}", {"value": 1}),
    "node name with a newline": document([X | {"name": f"x\n{CODE}"}, OUT]),
    "node name with a trailing newline": document([X | {"name": "x\n"}, OUT | {"args": [1]}]),
    "node name is a keyword": document([X | {"name": "class"}, OUT | {"args": [1]}]),
    "node named self": document([X | {"name": "self"}, OUT | {"args": [1]}]),
    "node named torch": document([X | {"name": "torch"}, OUT | {"args": [1]}]),
    "node name that normalises": document([X | {"name": "\uff45val"}, OUT | {"args": [1]}]),
    "node name twice": document([X, X, OUT]),
    "keyword with code": calling(kwargs={f"a={CODE}, b": 1}),
    "keyword that is a keyword": calling(kwargs={"from": 1}),
    "annotation": calling(type=CODE),
    "metadata with a newline": calling(meta={"stack": f"a.py:1 f\r{CODE}"}),
    "metadata with U+2028": calling(meta={"module": f"a\u2028{CODE}"}),
    "metadata with an escape": calling(meta={"dtype": "\x1b]0;owned\x07"}),
    "shape text": calling(meta={"shape": [f"s0\n{CODE}"]}),
    "unknown metadata": calling(meta={"code": CODE}),
    "symbol's expression": value({"sym": {"kind": "SymInt", "expr": f"s0\n{CODE}", "hint": 3}}),
    "symbol's hint": value({"sym": {"kind": "SymInt", "expr": "s0", "hint": CODE}}),
    "torch version": document() | {"torch": f"2\n{CODE}\r\x0c\u2028"},
    # Names outside the table.
    "function": calling(target={"fn": "os.system"}),
    "class of an overload": calling(target={"op": "aten::add.__class__"}),
    "file operator": calling(target={"op": "aten::from_file.default"}),
    "custom operator without imports": calling(target={"op": "mylib::f.default"}),
    "target as text": calling(target="torch.sin"),
    "target with two keys": calling(target={"fn": "torch.sin", "op": "aten::sin.default"}),
    "live object as target": calling(target={"object": 0}),
    "live object": value({"object": 0}),
    "getattr of __class__": calling(target={"fn": "builtins.getattr"}, args=[{"ref": "x"}, "__class__"]),
    "getattr of a node": calling(target={"fn": "builtins.getattr"}, args=[{"ref": "x"}, {"ref": "x"}]),
    "getattr with a default": calling(target={"fn": "builtins.getattr"}, args=[{"ref": "x"}, "T", 1]),
    "function as a value": value({"target": {"fn": "os.system"}}),
    "enum class": value({"enum": ["os", "system"]}),
    "enum member": value({"enum": ["SDPBackend", "__class__"]}),
    "return type": value({"return_type": ["__loader__", []]}),
    "dtype": value({"dtype": "load"}),
    "dtype path": value({"dtype": "float32.__class__"}),
    "layout": value({"layout": "__name__"}),
    "device with code": value({"device": f"cpu');{CODE}#"}),
    "device of another kind": value({"device": "maia:0"}),
    # Attributes that shadow the module.
    "attribute forward": attribute("forward", {"value": 1}),
    "attribute _modules.x": attribute("_modules.x", {"value": 1}),
    "attribute _graph": attribute("_graph", {"value": 1}),
    "attribute _code": attribute("_code", {"value": CODE}),
    "attribute training": attribute("training", {"value": 1}),
    "attribute __class__": attribute("__class__", {"value": 1}),
    "attribute of a sub-graph": document(
        [X, OUT], attrs={"g": {"graph": {"nodes": [X, OUT]}}, "g.meta2": {"value": 1}}
    ),
    "attribute of no kind": attribute("a", {"code": CODE}),
    "attribute of two kinds": attribute("a", {"value": 1, "tensor": 0}),
    "attribute not listed": document([X, {"name": "y", "op": "get_attr", "target": "z"}, OUT]),
    "module forward": leaf(attrs={"inplace": False, "forward": {"target": {"fn": "builtins.list"}}}),
    "module _call_impl": leaf(attrs={"_call_impl": {"target": {"fn": "builtins.list"}}}),
    "module hooks": leaf(attrs={"_forward_hooks": {"dict": []}}),
    "module attribute by path": document(
        [X, OUT],
        attrs={"m": {"module": {"class": "torch.nn.modules.activation.ReLU"}}, "m.extra": {"value": 1}},
    ),
    "module class": leaf(**{"class": "torch.nn.modules.module.Module"}),
    "module class elsewhere": leaf(**{"class": "subprocess.Popen"}),
    "module parameter named forward": leaf(parameters={"forward": 0}),
    "module parameter that is a path": leaf(parameters={"a.b": 0}),
    "module weight of no name": leaf(
        **{"class": "torch.nn.modules.rnn.LSTM", "attrs": {"_flat_weights_names": ["__class__"]}}
    ),
    "value called as a module": attribute("a", {"value": 1}, "call_module"),
    # Sizes.
    "shape larger than any": tensor(shape=[1 << 50], stride=[0]),
    "shape of too many elements": tensor(shape=[1 << 20, 1 << 20], stride=[0, 0]),
    "shape that overflows": tensor(shape=[1 << 32, 1 << 32], stride=[1 << 31, 1 << 31]),
    "stride that overflows": tensor(shape=[3], stride=[1 << 63]),
    "negative stride": tensor(stride=[-1]),
    "negative offset": tensor(offset=-5),
    "float shape": tensor(shape=[2.0]),
    "bool shape": tensor(shape=[True]),
    "shape and stride differ": tensor(shape=[2, 1]),
    "many dimensions": tensor(shape=[1] * 100, stride=[1] * 100),
    "meta tensor of 2^62": tensor(device="meta", storage=None, shape=[1 << 62]),
    "storage named by a path": tensor(storage="../../x"),
    "storage named by a number": tensor(storage=3),
    "no source of values": tensor(storage=None),
    "two sources of values": tensor(init={"fn": "randn"}),
    "unknown generator": tensor(storage=None, init={"fn": "load"}),
    "generator with strange keys": tensor(storage=None, init={"fn": "randn", "code": CODE}),
    "empty range of integers": tensor(storage=None, init={"fn": "randint", "low": 3, "high": 3}),
    "fill that is no scalar": tensor(storage=None, init={"fn": "full", "value": [1]}),
    "gradient of integers": tensor(dtype="int64", requires_grad=True),
    "own part": tensor(storage=None, layout="sparse_coo", parts=[0, 0]),
    "own gradient": tensor(requires_grad=True, parts=[0], extra={"grad": True}),
    "part out of range": tensor(storage=None, layout="_mkldnn", parts=[7]),
    "quantized without a scheme": tensor(dtype="qint8"),
    "quantized by nan": document(
        tensors=[
            {
                "dtype": "qint8",
                "shape": [2],
                "stride": [1],
                "parts": [1],
                "extra": {"qscheme": "per_tensor_affine", "scale": 0.0, "zero_point": 0},
            },
            TENSOR | {"dtype": "int8"},
        ]
    ),
    "tensor index true": value({"tensor": True}),
    "tensor index -1": value({"tensor": -1}),
    "tensor index 1e9": value({"tensor": 10**9}),
    "generator without a state": value({"generator": ["cpu", 0]}),
    "range bomb": value({"range": [0, 10**18, 1]}),
    "range of step 0": value({"range": [0, 1, 0]}),
    "huge integer": value(1 << 10_000),
    "nan": value(float("nan")),
    "infinity in metadata": document() | {"context": {"x": float("inf")}},
    # Structure.
    "reference forward": document(
        [X, {"name": "y", "op": "call_function", "target": {"fn": "torch.sin"}, "args": [{"ref": "z"}]}, OUT]
    ),
    "reference to itself": calling(args=[{"ref": "y"}]),
    "unhashable reference": calling(args=[{"ref": []}]),
    "reference in an input": value({"ref": "x"}),
    "two tags": value({"tuple": [], "size": []}),
    "empty tag": value({}),
    "unknown tag": value({"lambda": CODE}),
    "unhashable key": value({"dict": [[[1], 2]]}),
    "key that holds a list": value({"dict": [[{"tuple": [[1]]}, 2]]}),
    "unhashable member": value({"set": [[1]]}),
    "pair of three": value({"dict": [[1, 2, 3]]}),
    "lone surrogate": value("\ud800"),
    "bytes that are not base64": value({"bytes": "0x41"}),
    "no output": document([X]),
    "output in the middle": document([OUT | {"args": [1]}, X]),
    "two outputs": document([X, OUT | {"name": "o"}, OUT]),
    "no nodes": document([]),
    "unknown op": document([X, {"name": "y", "op": "exec", "target": "y"}, OUT]),
    "inputs too few": document(inputs=[]),
    "inputs too many": document(inputs=[1, 2]),
    "deep list": value(nested(900, lambda x: [x])),
    "deeper dict": value(nested(20_000, lambda x: {"tuple": x})),
    "unknown context": document() | {"context": {"os": True}},
    "code in a setting": document() | {"context": {"config": {"torch._inductor.config": {"x = f()": 1}}}},
    "code in a setting's value": document() | {"context": {"config": {"torch._inductor.config": {"x": "f()"}}}},
    "settings of another module": document() | {"context": {"config": {"os": {"name": 1}}}},
    "a setting behind a module": document() | {"context": {"config": {"torch._inductor.config": {"torch.x": 1}}}},
    "a setting behind a function": document() | {"context": {"config": {"torch._dynamo.config": {"abspath.x": 1}}}},
    "a setting two groups deep": document() | {"context": {"config": {"torch._inductor.config": {"cpp.a.b": 1}}}},
    "a group of another module": document() | {"context": {"config": {"torch._dynamo.config": {"cpp.threads": 1}}}},
    "a function as dtype": document() | {"context": {"default_dtype": "int_repr"}},
    "a generator of no device": document() | {"context": {"rng": {"cpu, f()": {"tensor": 0}}}},
    "a keyword as setting": document() | {"context": {"config": {"torch._inductor.config": {"a.class": 1}}}},
    "code in autocast": document() | {"context": {"autocast": {"cpu": {"dtype": "f()"}}}},
    "autocast on nothing": document() | {"context": {"autocast": {"cpu, f()": {"dtype": "float16"}}}},
    "code in a dtype": document() | {"context": {"default_dtype": "float32); f("}},
    "a generator without a tensor": document() | {"context": {"rng": {"cpu": {"tensor": 9}}}},
    "a million threads": document() | {"context": {"threads": 1_000_000}},
    "a backend of an unknown kind": document() | {"backend": {"name": "inductor", "run": "f()"}},
    "a backend's name is no text": document() | {"backend": {"name": ["inductor"]}},
    "a mode of two lines": document() | {"backend": {"name": "inductor", "mode": "default\nf()"}},
    "dynamic is a number": document() | {"backend": {"name": "inductor", "dynamic": 1}},
    "a search path of numbers": document() | {"backend": {"name": "inductor", "search_path": [1]}},
    "deep context": document() | {"context": nested(20_000, lambda x: {"a": x})},
    "deep sub-graphs": subgraphs(500),
    "newer format": document() | {"format": 2},
    "format true": document() | {"format": True},
    "strange key": document() | {"__reduce__": "x"},
    "graph is a list": document() | {"graph": []},
    "nodes are a dict": document() | {"graph": {"nodes": {}}},
    "node is text": document() | {"graph": {"nodes": ["x"]}},
    "imports of text": document() | {"imports": ["os"]},
    "kwargs are a list": calling(kwargs=[]),
    "name is a list": document([X | {"name": ["x"]}, OUT]),
    "op is a dict": document([X | {"op": {}}, OUT]),
    "backward is 1": document() | {"backward": 1},
}
