"""Checking how a document describes tensors: sizes before anything is allocated, sources of values, components."""

from __future__ import annotations

import math
import re

from .case import TensorSpec, tag
from .checks import Checks, InvalidDocument, brief
from .names import table

_KEY = re.compile(r"[0-9a-f]{64}\Z")
_DEVICE = re.compile(r"([a-z]{2,16})(:[0-9]{1,3})?\Z")
_BIG = 1 << 48
_INITS: dict[str, tuple[str, ...]] = {
    "randn": (), "rand": (), "arange": (), "full": ("value",), "randint": ("low", "high"),
}  # fmt: skip
_PARTS = {"sparse_coo": 2, "sparse_csr": 3, "sparse_csc": 3, "sparse_bsr": 3, "sparse_bsc": 3, "_mkldnn": 1}


def check_storage(spec: TensorSpec, size: int) -> None:
    """Check that ``spec`` stays inside its storage of ``size`` bytes: `torch.Tensor.set_` would grow it instead."""
    if spec.dtype not in table().dtypes or len(spec.shape) != len(spec.stride):
        raise InvalidDocument(f"a tensor of {spec.dtype!r:.40} with {len(spec.stride)} strides has no layout")
    last = sum((s - 1) * stride for s, stride in zip(spec.shape, spec.stride, strict=True))
    need = (spec.offset + last + 1) * table().dtypes[spec.dtype] if spec.numel else 0
    if need > size:
        raise InvalidDocument(f"a tensor reaches byte {need} of a storage of {size}")


class TensorChecks(Checks):
    """Checks of `TensorSpec`; ``tensors`` are those of the document."""

    tensors: tuple[TensorSpec, ...] = ()

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
            "offset storage init device requires_grad leaf parameter conj neg inference layout parts dynamic extra",
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
        )
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

    def init(self, init: object, spec: TensorSpec) -> None:
        init = self.fields(init, "fn", "value low high")
        name = self.one_of(init["fn"], _INITS, "generator")
        self.fields(init, "fn " + " ".join(_INITS[name]))
        view = spec.layout != "strided" or spec.offset or spec.conj or spec.neg
        self.need(not view, "a view has a storage")
        if name == "randint":
            low = self.integer(init["low"], -(1 << 63), (1 << 63) - 2)
            self.integer(init["high"], low + 1, (1 << 63) - 1)
        if name == "full":
            self.need(_is_scalar(init["value"]), "a scalar is expected")

    def parts(self, spec: TensorSpec, parts: list[TensorSpec]) -> None:
        """Components are plain tensors, so nothing can contain itself."""
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
    """How many components make up the values of ``spec``; 0 for a plain tensor."""
    scheme = spec.extra.get("qscheme")
    if scheme is not None:
        return 1 if str(scheme).startswith("per_tensor") else 3
    return _PARTS.get(spec.layout, 0)
