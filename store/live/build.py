"""From a `Case` to live objects: `build` makes a fresh `torch.fx.GraphModule` and fresh inputs, private to the caller.

Building runs text that FX generates. So call it only in a worker, with a case that `validate` accepted or that this
process made. The backend sees the same tensors as in the program: storages are shared in the same way, strides and
offsets are equal, and a tensor that was no leaf is again the result of an operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import fx

from ..document import storages
from ..document.case import Blobs, Case, Graph, Json, TensorSpec, Value, is_drawn_natively, tag, tensors_in
from ..document.decode import InvalidDocument, check_storage
from ..document.storages import StorageReader
from ..document.strides import memory_format, view
from . import modes, subclasses
from .leaf_modules import construct
from .resolve import ANNOTATION_CLASSES, enumeration, resolve

#: Storages of so many bytes that are in a file are mapped into memory.
MAPPED = 1 << 20
_DEFAULT_DRAW = (torch.float32, torch.int64)


def build(case: Case, blobs: Blobs, *, live: Sequence[object] | None = None) -> tuple[fx.GraphModule, list[Any]]:
    """The graph, and one input per placeholder. Raises `InvalidDocument` if tensors and bytes do not fit."""
    builder = Builder(case.tensors, blobs, live=live, first=tuple(tensors_in(list(case.inputs))))
    return builder.graph(case.graph), [builder.value(v) for v in case.inputs]


def build_value(
    value: Value, tensors: Sequence[TensorSpec], blobs: Blobs, *, live: Sequence[object] | None = None
) -> Any:
    """Build a value that refers to no node."""
    return Builder(tensors, blobs, live=live).value(value)


class Builder:
    """Makes each tensor of a case once, and the values and graphs that hold them.

    ``first`` lists the seeded tensors that draw their numbers first, in this order; the others follow by index.
    """

    def __init__(
        self,
        tensors: Sequence[TensorSpec],
        blobs: Blobs,
        *,
        live: Sequence[object] | None = None,
        first: Sequence[int] = (),
    ) -> None:
        self._specs = tensors
        self._blobs = blobs
        self._live = live
        self._made: dict[int, torch.Tensor] = {}
        self._storages: dict[tuple[str, str], torch.UntypedStorage] = {}
        self._bases: dict[tuple[str, str, str], torch.Tensor] = {}
        self._drawn = self._draw(first)

    # Tensors.

    def _draw(self, first: Sequence[int]) -> dict[int, torch.Tensor]:
        order = [i for i in dict.fromkeys((*first, *range(len(self._specs)))) if self._specs[i].init is not None]
        if not order:
            return {}
        devices = sorted({torch.device(self._specs[i].device) for i in order} - {torch.device("cpu")}, key=str)
        with modes.undisturbed(), torch.random.fork_rng(devices, device_type=devices[0].type if devices else "cuda"):
            torch.manual_seed(0)
            return {i: draw(self._specs[i]) for i in order}

    def tensor(self, index: int) -> torch.Tensor:
        made = self._made.get(index)
        if made is None:
            spec = self._specs[index]
            with modes.undisturbed(inference=spec.inference):
                made = self._made[index] = self._finish(spec, self._plain(index, spec))
        return made

    def _finish(self, spec: TensorSpec, plain: torch.Tensor) -> torch.Tensor:
        """``plain`` as the leaf, or as the result of an operation, that it was in autograd, and in its class."""
        if spec.subclass:
            cls = subclasses.find(spec.subclass)
            if cls is None:
                raise InvalidDocument(f"no import of the case has the class {spec.subclass}")
            attributes = {name: self.value(value) for name, value in spec.attributes.items()}
            return subclasses.of_class(cls, plain, attributes, requires_grad=spec.requires_grad)
        if spec.parameter:
            tensor: torch.Tensor = torch.nn.Parameter(plain, requires_grad=spec.requires_grad)
        elif spec.requires_grad and not spec.leaf:
            return self._result(spec, plain)
        else:
            tensor = plain.requires_grad_() if spec.requires_grad else plain
        if spec.extra.get("grad"):
            tensor.grad = self.tensor(spec.parts[-1])
        return tensor

    def _plain(self, index: int, spec: TensorSpec) -> torch.Tensor:
        dtype = _dtype(spec.dtype)
        if spec.init is not None:
            return _signs(spec, self._drawn[index])
        if spec.parts[: len(spec.parts) - bool(spec.extra.get("grad"))]:
            return self._composite(spec)
        if spec.storage is None:
            return torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=spec.device)
        storage = self._storage(spec)
        tensor = torch.empty(0, dtype=dtype, device=spec.device)
        tensor = tensor.set_(storage, spec.offset, spec.shape, spec.stride)
        return _signs(spec, tensor)

    def _storage(self, spec: TensorSpec) -> torch.UntypedStorage:
        assert spec.storage is not None
        key = (spec.storage, spec.device)
        found = self._storages.get(key)
        if found is None:
            try:
                read = self._mapped(spec.storage) or self._copied(spec.storage)
            except KeyError:
                raise InvalidDocument(f"the bytes of storage {spec.storage[:12]} are missing") from None
            if spec.device != "cpu":
                read = torch.empty(0, dtype=torch.uint8).set_(read).to(spec.device).untyped_storage()
            found = self._storages[key] = read
        check_storage(spec, found.nbytes())
        return found

    def _mapped(self, key: str) -> torch.UntypedStorage | None:
        """A large storage in a file, mapped into memory: written pages become private. None for any other."""
        file = self._blobs.file(key) if isinstance(self._blobs, StorageReader) else None
        if file is None or (size := storages.size(self._blobs, key)) < MAPPED:
            return None
        return torch.from_file(str(file), False, size, dtype=torch.uint8).untyped_storage()

    def _copied(self, key: str) -> torch.UntypedStorage:
        data = self._blobs[key]
        tensor = torch.empty(len(data), dtype=torch.uint8, device="cpu")
        if data:
            tensor.numpy()[:] = numpy.frombuffer(data, numpy.uint8)
        return tensor.untyped_storage()

    def _composite(self, spec: TensorSpec) -> torch.Tensor:
        parts = [self.tensor(p).detach() for p in spec.parts]
        extra = spec.extra
        if "qscheme" in extra:
            if str(extra["qscheme"]).startswith("per_tensor"):
                return torch._make_per_tensor_quantized_tensor(parts[0], extra["scale"], extra["zero_point"])
            return torch._make_per_channel_quantized_tensor(parts[0], parts[1], parts[2], extra["axis"])
        if spec.layout == "_mkldnn":
            return parts[0].to_mkldnn()
        if spec.layout == "sparse_coo":
            made = torch.sparse_coo_tensor(parts[0], parts[1], spec.shape, check_invariants=True)
            return made._coalesced_(bool(extra.get("coalesced")))
        layout = getattr(torch, spec.layout)
        return torch.sparse_compressed_tensor(
            parts[0], parts[1], parts[2], spec.shape, layout=layout, check_invariants=True
        )

    def _result(self, spec: TensorSpec, plain: torch.Tensor) -> torch.Tensor:
        """A tensor that is no leaf, over the storage of ``plain``.

        Its autograd node comes from an operation on a scalar leaf. Then its data is replaced by the real one, so
        strides, offset and sharing stay, and writing to it in place stays legal. Tensors in one storage become views
        of one such base, as they most likely were.
        """
        with torch.enable_grad():
            if spec.conj or spec.neg:
                return _signs(spec, _non_leaf(_signs(spec, plain)))
            if spec.storage is None or self._alone(spec):
                return _non_leaf(plain)
            key = (spec.storage, spec.device, spec.dtype)
            base = self._bases.get(key)
            if base is None:
                storage = self._storages[key[:2]]
                size = storage.nbytes() // plain.element_size()
                with torch.no_grad():
                    whole = torch.empty(0, dtype=plain.dtype, device=plain.device).set_(storage, 0, (size,), (1,))
                leaf = self._leaf_of(key, size)
                base = self._bases[key] = _non_leaf(whole) if leaf is None else leaf
            return base.as_strided(spec.shape, spec.stride, spec.offset)

    def _alone(self, spec: TensorSpec) -> bool:
        return sum(s.storage == spec.storage for s in self._specs) == 1

    def _leaf_of(self, key: tuple[str, str, str], size: int) -> torch.Tensor | None:
        """The leaf that fills the storage, if there is one. The others are its views."""
        for index, spec in enumerate(self._specs):
            same = (spec.storage, spec.device, spec.dtype) == key
            if same and spec.leaf and spec.requires_grad and spec.numel == size and not spec.conj and not spec.neg:
                return self.tensor(index)
        return None

    # Values.

    def value(self, x: Value, env: dict[str, fx.Node] | None = None) -> Any:
        kind = type(x)
        if kind is list:
            return [self.value(i, env) for i in x]
        if kind is not dict:
            return x
        ((name, content),) = x.items()
        if name == "ref":
            assert env is not None, "a reference outside a graph"
            return env[content]
        if name in ("tuple", "size", "set", "frozenset"):
            items = [self.value(i, env) for i in content]
            if name == "size" and any(type(i) is not int for i in items):
                return tuple(items)
            return {"tuple": tuple, "size": torch.Size, "set": set, "frozenset": frozenset}[name](items)
        if name == "dict":
            return {self.value(k, env): self.value(v, env) for k, v in content}
        if name in ("complex", "slice", "range"):
            kinds: dict[str, Any] = {"complex": complex, "slice": slice, "range": range}
            return kinds[name](*[self.value(i, env) for i in content])
        if name == "return_type":
            return getattr(torch.return_types, content[0])([self.value(i, env) for i in content[1]])
        if name == "tensor":
            return self.tensor(content)
        if name == "object":
            if self._live is None:
                raise InvalidDocument("an object of a process that is gone")
            return self._live[content]
        if name == "generator":
            generator = torch.Generator(content[0])
            generator.set_state(self.tensor(content[1]))
            return generator
        if name in _SIMPLE:
            return _SIMPLE[name](content)
        raise InvalidDocument(f"{x!r:.60} is no value")

    # Graphs.

    def graph(self, graph: Graph) -> fx.GraphModule:
        root = torch.nn.Module()
        for path in sorted(graph.attrs, key=lambda p: p.count(".")):
            self._attach(root, path, graph.attrs[path])
        made = fx.Graph()
        env: dict[str, fx.Node] = {}
        for node in graph.nodes:
            target: Any = node.target
            if node.op == "call_function":
                target = self.value(target) if tag(target) == "object" else resolve(target)
            new = made.create_node(
                node.op,
                target,
                tuple([self.value(a, env) for a in node.args]),
                {k: self.value(v, env) for k, v in node.kwargs.items()},
                name=node.name,
                type_expr=ANNOTATION_CLASSES.get(node.type) if node.type is not None else None,
            )
            if new.name != node.name:
                raise InvalidDocument(f"FX renames node {node.name!r} to {new.name!r}")
            env[node.name] = new
        root.training = graph.training
        return fx.GraphModule(root, made)

    def _attach(self, root: torch.nn.Module, path: str, attr: Json) -> None:
        *outer, leaf = path.split(".")
        holder = root
        for name in outer:
            if holder._modules.get(name) is None:
                holder.add_module(name, torch.nn.Module())
            holder = holder._modules[name]  # type: ignore[assignment]
        if "graph" in attr:
            holder.add_module(leaf, self.graph(attr["graph"]))
        elif "module" in attr:
            holder._modules[leaf] = self._module(attr["module"])
        elif "tensor" in attr:
            tensor = self.tensor(attr["tensor"])
            if isinstance(tensor, torch.nn.Parameter):
                holder._parameters[leaf] = tensor
            elif attr.get("kind") == "buffer":
                holder._buffers[leaf] = tensor
            else:
                setattr(holder, leaf, tensor)
        else:
            setattr(holder, leaf, self.value(attr.get("value", attr)))

    def _module(self, doc: Json) -> torch.nn.Module:
        return construct(
            doc["class"],
            {k: self.value(v) for k, v in doc["attrs"].items()},
            {k: None if i is None else self.tensor(i) for k, i in doc["parameters"].items()},
            {k: None if i is None else self.tensor(i) for k, i in doc["buffers"].items()},
            {k: None if m is None else self._module(m) for k, m in doc["modules"].items()},
            doc["training"],
        )


def draw(spec: TensorSpec) -> torch.Tensor:
    """The tensor that ``spec.init`` describes, made by the same calls as in a printed script.

    A constant fills the whole storage, the gaps between elements, too; random numbers leave zeros in the gaps. They are
    drawn in memory order, but for a memory format and where there are gaps (`fxminify.store.document.strides`). A dtype
    that torch cannot draw (float8, most unsigned ones) is drawn as float32 or int64 and converted.
    """
    assert spec.init is not None
    fn, dtype = spec.init["fn"], _dtype(spec.dtype)
    options: dict[str, Any] = {"dtype": dtype} | ({} if spec.device == "cpu" else {"device": spec.device})
    place = (spec.shape, spec.stride, spec.offset)
    if fn == "full":
        value = build_value(spec.init["value"], (), {})
        made = torch.full(spec.shape, value, **options)
        in_order = made.stride() == spec.stride and not spec.offset
        return made if in_order else torch.full((spec.reach,), value, **options).as_strided(*place)
    as_view = None if spec.offset or memory_format(spec.shape, spec.stride) else view(spec.shape, spec.stride)
    drawn = spec if as_view is None else replace(spec, shape=as_view[0])
    if is_drawn_natively(fn, spec.dtype):
        made = _generate(fn, drawn, options)
    else:
        made = _generate(fn, drawn, options | {"dtype": _DEFAULT_DRAW[fn in ("randint", "arange")]}).to(dtype)
    if as_view is not None:
        return made.as_strided(spec.shape, spec.stride)
    if spec.reach == spec.numel:
        return torch.empty_strided(spec.shape, spec.stride, **options).copy_(made)
    return torch.zeros(spec.reach, **options).as_strided(*place).copy_(made)


def _generate(fn: str, spec: TensorSpec, options: dict[str, Any]) -> torch.Tensor:
    assert spec.init is not None
    if fn == "randn":
        made = torch.randn(spec.shape, **options)
        return made.mul_(spec.init["std"]) if "std" in spec.init else made
    if fn == "rand":
        return torch.rand(spec.shape, **options)
    if fn == "randint":
        return torch.randint(spec.init["low"], spec.init["high"], spec.shape, **options)
    return torch.arange(spec.numel, **options).reshape(spec.shape)


def _signs(spec: TensorSpec, tensor: torch.Tensor) -> torch.Tensor:
    """Set the lazy conjugate and negative bits. A second call restores the physical values."""
    if spec.conj:
        tensor = torch._conj(tensor)
    return torch._neg_view(tensor) if spec.neg else tensor


def _non_leaf(plain: torch.Tensor) -> torch.Tensor:
    if plain.layout is not torch.strided:
        return plain.requires_grad_().clone()
    leaf = torch.zeros((), dtype=plain.dtype, device=plain.device).requires_grad_()
    made = leaf.expand(plain.shape).clone()
    made.data = plain
    return made


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InvalidDocument(f"torch {torch.__version__} here has no dtype {name!r:.40}")
    return found


def _enum(pair: Sequence[str]) -> Any:
    return enumeration(pair[0]).__members__[pair[1]]


def _sym(content: Json) -> Any:
    hint = content["hint"]
    return hint if type(hint) is not dict else math.nan if hint["float"] == "nan" else float(hint["float"])


_SIMPLE: dict[str, Any] = {
    "float": float,
    "ellipsis": lambda _: ...,
    "dtype": _dtype,
    "layout": lambda n: getattr(torch, n),
    "memory_format": lambda n: getattr(torch, n),
    "qscheme": lambda n: getattr(torch, n),
    "device": torch.device,
    "enum": _enum,
    "finfo": lambda n: torch.finfo(_dtype(n)),
    "iinfo": lambda n: torch.iinfo(_dtype(n)),
    "target": resolve,
    "sym": _sym,
    "bytes": bytes.fromhex,
}
