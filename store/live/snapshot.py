"""Tensors as data: `Tensors` turns live tensors into `TensorSpec` and the bytes of their storages.

* **Storages are copied, not tensors.** Views keep sharing, stride 0 costs nothing, and overlap stays.
* **Only the used part is kept.** A storage is clipped to the span that its tensors reach, in steps of 64 bytes, so that
  every data pointer keeps its alignment. ``clip=False`` keeps whole storages, for graphs whose ``as_strided`` counts
  from the start of the storage.
* The key of a storage is the SHA-256 of its bytes. A second storage with equal bytes is not an alias of the first: zero
  bytes are appended, which no tensor reaches, so that it has another key.

`Tensors.finish` reads the bytes. Nothing may write to the tensors between `Tensors.add` and then. Storages above a
limit are not read: seeded numbers of the same range replace them (`store.live.synthesis`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..document.case import TensorSpec
from . import modes, subclasses
from .synthesis import recipe

_ALIGNMENT = 64
_PADDING = 16  # a whole number of elements of any dtype
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


#: Where bytes go: ``put(key, bytes)``.
Put = Callable[[str, bytes], None]


def digest(data: bytes) -> str:
    """The key of a storage with these bytes."""
    return hashlib.sha256(data).hexdigest()


class CannotSnapshot(Exception):
    """This kind of tensor cannot be stored; the message names the kind."""


@dataclass
class _Storage:
    storage: torch.UntypedStorage
    begin: int
    end: int


@dataclass
class Tensors:
    """Collects tensors, each object once. ``grads`` keeps the ``.grad`` of leaves too.

    Values of storages of more than ``keep`` bytes are not kept (None: all are); ``invented`` says whether there were
    any. Parts of sparse and quantized tensors are always kept.
    """

    clip: bool = True
    grads: bool = False
    keep: int | None = None
    invented: bool = False
    _specs: list[TensorSpec] = field(default_factory=list)
    _index: dict[int, int] = field(default_factory=dict)
    _storages: dict[int, _Storage] = field(default_factory=dict)
    _place: dict[int, int] = field(default_factory=dict)  # tensor index -> storage id
    _alive: list[Any] = field(default_factory=list)  # ids stay unique while the objects live
    _parts: set[int] = field(default_factory=set)  # storages that parts lie in

    def add(self, tensor: torch.Tensor) -> int:
        """Index of ``tensor`` among the specs. Raises `CannotSnapshot`."""
        known = self._index.get(id(tensor))
        if known is not None:
            return known
        with modes.undisturbed():
            spec, storage = self._describe(tensor)
        index = len(self._specs)
        self._specs.append(spec)
        self._index[id(tensor)] = index
        self._alive.append(tensor)
        if storage is not None:
            self._place[index] = storage
        return index

    def finish(self) -> tuple[tuple[TensorSpec, ...], dict[str, bytes]]:
        """The specs, and the bytes of their storages."""
        blobs: dict[str, bytes] = {}
        return self.read(blobs.__setitem__), blobs

    def read(self, put: Put, name: Callable[[bytes], str] = digest) -> tuple[TensorSpec, ...]:
        """The specs. The bytes of their storages go to ``put`` one by one, under the key that ``name`` gives them."""
        keys: dict[int, str] = {}
        taken: set[str] = set()
        with modes.undisturbed():
            standing_in = self._stand_in()
            for place, span in self._storages.items():
                if place in standing_in:
                    continue
                data = _read(span.storage, span.begin, span.end)
                key = name(data)
                while key in taken:
                    data += bytes(_PADDING)
                    key = name(data)
                keys[place] = key
                taken.add(key)
                put(key, data)
        specs = list(self._specs)
        for index, place in self._place.items():
            spec = specs[index]
            if place in standing_in:
                specs[index] = replace(spec, init=standing_in[place], offset=0)
                continue
            begin = self._storages[place].begin
            specs[index] = replace(spec, storage=keys[place], offset=spec.offset - begin // _itemsize(spec.dtype))
        return tuple(specs)

    def _stand_in(self) -> dict[int, dict[str, Any]]:
        """The recipes for storages whose values are not kept.

        A storage of several tensors is kept, because tensors that are made one by one cannot share it.
        """
        if self.keep is None:
            return {}
        tensors: dict[int, list[int]] = {}
        for index, place in self._place.items():
            tensors.setdefault(place, []).append(index)
        found = {}
        for place, indices in tensors.items():
            span = self._storages[place]
            spec = self._specs[indices[0]]
            overlaps = any(step == 0 and size > 1 for size, step in zip(spec.shape, spec.stride, strict=True))
            if span.end - span.begin > self.keep and len(indices) == 1 and not overlaps and place not in self._parts:
                found[place] = recipe(self._alive[indices[0]])
        self.invented = bool(found)
        return found

    def _describe(self, tensor: torch.Tensor) -> tuple[TensorSpec, int | None]:
        fake = modes.is_fake(tensor)
        if subclasses.has_own_class(tensor) and (name := subclasses.name_of(tensor)) is not None:
            spec, storage = self._describe(subclasses.plain(tensor))
            parameter = isinstance(tensor, torch.nn.Parameter)
            return replace(spec, subclass=name, parameter=parameter, attributes=self._attributes(tensor)), storage
        if not fake and not modes.is_plain(tensor):
            kind = type(tensor)
            raise CannotSnapshot(f"tensor of class {kind.__module__}.{kind.__qualname__}, or inside a transform")
        if tensor.is_nested:
            raise CannotSnapshot("nested tensor")
        if not fake and tensor._is_zerotensor():
            raise CannotSnapshot("efficient zero tensor, which has no memory (`torch._efficientzerotensor`)")
        spec = TensorSpec(
            dtype=_name(tensor.dtype),
            shape=_integers(tensor.shape),
            stride=(),
            device=str(tensor.device),
            requires_grad=tensor.requires_grad,
            leaf=tensor.is_leaf,
            parameter=isinstance(tensor, torch.nn.Parameter),
            inference=tensor.is_inference(),
        )
        parts: tuple[int, ...] = ()
        if self.grads and tensor.is_leaf and tensor.grad is not None:
            parts = (self.add(tensor.grad),)
            spec = replace(spec, parts=parts, extra={"grad": True})
        if fake:
            return replace(spec, stride=_integers(tensor.stride()), **_invented(tensor)), None
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return self._describe_composite(tensor.detach(), spec), None
        spec = replace(
            spec,
            stride=tensor.stride(),
            offset=int(tensor.storage_offset()),
            conj=tensor.is_conj(),
            neg=tensor.is_neg(),
        )
        if tensor.device.type == "meta":
            return spec, None
        return spec, self._reach(tensor, spec)

    def _attributes(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return the attributes of a tensor with its own class, without attributes of Python's and Dynamo's
        machinery.
        """
        given = {name: value for name, value in vars(tensor).items() if not name.startswith(("__", "_dynamo", "_base"))}
        if any(not _is_plain_value(value) for value in given.values()):
            named = next(name for name, value in given.items() if not _is_plain_value(value))
            raise CannotSnapshot(f"tensor of class {type(tensor).__qualname__} with the attribute {named!r}")
        return {name: _plain_value(value) for name, value in given.items()}

    def _describe_composite(self, tensor: torch.Tensor, spec: TensorSpec) -> TensorSpec:
        extra = dict(spec.extra)
        pieces: Sequence[torch.Tensor]
        if tensor.is_quantized:
            scheme = tensor.qscheme()
            spec = replace(spec, stride=tensor.stride())
            extra["qscheme"] = _name(scheme)
            if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                extra |= {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
                pieces = (tensor.int_repr(),)
            else:
                extra["axis"] = tensor.q_per_channel_axis()
                pieces = (tensor.int_repr(), tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points())
        else:
            spec = replace(spec, layout=_name(tensor.layout))
            if tensor.layout is torch.sparse_coo:
                extra["coalesced"] = tensor.is_coalesced()
                pieces = (tensor._indices(), tensor._values())
            elif tensor.layout in _COMPRESSED:
                first, second = _COMPRESSED[tensor.layout]
                pieces = (getattr(tensor, first)(), getattr(tensor, second)(), tensor.values())
            elif spec.layout == "_mkldnn":
                pieces = (tensor.to_dense(),)
            else:
                raise CannotSnapshot(f"tensor of layout {spec.layout}")
        indices = tuple(self.add(piece) for piece in pieces)
        self._parts |= {self._place[i] for i in indices if i in self._place}
        return replace(spec, parts=(*indices, *spec.parts), extra=extra)

    def _reach(self, tensor: torch.Tensor, spec: TensorSpec) -> int:
        """Widen the span of the tensor's storage to what the tensor reaches. Returns the id of the storage."""
        storage = tensor.untyped_storage()
        item = tensor.element_size()
        begin = spec.offset * item
        last = sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
        end = begin + (last + 1) * item if spec.numel else begin
        begin -= begin % _ALIGNMENT
        if not self.clip:
            begin, end = 0, storage.nbytes()
        place: int = storage._cdata
        known = self._storages.get(place)
        if known is None:
            self._storages[place] = _Storage(storage, begin, end)
        else:
            known.begin, known.end = min(known.begin, begin), max(known.end, end)
        return place


def _read(storage: torch.UntypedStorage, begin: int, end: int) -> bytes:
    end = min(end, storage.nbytes())
    if end <= begin:
        return b""
    window = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, begin, (end - begin,), (1,))
    data: bytes = window.cpu().numpy().tobytes()
    return data


def _invented(tensor: torch.Tensor) -> dict[str, Any]:
    """A recipe for a fake tensor, which has no values. Integers are small enough to be valid indices."""
    if tensor.device.type == "meta":
        return {"device": "meta"}
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return {"init": {"fn": "randn"}}
    return {"init": {"fn": "randint", "low": 0, "high": 2}}


def _is_plain_value(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain_value, value))
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _plain_value(value: Any) -> Any:
    """A plain value as a document has it."""
    if type(value) in (list, tuple):
        items = list(map(_plain_value, value))
        return items if type(value) is list else {"tuple": items}
    return value


def _integers(sizes: Sequence[int | torch.SymInt]) -> tuple[int, ...]:
    return tuple(s if type(s) is int else hint(s) for s in sizes)


def hint(symbol: Any) -> Any:
    """The value of a symbolic number when it was traced. Raises `CannotSnapshot` if it had none."""
    node = symbol.node
    if getattr(node, "expr", None) is None:
        raise CannotSnapshot(f"symbolic number of a {type(node).__name__}")
    if node.hint is None:
        raise CannotSnapshot(f"symbolic number {node.expr} without a value")
    return node.hint


def _name(thing: object) -> str:
    return str(thing).removeprefix("torch.")


def _itemsize(dtype: str) -> int:
    size: int = getattr(torch, dtype).itemsize
    return size
