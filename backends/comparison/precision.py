"""Find out whether a backend computes in a shorter dtype than the graph says, by an emulation in eager mode.

Some accelerators multiply float32 matrices as bfloat16 or tf32, for good reason. All of their graphs differ from eager,
and that is one finding. The emulation runs eager once more with rounding to 7 or 10 bits of mantissa: of the operands
of matrix products and convolutions, of their results too, or of all results. The backend computes in the shorter dtype
if its error is as large as the emulated one and correlates with it. A wrong value of the same size does not correlate,
unless there are so few errors that it may by chance: those show no dtype that nothing else shows.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..running.exceptions import is_out_of_memory
from ..running.execution import execute
from ..running.shared import SharedStorages
from .reference import Place, indices

#: Bits of mantissa and the name of the dtype. Values alone do not distinguish tf32 from float16.
SHORT = {7: "bfloat16", 10: "tf32 or float16"}
OF_MM = " of mm"
PLACES = ("operands", "products", f"operands{OF_MM}", f"products{OF_MM}", "everything")
#: The largest error, in multiples of the emulated one, and the largest part of it that may remain unexplained.
_FACTOR = 8.0
_LEFT = 0.75
#: The fewest different errors of a result that show a dtype.
_FEWEST = 8
#: With shared storages, the least cosine between the error and the error of rounded products that starts more runs.
#: In a GPT-2 of 2 and of 12 layers it is 0.2 and more for each of `PLACES`, and 0.06 and less for the other dtype.
_RELATED = 0.15
#: The most elements of results that are kept of each run.
_KEPT = 1 << 22
#: The largest error, relative to the largest value, that rounding to 7 bits may explain.
_LARGEST = 0.25
_MM = ("mm", "addmm", "mv", "addmv", "dot", "linear", "linear_backward", "bmm", "baddbmm", "addbmm", "matmul")


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A divergent result: the compiled, the float64 and the eager one as numbers."""

    compiled: torch.Tensor
    exact: torch.Tensor
    eager: torch.Tensor


class Emulations:
    """Eager runs of the graph of ``shared`` with rounding. Each is made when it is needed, and only its results at
    these places are kept."""

    def __init__(self, shared: SharedStorages, evidence: Mapping[Place, Evidence]) -> None:
        self._shared, self._evidence = shared, evidence
        self._known: dict[tuple[int, str], dict[Place, torch.Tensor]] = {}
        #: Whether operators were rounded that the places "of mm" leave out.
        self._others = False

    def explain(self, places: Collection[Place], known: Container[str] = ()) -> dict[Place, tuple[str, bool]]:
        """For each of ``places`` the shorter dtype in which the result was computed, and whether its errors are enough
        to say so. A place that no rounding explains is left out.

        For dtypes in ``known``, which another result showed, the size of the error suffices.
        """
        found: dict[Place, tuple[str, bool]] = {}
        left = {place: error for place in places if (error := _Error.of(self._evidence[place], known)) is not None}
        asked = {bits: set(left) for bits in SHORT}
        if self._shared.numbers and not known:  # two runs instead of ten tell most errors from rounding
            for bits, group in asked.items():
                run = self._run(bits, "products") if group else {}
                group.intersection_update([place for place in group if left[place].may_come_from(place, run)])
        for bits, rounding in product(SHORT, PLACES):
            if not asked[bits] & left.keys():
                continue
            for place, emulated in self._run(bits, rounding).items():
                if place not in asked[bits] or place not in left:
                    continue
                if (enough := left[place].follows(emulated, bits, known)) is not None:
                    found[place] = SHORT[bits], enough
                    del left[place]
        return found

    def _run(self, bits: int, rounding: str) -> dict[Place, torch.Tensor]:
        """The results of a run at the places of the evidence; empty if the graph cannot run with rounding."""
        if rounding.endswith(OF_MM) and not self._others:
            rounding = rounding.removesuffix(OF_MM)  # nothing else was rounded
        if (known := self._known.get((bits, rounding))) is None:
            gradients = indices("gradients", self._evidence)
            mode = _Rounding(bits, rounding)
            try:
                with mode:
                    graph, inputs = self._shared.graph(), self._shared.inputs()
                    run = execute(graph, inputs, bool(gradients), wanted=gradients)
                    results = {place: place.read(run) for place in self._evidence}
            except Exception as exc:  # the graph cannot run with rounding, for whatever reason
                if is_out_of_memory(exc):
                    raise
                results = {}
            self._others |= mode.others
            known = {place: value.detach() for place, value in results.items() if isinstance(value, torch.Tensor)}
            if sum(value.numel() for value in known.values()) <= _KEPT:
                self._known[bits, rounding] = known
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Error:
    """The error of a result where that is a finite number, ``size`` is its norm."""

    compiled: torch.Tensor
    exact: torch.Tensor
    finite: torch.Tensor
    size: float

    @classmethod
    def of(cls, evidence: Evidence, known: Container[str]) -> _Error | None:
        """Return the error of a result, or None without an error or if rounding to 7 bits cannot explain it."""
        if evidence.eager.dtype not in (torch.float32, torch.float64):
            return None
        a, r = evidence.compiled.double(), evidence.exact.double()
        finite = a.isfinite() & r.isfinite()
        error, size = (a - r)[finite], float(r[finite].abs().max()) if bool(finite.any()) else 0.0
        norm = _norm(error)
        if not norm or (not known and float(error.abs().max()) > _LARGEST * size):
            return None
        return cls(a, r, finite, norm)

    def may_come_from(self, place: Place, rounded: Mapping[Place, torch.Tensor]) -> bool:
        """Whether the error at ``place`` has the direction of the error of a run with rounding."""
        if place not in rounded or rounded[place].shape != self.exact.shape:
            return True
        m = rounded[place].double()
        both = self.finite & m.isfinite()
        error, other = (self.compiled - self.exact)[both], (m - self.exact)[both]
        norm = _norm(error) * _norm(other)
        return not norm or abs(float((error * other).sum())) >= _RELATED * norm

    def follows(self, emulated: torch.Tensor, bits: int, known: Container[str]) -> bool | None:
        """Whether the errors are enough to say that they come from this rounding; None if they do not."""
        a, r = self.compiled, self.exact
        if emulated.shape != r.shape:
            return None
        m = emulated.double()
        both = self.finite & m.isfinite()
        shift, envelope = (a - m)[both], (m - r)[both].abs()
        reach = envelope + (float(envelope.square().mean().sqrt()) if envelope.numel() else 0.0)
        within = bool(((a - r)[both].abs() <= _FACTOR * reach).all())
        follows = SHORT[bits] in known or _norm(shift) <= _LEFT * self.size
        if not (within and follows and bool(both.eq(self.finite).all())):
            return None
        errors = (a - r)[both]
        return SHORT[bits] in known or errors[errors != 0].unique().numel() >= _FEWEST


class _Rounding(TorchDispatchMode):
    """``others`` says whether it met a product that is no matrix product."""

    def __init__(self, bits: int, place: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drop, self._place = bits, place
        self.others = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        product = name in _MM or name.startswith("_addmm")
        other = "conv" in name or "attention" in name
        self.others |= other
        if not self._place.endswith(OF_MM):
            product = product or other
        if product:
            args, kwargs = tree_map(self._rounded, (args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if (product and self._place.startswith("products")) or (self._place == "everything" and not _writes(func)):
            out = tree_map(self._rounded, out) if not _is_view(func) else out
        return out

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in _BITS:
            return value
        return rounded(value, self._drop)


#: Integers of the size of a floating dtype, and its bits of mantissa.
_BITS = {torch.float32: (torch.int32, 23), torch.float64: (torch.int64, 52)}
#: Elements that are rounded at a time.
_PIECE = 1 << 22


def rounded(value: torch.Tensor, bits: int) -> torch.Tensor:
    """``value`` rounded to ``bits`` bits of mantissa, to nearest, ties to even. The range of exponents stays.

    Of subnormal numbers, which have fewer bits, more is lost.
    """
    made = value.clone()
    if made.untyped_storage().nbytes() != made.numel() * made.element_size():
        made = value.contiguous().clone()
    flat = torch.empty(0, dtype=made.dtype, device=made.device).set_(made.untyped_storage())
    for piece in flat.split(_PIECE):
        _round(piece, bits)
    return made


def _round(value: torch.Tensor, bits: int) -> None:
    """Round in place: by a dtype that has so few bits, else by the integers whose bits the numbers are."""
    if (bits, value.dtype) == (7, torch.float32):
        value.copy_(value.to(torch.bfloat16))
        return
    integers, mantissa = _BITS[value.dtype]
    drop, whole = mantissa - bits, value.view(integers)
    nan = value.isnan() if bool(value.sum().isnan()) else None
    half = (whole >> drop).bitwise_and_(1).add_((1 << (drop - 1)) - 1)
    whole.add_(half).bitwise_and_(-(1 << drop))
    if nan is not None:
        value.masked_fill_(nan, torch.nan)


def _writes(func: Any) -> bool:
    return bool(func._schema.is_mutable)


def _is_view(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.arguments) or func._schema.name == "aten::detach"


def _norm(t: torch.Tensor) -> float:
    return float(t.square().sum().sqrt())
