"""From a live graph to data: `encode` writes a `torch.fx.GraphModule` and its inputs as a `Graph`, values and bytes.

* Every callable is stored by a name that `fxminify.store.live.resolve` turns back into the same object. A callable
  without such a name raises `Unsupported`, which names the node. With ``live=`` it is kept as ``{"object": i}``, for a
  caller that stays in this process.
* Tensors are read outside every active mode. Nothing of the user's program is run or changed.
"""

from __future__ import annotations

import enum
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..document.case import Blobs, Graph, Json, Node, TensorSpec, Value
from ..document.names import UnknownName, grow, is_argument_name, is_attribute_path, is_node_name, table
from ..document.storages import StorageReader
from ..text import ascii_text
from . import ipython, modes
from .leaf_modules import NotALeaf, class_of, contents
from .resolve import annotation, describe, enumeration, forget, triton_kernel
from .snapshot import EVERYTHING, CannotSnapshot, Digests, Keep, Put, Tensors, digest, hint

_ROOT = re.compile(r"L\['(?:self|fn)'\]\.?")
_VARIABLE = re.compile(r"[GL]\['(\w+)'\]")
_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]*)')
#: The file of the code that FX generated for a graph, and the place of the program that `symbolic_trace` notes there.
_GENERATED = re.compile(r"<eval_with_key>[.\d]*(?: from (.*):(\d+) in (.*))?")
_TORCH = os.path.dirname(torch.__file__) + os.sep


class Unsupported(Exception):
    """The graph holds something that a document cannot hold. ``node`` says where, ``reason`` says what."""

    def __init__(self, reason: str, node: str | None = None) -> None:
        super().__init__(reason if node is None else f"node {node!r}: {reason}")
        self.node = node
        self.reason = reason


@dataclass(frozen=True)
class Encoded:
    """The parts of a `Case` that come from the graph. Values of the tensors ``left_out``, by index, are not kept."""

    graph: Graph
    inputs: tuple[Value, ...]
    tensors: tuple[TensorSpec, ...]
    blobs: Blobs
    left_out: tuple[int, ...] = ()


class Encoder:
    """Encodes values one by one. The tensors' bytes are read later, by `read` or `finish`."""

    def __init__(
        self, *, live: list[object] | None = None, clip: bool = True, grads: bool = False, keep: Keep = EVERYTHING
    ) -> None:
        self._tensors = Tensors(clip=clip, grads=grads, keep=keep)
        self._live = live
        self._objects = {id(o): i for i, o in enumerate(live or ())}
        self._path: list[str] = []

    @property
    def left_out(self) -> tuple[int, ...]:
        """The tensors, by index, whose values were not kept."""
        return tuple(self._tensors.left_out)

    def finish(self) -> tuple[tuple[TensorSpec, ...], dict[str, bytes]]:
        """The specs of the tensors, and the bytes of their storages."""
        return self._tensors.finish()

    def live(self, digests: Digests) -> tuple[tuple[TensorSpec, ...], StorageReader]:
        """The specs of the tensors, and their storages, which stay where they are."""
        return self._tensors.live(digests)

    def read(self, put: Put, name: Callable[[bytes], str] = digest) -> tuple[TensorSpec, ...]:
        """The specs of the tensors. The bytes go to ``put``, one storage at a time, under keys from ``name``."""
        return self._tensors.read(put, name)

    def tensor(self, tensor: torch.Tensor) -> int:
        """Index of ``tensor`` among ``tensors``. Raises `Unsupported`."""
        try:
            return self._tensors.add(tensor)
        except CannotSnapshot as exc:
            raise Unsupported(str(exc)) from None

    def value(self, x: Any) -> Value:
        """``x`` as a tagged value. Raises `Unsupported`."""
        encode = _BY_TYPE.get(type(x))
        if encode is not None:
            return encode(self, x)
        try:
            return self._rare(x)
        except (Unsupported, UnknownName, CannotSnapshot) as exc:
            if self._live is None:
                raise Unsupported(str(exc)) from None
            return self._object(x)

    def target(self, x: Any) -> Value:
        """The target of a ``call_function`` node."""
        try:
            return describe(x)
        except UnknownName as exc:
            if self._live is None:
                raise Unsupported(str(exc)) from None
            return self._object(x)

    def _object(self, x: Any) -> Json:
        assert self._live is not None
        index = self._objects.get(id(x))
        if index is None:
            index = self._objects[id(x)] = len(self._live)
            self._live.append(x)
        return {"object": index}

    def _rare(self, x: Any) -> Value:
        if isinstance(x, torch.Tensor):
            return {"tensor": self.tensor(x)}
        if isinstance(x, fx.Node):
            return {"ref": x.name}
        if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
            known = self.value(hint(x))
            return {"sym": {"kind": type(x).__name__, "expr": printable(str(x.node.expr), 500), "hint": known}}
        if isinstance(x, torch.Generator):
            with modes.undisturbed():
                state = x.get_state()
            return {"generator": [str(x.device), self.tensor(state)]}
        kind = type(x).__name__
        if isinstance(x, enum.Enum) or kind in table().enums:
            if type(x) is enumeration(kind) and x.name in table().enums.get(kind, ()):
                return {"enum": [kind, x.name]}
            raise Unsupported(f"member of enum {type(x).__module__}.{type(x).__qualname__}")
        if isinstance(x, tuple):
            if type(x).__module__ == "torch.return_types" and kind in table().return_types:
                return {"return_type": [kind, [self.value(i) for i in x]]}
            if type(x) is not tuple and not hasattr(x, "_fields"):
                raise Unsupported(f"value of type {type(x).__module__}.{type(x).__qualname__}")
            return {"tuple": [self.value(i) for i in x]}
        if isinstance(x, torch.nn.Module) or not callable(x):
            raise Unsupported(f"value of type {type(x).__module__}.{type(x).__qualname__}")
        return {"target": describe(x)}

    def graph(self, gm: fx.GraphModule) -> Graph:
        """The graph of ``gm`` and of every graph inside it."""
        attrs: dict[str, Json] = {}
        nodes = []
        for node in gm.graph.nodes:
            with self._at(node.name):
                if node.op in ("get_attr", "call_module") and node.target not in attrs:
                    attrs[node.target] = self._attribute(gm, node.target)
                nodes.append(self._node(node))
        return Graph(tuple(nodes), attrs, gm.training)

    @contextmanager
    def _at(self, node: str) -> Iterator[None]:
        self._path.append(node)
        try:
            yield
        except Unsupported as exc:
            if exc.node is not None:
                raise
            raise Unsupported(exc.reason, " in ".join(reversed(self._path))) from None
        finally:
            self._path.pop()

    def _node(self, node: fx.Node) -> Node:
        target = node.target
        if not all(map(is_argument_name, node.kwargs)):
            raise Unsupported(f"keywords {sorted(node.kwargs)!r:.80}")
        if not is_node_name(node.name):
            raise Unsupported(f"{node.name!r} is no name that FX would give a node")
        if self._live is None and (kernel := triton_kernel(node)) is not None:
            raise Unsupported(f"the Triton kernel {kernel!r} cannot be stored: its source belongs to the program")
        if node.op == "call_function":
            target = self.target(target)
            if node.target is getattr:
                name = node.args[1] if len(node.args) == 2 and not node.kwargs else None
                if name not in table().getattr and self._live is None:
                    raise Unsupported(f"getattr of {name!r} is not in the table")
        elif node.op == "call_method":
            if target not in table().methods and self._live is None:
                raise Unsupported(f"method {target!r} is not in the table")
        elif node.op == "placeholder" and not (is_argument_name(target) and target != "self"):
            raise Unsupported(f"placeholder of kind {target!r}")
        return Node(
            name=node.name,
            op=node.op,
            target=target,
            args=tuple([self.value(a) for a in node.args]),
            kwargs={k: self.value(a) for k, a in node.kwargs.items()},
            meta=_meta(node.meta),
            type=annotation(node.type),
        )

    def _attribute(self, gm: torch.nn.Module, path: str) -> Json:
        holder: Any = gm
        if not is_attribute_path(path):
            raise Unsupported(f"attribute {path!r} has a name of torch.nn.Module's own")
        *outer, leaf = path.split(".")
        for name in outer:
            holder = getattr(holder, name)
        found = getattr(holder, leaf)
        if isinstance(found, torch.Tensor):
            attr: Json = self.value(found)
            if "object" in attr:
                return attr
            inside = isinstance(holder, torch.nn.Module)
            kind = "buffer" if inside and leaf in holder._buffers else "attribute"
            return attr | {"kind": "parameter" if inside and leaf in holder._parameters else kind}
        if isinstance(found, fx.GraphModule):
            return {"graph": self.graph(found)}
        if isinstance(found, torch.nn.Module):
            try:
                return {"module": self._module(found)}
            except Unsupported:
                if self._live is None:
                    raise
                return self._object(found)
        attr = self.value(found)
        return attr if type(attr) is dict and "object" in attr else {"value": attr}

    def _module(self, module: torch.nn.Module) -> Json:
        try:
            name, attrs = class_of(module), contents(module)
        except NotALeaf as exc:
            raise Unsupported(str(exc)) from None
        return {
            "class": name,
            "attrs": {k: self.value(v) for k, v in attrs.items()},
            "parameters": {k: None if v is None else self.tensor(v) for k, v in module._parameters.items()},
            "buffers": {k: None if v is None else self.tensor(v) for k, v in module._buffers.items()},
            "modules": {k: None if v is None else self._module(v) for k, v in module._modules.items()},
            "training": module.training,
        }


def encode(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    live: list[object] | None = None,
    keep: Keep = EVERYTHING,
    put: Put | None = None,
    digests: Digests | None = None,
) -> Encoded:
    """``gm`` and one input per placeholder as data. Raises `Unsupported`.

    Seeded values replace those that ``keep`` leaves out. With ``put`` the bytes go there, one storage at a time, and
    not into the result. With ``digests`` the storages of the result stay where they are. If the graph is refused, the
    table of names grows once.
    """
    try:
        return _encode(gm, inputs, live, keep, put, digests)
    except Unsupported:
        if not grow():
            raise
    forget()
    return _encode(gm, inputs, live, keep, put, digests)


def _encode(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    live: list[object] | None,
    keep: Keep,
    put: Put | None,
    digests: Digests | None,
) -> Encoded:
    encoder = Encoder(live=live, clip=not _counts_from_storage(gm), grads=_reads_grad(gm), keep=keep)
    graph = encoder.graph(gm)
    if len(graph.placeholders) != len(inputs):
        raise Unsupported(f"{len(inputs)} inputs for {len(graph.placeholders)} placeholders")
    values = []
    for node, x in zip(graph.placeholders, inputs, strict=True):
        with encoder._at(node.name):
            values.append(encoder.value(x))
    if digests is not None:
        tensors, storages = encoder.live(digests)
        return Encoded(graph, tuple(values), tensors, storages, encoder.left_out)
    blobs: dict[str, bytes] = {}
    tensors = encoder.read(put or blobs.__setitem__)
    return Encoded(graph, tuple(values), tensors, blobs, encoder.left_out)


def graph_text(gm: fx.GraphModule) -> str:
    """A refused graph as text: one line for each node, subgraphs after the nodes that use them."""
    modules = [("", gm), *((n, m) for n, m in gm.named_modules() if n and isinstance(m, fx.GraphModule))]
    blocks = [f"{name or 'graph'}:\n" + "\n".join(_line(n) for n in module.graph.nodes) for name, module in modules]
    return "\n\n".join(blocks)


def _line(node: fx.Node) -> str:
    target = node.target
    if not isinstance(target, str):
        target = getattr(target, "__name__", type(target).__name__)
    arguments = ", ".join([*map(_short, node.args), *(f"{k}={_short(v)}" for k, v in node.kwargs.items())])
    return "    " + printable(f"{node.name} = {node.op}[{target}]({arguments})", 400)


def _short(x: Any) -> str:
    """An argument as text, without the ``repr`` of foreign objects: that may have paths or addresses, or raise."""
    if isinstance(x, fx.Node):
        return x.name
    if x is None or isinstance(x, bool | int | float | str | torch.dtype | torch.device):
        return repr(x)
    if isinstance(x, list | tuple):
        return "[" + ", ".join(map(_short, x)) + "]"
    return f"<{type(x).__name__}>"


def user_line(meta: Mapping[str, Any]) -> str:
    """Return the line of the user's program from the ``stack_trace`` of a node, as ``file:line function``.

    It is the innermost frame outside of torch, without its directory. If all frames are torch's, it is the
    innermost one, which begins with ``torch/``. It is empty if no frame is known. For the code of a graph that was
    traced symbolically, it is the line where the program traced it.
    """
    trace = meta.get("stack_trace")
    innermost, end = "", len(trace) if isinstance(trace, str) else 0
    while isinstance(trace, str) and (end := trace.rfind('File "', 0, end)) >= 0:
        if (found := _FRAME.match(trace, end)) is None:
            continue
        path, number, function = found.groups()
        if (generated := _GENERATED.fullmatch(path)) is not None:
            if generated[1] is None:
                continue
            path, number, function = generated.groups()
        of_torch = path.startswith(_TORCH)
        inside = f"torch/{path.removeprefix(_TORCH).replace(os.sep, '/')}" if of_torch else ""
        file = inside or ipython.cell(path) or re.split(r"[/\\]", path)[-1]
        line = printable(f"{file}:{number} {function}", 300)
        if not of_torch:
            return line
        innermost = innermost or line
    return innermost


def printable(text: str, length: int) -> str:
    """``text`` as printable ASCII on one line, cut to ``length``, for comments and terminals."""
    return ascii_text(text[:length])


def _meta(meta: Mapping[str, Any]) -> Json:
    """Return the shown facts of a node: the dtype and shape of its value, the user's line, the module's path."""
    out: Json = {}
    value = meta.get("example_value")
    if value is None:
        value = meta.get("val")
    if isinstance(value, torch.Tensor):
        out["dtype"] = str(value.dtype).removeprefix("torch.")
        out["shape"] = [s if type(s) is int else printable(str(s), 200) for s in value.shape]
    elif isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        out["dtype"] = type(value).__name__
    if line := user_line(meta):
        out["stack"] = line
    if module := user_module(meta):
        out["module"] = module
    return out


def user_module(meta: Mapping[str, Any]) -> str:
    """The path of the innermost module that a node was traced in, as the program writes it: ``encoder.layer.0``.

    Where a module in a container was compiled, the path begins with the type of the container: ``Sequential.1``. Empty
    for the compiled module itself, and if no module is known.
    """
    stack = meta.get("nn_module_stack")
    found = list(stack.values()) if isinstance(stack, Mapping) else []
    if not found or not all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in found):
        return ""
    path = _VARIABLE.sub(r"\1", _ROOT.sub("", found[-1][0]))
    if path[:1].isdigit():
        path = f"{getattr(found[0][1], '__name__', 'module')}.{path}"
    return printable(path, 300)


def _targets(gm: fx.GraphModule) -> Iterable[Any]:
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                yield node.target if node.target is not getattr else ("getattr", *node.args[1:])


def _counts_from_storage(gm: fx.GraphModule) -> bool:
    """Whether a node addresses a storage from its start, or depends on its size."""
    return any(any(word in str(t) for word in ("as_strided", "set_.", "storage", "resize_")) for t in _targets(gm))


def _reads_grad(gm: fx.GraphModule) -> bool:
    return any(t == ("getattr", "grad") or "accumulate_grad" in str(t) for t in _targets(gm))


def _finite(_: Encoder, x: float) -> Value:
    return x if math.isfinite(x) else {"float": "nan" if x != x else "inf" if x > 0 else "-inf"}


def _string(_: Encoder, x: str) -> Value:
    try:
        x.encode()
    except UnicodeEncodeError:
        raise Unsupported("string with lone surrogates") from None
    return x


def _integer(_: Encoder, x: int) -> Value:
    if x.bit_length() > 256:
        raise Unsupported(f"integer of {x.bit_length()} bits")
    return x


def _plain(_: Encoder, x: Any) -> Value:
    return x


def _named(kind: str) -> Any:
    return lambda _, x: {kind: str(x).removeprefix("torch.")}


def _items(kind: str) -> Any:
    return lambda e, x: {kind: [e.value(i) for i in x]}


_BY_TYPE: dict[type, Any] = {
    type(None): _plain,
    bool: _plain,
    int: _integer,
    float: _finite,
    str: _string,
    fx.Node: lambda _, x: {"ref": x.name},
    list: lambda e, x: [e.value(i) for i in x],
    fx.immutable_collections.immutable_list: lambda e, x: [e.value(i) for i in x],
    tuple: _items("tuple"),
    torch.Size: _items("size"),
    dict: lambda e, x: {"dict": [[e.value(k), e.value(v)] for k, v in x.items()]},
    fx.immutable_collections.immutable_dict: lambda e, x: {"dict": [[e.value(k), e.value(v)] for k, v in x.items()]},
    set: lambda e, x: {"set": [e.value(i) for i in sorted(x, key=repr)]},
    frozenset: lambda e, x: {"frozenset": [e.value(i) for i in sorted(x, key=repr)]},
    complex: lambda e, x: {"complex": [e.value(x.real), e.value(x.imag)]},
    slice: lambda e, x: {"slice": [e.value(x.start), e.value(x.stop), e.value(x.step)]},
    range: lambda _, x: {"range": [x.start, x.stop, x.step]},
    type(...): lambda _, x: {"ellipsis": True},
    bytes: lambda _, x: {"bytes": x.hex()},
    torch.dtype: _named("dtype"),
    torch.layout: _named("layout"),
    torch.memory_format: _named("memory_format"),
    torch.qscheme: _named("qscheme"),
    torch.device: lambda _, x: {"device": str(x)},
    torch.finfo: lambda _, x: {"finfo": x.dtype},
    torch.iinfo: lambda _, x: {"iinfo": x.dtype},
}
