"""Find out whether a backend computes in a shorter dtype than the graph says, by an emulation in eager mode.

Some accelerators multiply float32 matrices as bfloat16 or tf32, for good reason. All of their graphs differ from eager,
and that is one finding. The emulation runs eager once more with rounding to 7 or 10 bits of mantissa: of the operands
of matrix products and convolutions, of their results too, or of all results. The backend computes in the shorter dtype
if its error is as large as the emulated one and correlates with it. A wrong value of the same size does not correlate,
unless there are so few errors that it may by chance: those show no dtype that nothing else shows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..running.execution import Run, execute

#: Bits of mantissa and the name of the dtype. Values alone do not distinguish tf32 from float16.
SHORT = {7: "bfloat16", 10: "tf32 or float16"}
PLACES = ("operands", "products", "operands of mm", "products of mm", "everything")
#: The largest error, in multiples of the emulated one, and the largest part of it that may remain unexplained.
_FACTOR = 8.0
_LEFT = 0.75
#: The fewest different errors of a result that show a dtype.
_FEWEST = 8
#: The largest error, relative to the largest value, that rounding to 7 bits may explain.
_LARGEST = 0.25
_MM = ("mm", "addmm", "mv", "addmv", "dot", "linear", "linear_backward", "bmm", "baddbmm", "addbmm", "matmul")


class Emulations:
    """Eager runs of ``graph`` with rounding, each made when it is needed."""

    def __init__(self, graph: torch.fx.GraphModule, fresh: Callable[[], list[Any]], backward: bool) -> None:
        self._graph, self._fresh, self._backward = graph, fresh, backward
        self._known: dict[tuple[int, str], Run | None] = {}

    def explain(
        self,
        compiled: torch.Tensor,
        exact: torch.Tensor,
        eager: torch.Tensor,
        read: Callable[[Run], Any],
        known: Container[str] = (),
    ) -> tuple[str, bool] | None:
        """The shorter dtype in which ``compiled`` was computed, and whether its errors are enough to say so. None if no
        rounding explains them.

        ``exact`` and ``eager`` are the float64 and the eager result, and ``read`` finds the result in another run. For
        dtypes in ``known``, which another result showed, the size of the error suffices.
        """
        if eager.dtype not in (torch.float32, torch.float64):
            return None
        a, r = compiled.double(), exact.double()
        finite = a.isfinite() & r.isfinite()
        error, size = _norm((a - r)[finite]), float(r[finite].abs().max()) if bool(finite.any()) else 0.0
        if not error or (not known and float((a - r)[finite].abs().max()) > _LARGEST * size):
            return None
        for bits, run in self._runs():
            emulated = read(run)
            if not isinstance(emulated, torch.Tensor) or emulated.shape != r.shape:
                continue
            m = emulated.detach().double()
            both = finite & m.isfinite()
            shift, envelope = (a - m)[both], (m - r)[both].abs()
            reach = envelope + (float(envelope.square().mean().sqrt()) if envelope.numel() else 0.0)
            within = bool(((a - r)[both].abs() <= _FACTOR * reach).all())
            follows = SHORT[bits] in known or _norm(shift) <= _LEFT * error
            if within and follows and bool(both.eq(finite).all()):
                errors = (a - r)[both]
                enough = SHORT[bits] in known or errors[errors != 0].unique().numel() >= _FEWEST
                return SHORT[bits], enough
        return None

    def _runs(self) -> Iterator[tuple[int, Run]]:
        for bits in SHORT:
            for place in PLACES:
                if (bits, place) not in self._known:
                    self._known[bits, place] = self._run(bits, place)
                run = self._known[bits, place]
                if run is not None:
                    yield bits, run

    def _run(self, bits: int, place: str) -> Run | None:
        try:
            with _Rounding(bits, place):
                return execute(copy.deepcopy(self._graph), self._fresh(), self._backward)
        except Exception:  # noqa: BLE001  the graph cannot run with rounding, for whatever reason
            return None


class _Rounding(TorchDispatchMode):
    def __init__(self, bits: int, place: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drop, self._place = bits, place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        product = name in _MM or name.startswith("_addmm")
        if not self._place.endswith(" of mm"):
            product = product or "conv" in name or "attention" in name
        if product:
            args, kwargs = tree_map(self._rounded, (args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if (product and self._place.startswith("products")) or (self._place == "everything" and not _writes(func)):
            out = tree_map(self._rounded, out) if not _is_view(func) else out
        return out

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
            return value
        return rounded(value, self._drop)


def rounded(value: torch.Tensor, bits: int) -> torch.Tensor:
    """``value`` rounded to ``bits`` bits of mantissa, to nearest, ties to even. The range of exponents stays."""
    mantissa, exponent = torch.frexp(value)
    scale = float(2 ** (bits + 1))
    out = torch.ldexp(torch.round(mantissa * scale) / scale, exponent)
    return torch.where(value.isfinite(), out, value)


def _writes(func: Any) -> bool:
    return bool(func._schema.is_mutable)


def _is_view(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.arguments) or func._schema.name == "aten::detach"


def _norm(t: torch.Tensor) -> float:
    return float(t.square().sum().sqrt())
