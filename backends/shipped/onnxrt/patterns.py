"""The pattern of a call of an operator: what decides whether the translation of the call is right.

Two calls have one pattern if they call one operator with tensors of the same dtypes, the same numbers of dimensions and
the same emptiness, and with other arguments of the same kind: ``None``, a flag, a text, a number that is negative, 0, 1
or larger, a list of such numbers. The results that are used belong to the pattern, too. ``aten::sum.dim_IntList`` of a
float32 matrix along its last dimension is

    aten::sum.dim_IntList   f32   0[2] [1:-]

The first tensor has the first dtype and two dimensions, and the list has one number, which is negative.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
}  # fmt: skip
#: Arguments that change no value of the result.
_WITHOUT_EFFECT = frozenset({"device", "layout", "memory_format", "pin_memory"})
#: Tensors of more dimensions count as having so many: for operators that take elements one by one, and for others.
_MOST_POINTWISE, _MOST = 2, 6
_ALSO_POINTWISE = ("aten::_to_copy", "prims::where")


@dataclass(frozen=True, slots=True)
class CallPattern:
    """``operator`` is a name such as ``aten::add.Tensor``; ``dtypes`` are short names, joined with commas."""

    operator: str
    dtypes: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.operator} {self.dtypes} {self.arguments}".strip()


def pattern_of(node: torch.fx.Node, *, empty: bool = False) -> CallPattern:
    """Return the pattern of a call whose nodes have ``meta["val"]``.

    ``empty``: tensors that may be without elements at some call count as being so.
    """
    target: Any = node.target
    pointwise = torch.Tag.pointwise in target.tags or target.name() in _ALSO_POINTWISE
    described = _Description(_MOST_POINTWISE if pointwise else _MOST, empty)
    words = [described.of(argument) for argument in node.args]
    words += [f"{k}={described.of(v)}" for k, v in sorted(node.kwargs.items()) if k not in _WITHOUT_EFFECT]
    if isinstance(node.meta.get("val"), tuple | list):
        words.append(f"-> {','.join(map(str, used_results(node)))}")
    dtypes = described.dtypes or [d for v in _leaves(node.meta.get("val")) if (d := f">{short(v.dtype)}")]
    return CallPattern(str(target.name()), ",".join(dtypes), " ".join(words))


def used_results(node: torch.fx.Node) -> list[int]:
    """Return which results of a call with several are used; all of them if something takes them together."""
    picked = {user.args[1] for user in node.users if user.target is operator.getitem}
    together = any(user.target is not operator.getitem for user in node.users)
    tensors = [i for i, v in enumerate(node.meta["val"]) if isinstance(v, torch.Tensor)]
    return tensors if together or not picked else [i for i in tensors if i in picked]


def may_be_empty(node: torch.fx.Node) -> bool:
    """Return whether an argument of a call is a tensor with elements now, and perhaps without at another call."""
    values = [v for argument in node.all_input_nodes for v in _leaves(argument.meta.get("val"))]
    return any(not _is_empty(v) and any(_least(size) < 1 for size in v.shape) for v in values)


def short(dtype: torch.dtype) -> str:
    """Return the name of a dtype in a pattern."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def hint(size: Any) -> int:
    """Return a size as it is for the inputs at hand, without a guard; one that depends on data is 2."""
    if isinstance(size, int):
        return size
    known = size.node.hint
    return 2 if known is None else int(known)


class _Description:
    """Describes the arguments of one call. ``dtypes`` has the dtypes of its tensors so far, each once."""

    def __init__(self, most: int, empty: bool) -> None:
        self.dtypes: list[str] = []
        self._most, self._empty = most, empty

    def of(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self.of(value.meta.get("val"))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, list | tuple):
            if not value or not all(_is_number(v) for v in value):
                return f"({self._several(value)})"
            return f"[{len(value)}:{''.join(sorted({_number(v) for v in value}))}]"
        if value is None:
            return "None"
        if isinstance(value, torch.dtype):
            return short(value)
        return _number(value) if _is_number(value) else repr(value)

    def _several(self, values: Iterable[Any]) -> str:
        """Describe a list with tensors; tensors of one description count once."""
        words = [self.of(v) for v in values]
        return " ".join(dict.fromkeys(words)) + (f" x{min(len(words), 3)}" if len(set(words)) < len(words) else "")

    def _tensor(self, value: torch.Tensor) -> str:
        name = short(value.dtype)
        if name not in self.dtypes:
            self.dtypes.append(name)
        symbolic = any(not isinstance(size, int) for size in value.shape)
        vanishes = self._empty and any(_least(size) < 1 for size in value.shape)
        marks = ("~" if symbolic else "") + ("e" if _is_empty(value) or vanishes else "")
        return f"{self.dtypes.index(name)}[{min(value.dim(), self._most)}{marks}]"


def _leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _is_empty(value: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _least(size: Any) -> int:
    """Return the smallest value that a size can have, as far as Dynamo's guards tell."""
    if isinstance(size, int):
        return size
    lower = size.node.shape_env.bound_sympy(size.node.expr).lower
    return int(lower) if lower.is_Integer else 0


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val")
    return isinstance(value, bool | int | float | complex | torch.SymInt | torch.SymFloat | torch.SymBool)


def _number(value: Any) -> str:
    if isinstance(value, torch.fx.Node | torch.SymInt | torch.SymFloat | torch.SymBool):
        return "s"
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, complex):
        return "j"
    kind = "." if isinstance(value, float) else ""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return ("-" if value < 0 else str(int(value)) if value in (0, 1) else "+") + kind
