"""Tensors as data: `Tensors` turns live tensors into `TensorSpec` and the bytes of their storages.

* **Storages are copied, not tensors.** Views keep sharing, stride 0 costs nothing, and overlap stays.
* **Only the used part is kept.** A storage is clipped to the span that its tensors reach, in steps of 64 bytes, so that
  every data pointer keeps its alignment. ``clip=False`` keeps whole storages, for graphs whose ``as_strided`` counts
  from the start of the storage.
* The key of a storage is the SHA-256 of its bytes. A second storage with equal bytes is not an alias of the first: zero
  bytes are appended, which no tensor reaches, so that it has another key.

`Tensors.finish` reads the bytes. Nothing may write to the tensors between `Tensors.add` and then. `Tensors.live` leaves
them where they are, and reads them again each time. Storages above a limit are not read: seeded numbers of the same
range replace them (`store.live.synthesis`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..document import storages
from ..document.case import TensorSpec
from ..document.storages import PIECE, Piece, StorageReader
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
#: Smaller storages are read again for each digest. Of larger ones so many parts of so many bytes are compared.
_REMEMBERED = 1 << 20
_PARTS, _PART = 64, 4096


def digest(data: bytes) -> str:
    """The key of a storage with these bytes."""
    return storages.digest([data])


class CannotSnapshot(Exception):
    """This kind of tensor cannot be stored; the message names the kind."""


@dataclass
class _Storage:
    storage: torch.UntypedStorage
    begin: int
    end: int


class LiveStorages(StorageReader):
    """Storages of live tensors, read from their memory. Bytes of other devices are copied piece by piece."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def size(self, key: str) -> int:
        return self._windows[key].size

    def pieces(self, key: str) -> Iterator[Piece]:
        return self._windows[key].pieces()

    def __iter__(self) -> Iterator[str]:
        return iter(self._windows)

    def __contains__(self, key: object) -> bool:
        return key in self._windows

    def add(self, window: _Window, digests: Digests, versions: Sequence[int]) -> str:
        """The key of a storage, different from all other keys."""
        key = digests.of(window, versions)
        while key in self._windows:
            window = replace(window, padding=window.padding + _PADDING)
            key = storages.digest(window.pieces())
        self._windows[key] = window
        return key


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """The bytes of a storage from ``begin`` on, and so many zeros."""

    data: torch.Tensor
    place: int
    begin: int
    padding: int = 0

    @classmethod
    def of(cls, span: _Storage) -> _Window:
        return cls(_bytes(span.storage, span.begin, span.end), span.storage.data_ptr(), span.begin)

    @property
    def size(self) -> int:
        return self.data.numel() + self.padding

    def pieces(self) -> Iterator[Piece]:
        for begin in range(0, self.data.numel(), PIECE):
            with modes.undisturbed():
                piece = self.data[begin : begin + PIECE].cpu().numpy()
            yield piece.data
        if self.padding:
            yield bytes(self.padding)

    def sample(self) -> int:
        """A checksum of some parts."""
        step = max(1, self.data.numel() // _PARTS)
        with modes.undisturbed():
            parts = [self.data[begin : begin + _PART].cpu().numpy() for begin in range(0, self.data.numel(), step)]
        found = 0
        for part in parts:
            found = zlib.crc32(part.data, found)
        return found


class Digests:
    """The digests of storages, computed again only where one has changed.

    An optimizer changes the version of a parameter, or, if it goes past torch, most of its bytes. So a storage with
    tensors of the same versions and with the same bytes in some parts has not changed.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], tuple[tuple[int, ...], int, str]] = {}

    def of(self, window: _Window, versions: Sequence[int]) -> str:
        """The key of the storage. ``versions`` are the versions of its tensors, empty if they have no versions."""
        if window.size < _REMEMBERED or not versions:
            return storages.digest(window.pieces())
        place, seen = (window.place, window.begin, window.size), (*versions,)
        known, sample = self._known.get(place), window.sample()
        if known is not None and known[:2] == (seen, sample):
            return known[2]
        key = storages.digest(window.pieces())
        self._known[place] = seen, sample, key
        return key


@dataclass(frozen=True, slots=True)
class Keep:
    """A limit of the values that are kept: storages of at most ``each`` bytes, and the smallest ones that have ``all``
    bytes together. None is no limit. Parts of sparse and quantized tensors are always kept.

    Seeded numbers of the same range replace the others, if ``measured`` with the standard deviation of the values.
    """

    each: int | None = None
    all: int | None = None
    measured: bool = False


EVERYTHING = Keep()


@dataclass
class Tensors:
    """Collects tensors, each object once. ``grads`` keeps the ``.grad`` of leaves too.

    ``left_out`` are the indices of the tensors whose values are not kept.
    """

    clip: bool = True
    grads: bool = False
    keep: Keep = EVERYTHING
    left_out: list[int] = field(default_factory=list)
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

    def live(self, digests: Digests) -> tuple[tuple[TensorSpec, ...], LiveStorages]:
        """The specs, and their storages, which stay where they are."""
        found, keys = LiveStorages(), {}
        with modes.undisturbed():
            standing_in, within = self._stand_in(), self._within()
            for place, span in self._storages.items():
                if place not in standing_in:
                    keys[place] = found.add(_Window.of(span), digests, self._versions(within[place]))
        return self._placed(keys, standing_in), found

    def read(self, put: Put, name: Callable[[bytes], str] = digest) -> tuple[TensorSpec, ...]:
        """The specs. The bytes of their storages go to ``put`` one by one, under the key that ``name`` gives them."""
        keys: dict[int, str] = {}
        taken: set[str] = set()
        with modes.undisturbed():
            standing_in = self._stand_in()
            for place, span in self._storages.items():
                if place in standing_in:
                    continue
                data = _bytes(span.storage, span.begin, span.end).cpu().numpy().tobytes()
                key = name(data)
                while key in taken:
                    data += bytes(_PADDING)
                    key = name(data)
                keys[place] = key
                taken.add(key)
                put(key, data)
        return self._placed(keys, standing_in)

    def _within(self) -> dict[int, list[int]]:
        """The indices of the tensors in each storage."""
        found: dict[int, list[int]] = {}
        for index, place in self._place.items():
            found.setdefault(place, []).append(index)
        return found

    def _versions(self, indices: list[int]) -> list[int]:
        """The versions of these tensors; none if one has no version."""
        tensors = [self._alive[index] for index in indices]
        return [] if any(t.is_inference() for t in tensors) else [t._version for t in tensors]

    def _placed(self, keys: dict[int, str], standing_in: set[int]) -> tuple[TensorSpec, ...]:
        """The specs with the keys of their storages, or with what stands in for values."""
        specs = list(self._specs)
        self.left_out = [index for index, place in self._place.items() if place in standing_in]
        for index, place in self._place.items():
            spec = specs[index]
            if place in standing_in:
                init = recipe(self._alive[index], measured=self.keep.measured)
                specs[index] = replace(spec, init=init, offset=0, conj=False, neg=False)
                continue
            begin = self._storages[place].begin
            specs[index] = replace(spec, storage=keys[place], offset=spec.offset - begin // _itemsize(spec.dtype))
        return tuple(specs)

    def _stand_in(self) -> set[int]:
        """The storages whose values are not kept.

        A storage of several tensors goes last, because tensors that are made one by one cannot share it.
        """
        each, most = self.keep.each if self.clip else None, self.keep.all
        if each is None and most is None:
            return set()
        sizes = {place: span.end - span.begin for place, span in self._storages.items()}
        alone, others = list[int](), list[int]()
        for place, indices in self._within().items():
            spec = self._specs[indices[0]]
            overlaps = any(step == 0 and size > 1 for size, step in zip(spec.shape, spec.stride, strict=True))
            whole = sizes[place] == spec.numel * _itemsize(spec.dtype)  # nothing lies beside the tensor
            if place not in self._parts and (self.clip or whole):
                (alone if len(indices) == 1 and not overlaps else others).append(place)
        found = set() if each is None else {place for place in alone if sizes[place] > each}
        if most is not None:
            left = sum(size for place, size in sizes.items() if place not in found)
            for places in (alone, others):
                for place in sorted(set(places) - found, key=lambda place: -sizes[place]):
                    if left > most:
                        found.add(place)
                        left -= sizes[place]
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


def _bytes(storage: torch.UntypedStorage, begin: int, end: int) -> torch.Tensor:
    """Bytes ``begin`` to ``end`` of a storage, as far as it has so many."""
    made = torch.empty(0, dtype=torch.uint8, device=storage.device)
    size = min(end, storage.nbytes()) - begin
    return made.set_(storage, begin, (size,), (1,)) if size > 0 else made


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
