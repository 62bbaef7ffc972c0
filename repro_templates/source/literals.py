"""Calls that make tensors from nothing: literals, constants, sequences, seeded random numbers.

Always the shortest call torch's own rules allow: a dtype is named only where torch would choose another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...store.document.case import TensorSpec
from ...store.document.names import table
from .elements import COMPLEX, FLOATS, INTEGERS, element
from .expressions import Expressions, Unprintable, dtype
from .layout import WIDTH, Call
from .strides import contiguous

if TYPE_CHECKING:
    from .elements import Array

#: Up to so many elements a literal is printed, whatever it takes...
_LITERAL = 16
#: ...and up to so many while it fits into a few lines.
_SHORT_LITERAL, _SHORT_TEXT = 64, 4 * (WIDTH - 10)
_RANDOM = frozenset({"randn", "rand", "randint"})
_NATURAL = {"bool": "bool", "int64": "int", "complex64": "complex"}
_COUNTED = FLOATS | {"int64", "int32", "int16", "int8", "uint8"}


class Literals:
    """Prints values where torch's default dtype is ``default_dtype``; ``seeded`` once a call drew random numbers."""

    def __init__(self, default_dtype: str = "float32") -> None:
        self.expressions = Expressions(_no_reference)
        self.seeded = False
        self._natural = {**_NATURAL, default_dtype: "float"}
        if default_dtype == "float64":
            self._natural["complex128"] = self._natural.pop("complex64")

    def tensor(self, array: Array, kind: str, device: str = "cpu") -> Call | None:
        """A call that makes a contiguous tensor of these values; None where only its data would do."""
        shape, flat = array.shape, array.reshape(-1)
        if array.size == 0:
            return Call("torch.empty", (*sizes(shape), *self._keywords(kind, "float", device)))
        if array.size > 4 and _is_constant(flat):
            return self.full(shape, self._number(kind, flat[0]), kind, device)
        if array.size > 8 and kind in _COUNTED and (step := _step(flat)):
            first = int(flat[0])
            last = int(flat[-1]) + step
            bounds = [str(first)] if first or step != 1 else []
            bounds += [str(last)] if step == 1 else [str(last), str(step)]
            return _shaped(Call("torch.arange", (*bounds, *self._keywords(kind, "int", device))), shape)
        return self._literal(array, kind, device)

    def generated(self, spec: TensorSpec) -> Call:
        """The call that ``spec.init`` stands for; its result is contiguous."""
        init = spec.init or {}
        fn = init.get("fn")
        self.seeded = self.seeded or fn in _RANDOM
        native = is_drawn_natively(str(fn), spec.dtype)
        kind = spec.dtype if native else "int64" if fn in ("randint", "arange") else "float32"
        if fn in ("randn", "rand"):
            # Without a dtype torch draws floats, so a complex one is always named.
            given = "" if kind in COMPLEX else "float"
            made = Call(f"torch.{fn}", (*sizes(spec.shape), *self._keywords(kind, given, spec.device)))
        elif fn == "randint":
            bounds = (str(int(init["low"])), str(int(init["high"])))
            made = Call("torch.randint", (*bounds, _size(spec.shape), *self._keywords(kind, "int", spec.device)))
        elif fn == "full":
            # Every dtype holds constants: printed directly, `build` converts to the same value.
            return self.full(spec.shape, self.expressions.value(init["value"]), spec.dtype, spec.device)
        elif fn == "arange":
            made = Call("torch.arange", (str(spec.numel), *self._keywords(kind, "int", spec.device)))
            made = _shaped(made, spec.shape)
        else:
            raise Unprintable(f"{fn!r} is no generator of values")
        return made if native else made.then(f".to({dtype(spec.dtype)})")

    def empty(self, spec: TensorSpec) -> Call:
        """A tensor without values: empty, or on the meta device."""
        keywords = self._keywords(spec.dtype, "float", spec.device)
        if spec.stride == contiguous(spec.shape):
            return Call("torch.empty", (*sizes(spec.shape), *keywords))
        return Call("torch.empty_strided", (_size(spec.shape), _size(spec.stride), *keywords))

    def full(self, shape: tuple[int, ...], value: str, kind: str, device: str = "cpu") -> Call:
        """``torch.zeros``, ``torch.ones`` or ``torch.full``; ``value`` is source."""
        for name, texts in (("zeros", ("0", "0.0", "False")), ("ones", ("1", "1.0", "True"))):
            if value in texts:
                return Call(f"torch.{name}", (*sizes(shape), *self._keywords(kind, "float", device)))
        given = "bool" if value in ("True", "False") else "int" if value.lstrip("-").isdigit() else "float"
        given = "complex" if "j" in value or value.startswith("complex") else given
        return Call("torch.full", (_size(shape), value, *self._keywords(kind, given, device)))

    def _literal(self, array: Array, kind: str, device: str) -> Call | None:
        if array.size > _SHORT_LITERAL:
            return None
        given = "bool" if kind == "bool" else "int" if kind in INTEGERS else "complex" if kind in COMPLEX else "float"
        keywords = self._keywords(kind, given, device)
        if array.ndim == 0:
            return Call("torch.tensor", (self._number(kind, array[()]), *keywords))
        rows = tuple(self._nested(kind, row) for row in array)
        if array.size > _LITERAL and sum(len(row) + 2 for row in rows) > _SHORT_TEXT:
            return None
        return Call("torch.tensor", rows, brackets=("([", ", ".join(["]", *keywords]) + ")"))

    def _nested(self, kind: str, array: Array) -> str:
        if getattr(array, "ndim", 0) == 0:
            return self._number(kind, array)
        return f"[{', '.join(self._nested(kind, row) for row in array)}]"

    def _number(self, kind: str, value: Any) -> str:
        text = element(kind, value)
        self.expressions.imports.update(f"from math import {name}" for name in ("inf", "nan") if name in text)
        return text

    def _keywords(self, kind: str, given: str, device: str) -> tuple[str, ...]:
        """``dtype=`` unless torch gives values of the ``given`` kind that dtype by itself, and ``device=``."""
        named = () if self._natural.get(kind) == given else (f"dtype={dtype(kind)}",)
        return named if device == "cpu" else (*named, self.expressions.keyword("device", {"device": device}))


def is_drawn_natively(fn: str, kind: str) -> bool:
    """Whether ``torch.<fn>`` makes this dtype itself, as `fxminify.store.live.build.is_drawn_natively` says."""
    if fn in ("randn", "rand"):
        return kind in FLOATS | COMPLEX
    return kind in _COUNTED or (fn != "arange" and kind == "bool") or (fn == "full" and kind in COMPLEX)


def sizes(shape: tuple[int, ...]) -> tuple[str, ...]:
    """The size arguments of ``torch.zeros``."""
    return tuple(map(str, shape)) or ("()",)


def itemsize(kind: str) -> int:
    """Bytes of one element."""
    return table().dtypes[kind]


def _size(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _shaped(made: Call, shape: tuple[int, ...]) -> Call:
    return made if len(shape) == 1 else made.then(f".reshape({', '.join(sizes(shape))})")


def _is_constant(flat: Array) -> bool:
    """Whether all elements are one, to the bit (NaN counts as itself, -0.0 not as 0.0)."""
    import numpy as np

    raw = np.ascontiguousarray(flat).view("u1").reshape(flat.size, -1)
    return bool((raw == raw[0]).all())


def _step(flat: Array) -> int:
    """The step of a sequence of whole numbers, 0 where it is none."""
    import numpy as np

    wide = flat.astype("f8")
    start, step = float(wide[0]), float(wide[1]) - float(wide[0])
    if not (start.is_integer() and step.is_integer()):
        return 0
    expected = start + step * np.arange(flat.size)
    exact = np.abs(expected).max() < 2**53 and not (np.signbit(wide) != np.signbit(expected)).any()
    return int(step) if exact and bool((flat == expected).all()) else 0


def _no_reference(name: str) -> str:
    raise Unprintable(f"an input refers to the node {name!r}")
