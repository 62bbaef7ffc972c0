"""Tagged values and targets (``docs/format.md``) as Python expressions.

All that comes from the case passes through ``repr`` or a strict pattern before it becomes source, so no string of a
foreign file can end a line, a literal or a comment. `Expressions` is given a function that returns the name of a
reference. ``Expressions.imports`` collects the imports that expressions need.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...store.document.case import Value, tag
from ...store.document.names import UnknownName, check_target, table

#: Functions of `torch.nn.functional` that are C++ functions. Dynamo records them by a private module.
_OF_NN = frozenset(
    {"avg_pool2d", "avg_pool3d", "gelu", "linear", "one_hot", "scaled_dot_product_attention", "softplus", "softshrink"}
)
#: Where the functions of ATen are whose names begin so; the first one has most of them.
_MODULES = {"": "torch.", "special_": "torch.special.", "linalg_": "torch.linalg.", "fft_": "torch.fft."}
#: Public names of functions that Dynamo records by a private module. Each pair is one object, which a test checks.
_PUBLIC = {
    "torch._C._nn.": ("torch.nn.functional.", _OF_NN),
    "torch._C._linalg.linalg_": ("torch.linalg.", None),
    "torch._C._fft.fft_": ("torch.fft.", None),
    "torch._C._special.special_": ("torch.special.", None),
}  # fmt: skip
#: Functions of Python that hand their arguments on to one of C++, which is what Dynamo records.
_WRAPPERS = {"torch._C._nn.pad": "torch.nn.functional.pad"}

#: Functions of `torch` that are not the operator ``aten::NAME``, are no function of C++, that Dynamo folds or skips, or
#: that only raise in newer versions (`torch.cholesky`, `torch.qr`).
_NOT_THE_OPERATOR = frozenset(
    {"addcdiv", "align_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors",
     "cartesian_prod", "cdist", "chain_matmul", "cholesky", "einsum", "is_complex", "is_floating_point", "meshgrid",
     "miopen_ctc_loss", "numel", "one_hot", "promote_types", "qr", "resize_as_", "resize_as_sparse_", "stft",
     "tensordot", "unique_consecutive"}
)  # fmt: skip
#: Modules that `import torch` imports, so a script need not import them.
_WITH_TORCH = re.compile(
    r"torch(?:\.(?:_C(?:\..*)?|amp\.autocast_mode|autograd|autograd\.(?:forward_ad|grad_mode)|backends\.cuda|fft|linalg|"
    r"masked\._ops|nested|nn\.functional|nn\.init|nn\.attention|random|sparse|special|_functorch\.predispatch|Tensor))?\Z"
)
_HOPS_WITH_TORCH = re.compile(
    r"torch\._higher_order_ops\.\w+|torch\._functorch\.autograd_function|torch\._prims\.rng_prims"
)
#: Tags of values that may be between brackets without a tuple around them.
_INDICES = frozenset({"slice", "ellipsis", "ref"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DEVICE = re.compile(r"[a-z]+(?::\d+)?\Z")


def public_function(operator: str) -> str:
    """``torch.amax`` for ``aten::amax.default``, which are the same; empty for an operator without such a function."""
    found = call_in_programs(operator) if operator.endswith(".default") else None
    return found["fn"] if isinstance(found, dict) else ""


def call_in_programs(operator: str) -> dict[str, str] | str | None:
    """The target of a call that programs write in place of an overload of ATen: of a function of `torch` or of a module
    of it, else the name of a method. None where there is neither. Most functions lead to the overload, by what they are
    given.

    Example: ``{"fn": "torch.add"}`` for ``aten::add.Tensor``, ``{"fn": "torch.special.ndtr"}`` for
    ``aten::special_ndtr.default``, ``"view"`` for ``aten::view.default``.
    """
    namespace, _, rest = operator.partition("::")
    name = rest.partition(".")[0]
    if namespace != "aten" or name.startswith("_") or name in _NOT_THE_OPERATOR:
        return None
    for begins, module in _MODULES.items():
        known = f"{module}{name.removeprefix(begins)}"
        if name.startswith(begins) and known in table().functions:
            return {"fn": known}
    if name in _OF_NN:
        return {"fn": f"torch._C._nn.{name}"}
    return name if name in table().methods else None


class Unprintable(Exception):
    """A part of a case has no form as source. ``node`` names the place, ``reason`` says why."""

    def __init__(self, reason: str, node: str | None = None) -> None:
        super().__init__(f"node {node!r}: {reason}" if node else reason)
        self.reason = reason
        self.node = node


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None and not keyword.iskeyword(text)


def dtype(name: str) -> str:
    if not is_name(name) or name.startswith("_"):
        raise Unprintable(f"{name!r} is no dtype")
    return f"torch.{name}"


def string(text: str) -> str:
    """A string literal in ASCII, in double quotes if these need no escapes."""
    literal = ascii(text)
    return f'"{text}"' if literal == f"'{text}'" and '"' not in text else literal


class Expressions:
    """Prints values. ``lookup`` gives the source of a reference, ``constant`` the source of a tensor inside a
    graph.

    With ``lowered`` the code is traced again by AOTAutograd, which makes ``aten.amax`` of ``torch.amax``: then the
    operator prints as the function.
    """

    def __init__(
        self, lookup: Callable[[str], str], constant: Callable[[int], str] | None = None, *, lowered: bool = False
    ) -> None:
        self.lookup = lookup
        self.constant = constant
        self.lowered = lowered
        self.imports: set[str] = set()
        self._depth = 0

    def value(self, value: Value) -> str:
        """The expression for one tagged value."""
        if value is None or isinstance(value, bool | int):
            return repr(value)
        if isinstance(value, str):
            return string(value)
        if isinstance(value, float):
            return self._finite(repr(value))
        with self.deeper():
            return self._nested(value)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Within it, what stands inside of a value is printed. Raises `Unprintable` deeper than `DEEPEST`."""
        if self._depth >= DEEPEST:
            raise Unprintable(f"a value is nested deeper than {DEEPEST}")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _nested(self, value: Value) -> str:
        if isinstance(value, list):
            return f"[{self.items(value)}]"
        name = tag(value)
        printer = getattr(self, f"_{name}", None) if isinstance(name, str) and name in _PRINTED else None
        if printer is None:
            raise Unprintable(f"a value tagged {name!r} has no source form")
        text: str = printer(value[name])
        return text

    def items(self, values: list[Value]) -> str:
        return ", ".join(self.value(v) for v in values)

    def subscript(self, index: Value) -> str:
        """The source between the brackets of ``x[...]``."""
        if tag(index) == "tuple" and index["tuple"]:
            items = [self._item(i) for i in index["tuple"]]
            first = index["tuple"][0]
            plain = len(items) > 1 or first is None or type(first) is int or tag(first) in _INDICES
            return ", ".join(items) + ("" if plain else ",")
        return self._item(index)

    def keyword(self, name: str, value: Value) -> str:
        """``name=value`` of a call, with a device as a string."""
        if not is_name(name):
            raise Unprintable(f"{name!r} is no keyword argument")
        text = string(self._device_text(value["device"])) if tag(value) == "device" else self.value(value)
        return f"{name}={text}"

    def target(self, target: Value) -> str:
        """A callable: ``torch.relu``, ``torch.ops.aten.relu.default``, ``torch.ops.higher_order.cond``."""
        kind = tag(target)
        try:
            check_target(target, custom=True)
        except UnknownName as e:
            raise Unprintable(str(e)) from None
        name: str = target[kind]
        if kind == "hop":
            if not _HOPS_WITH_TORCH.fullmatch(module := table().hops[name]):
                self.imports.add(f"import {module}")
            return _attributes("torch.ops.higher_order", [name])
        if kind == "fn":
            return self._function(name)
        namespace, _, rest = name.partition("::")
        if self.lowered and kind == "op" and (public := public_function(name)):
            return self._function(public)
        if library := table().libraries.get(name.partition(".")[0]):
            self.imports.add(f"import {library}")
        return _attributes("torch.ops", [namespace, *rest.split(".")])

    def _function(self, name: str) -> str:
        name = _WRAPPERS.get(name, name)
        for private, (public, only) in _PUBLIC.items():
            if name.startswith(private) and (only is None or name.removeprefix(private) in only):
                return public + name.removeprefix(private)
        module, _, function = name.rpartition(".")
        if module in ("operator", "_operator"):
            self.imports.add("import operator")
            return f"operator.{function}"
        if module == "builtins":
            return function
        if module == "math":
            self.imports.add("import math")
        elif not _WITH_TORCH.match(module):
            self.imports.add(f"import {module}")
        return name

    def _item(self, index: Value) -> str:
        if tag(index) != "slice":
            return self.value(index)
        start, stop, step = ("" if part is None else self.value(part) for part in index["slice"])
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"

    def _finite(self, text: str) -> str:
        for name in ("inf", "nan"):
            if name in text:
                self.imports.add(f"from math import {name}")
        return text

    # One method per tag of docs/format.md.

    def _ref(self, name: str) -> str:
        return self.lookup(name)

    def _tuple(self, items: list[Value]) -> str:
        return f"({self.items(items)}{',' if len(items) == 1 else ''})"

    def _size(self, items: list[Value]) -> str:
        return f"torch.Size([{self.items(items)}])"

    def _dict(self, pairs: list[list[Value]]) -> str:
        return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in pairs) + "}"

    def _set(self, items: list[Value]) -> str:
        return "{" + self.items(items) + "}" if items else "set()"

    def _frozenset(self, items: list[Value]) -> str:
        return f"frozenset([{self.items(items)}])"

    def _float(self, text: str) -> str:
        if text not in ("inf", "-inf", "nan"):
            raise Unprintable(f"{text!r} is no float")
        return self._finite(text)

    def _complex(self, parts: list[Value]) -> str:
        real, imaginary = parts
        if type(imaginary) is float and imaginary > 0 and str(real) == "0.0":
            return f"{imaginary!r}j"
        return f"complex({self.items(parts)})"

    def _slice(self, parts: list[Value]) -> str:
        return f"slice({self.items(parts)})"

    def _range(self, parts: list[int]) -> str:
        return f"range({self.items(parts)})"

    def _ellipsis(self, _: object) -> str:
        return "..."

    def _dtype(self, name: str) -> str:
        return dtype(name)

    _layout = _memory_format = _qscheme = _dtype

    def _device_text(self, text: str) -> str:
        if not _DEVICE.match(text):
            raise Unprintable(f"{text!r} is no device")
        return text

    def _device(self, text: str) -> str:
        return f"torch.device({string(self._device_text(text))})"

    def _enum(self, pair: list[str]) -> str:
        if pair[0] != "SDPBackend" or not is_name(pair[1]) or pair[1].startswith("_"):
            raise Unprintable(f"enum {pair!r} has no source form")
        self.imports.add("import torch.nn.attention")
        return f"torch.nn.attention.SDPBackend.{pair[1]}"

    def _finfo(self, name: str) -> str:
        return f"torch.finfo({dtype(name)})"

    def _iinfo(self, name: str) -> str:
        return f"torch.iinfo({dtype(name)})"

    def _target(self, target: Value) -> str:
        return self.target(target)

    def _sym(self, symbol: Mapping[str, Any]) -> str:
        return self.value(symbol["hint"])

    def _bytes(self, text: str) -> str:
        return repr(bytes.fromhex(text))

    def _return_type(self, pair: list[Value]) -> str:
        return self._tuple(pair[1])

    def _tensor(self, index: int) -> str:
        if self.constant is None:
            raise Unprintable("a tensor stands where none can be printed")
        return self.constant(index)


def shown(value: Value, name_of: Callable[[str], str] = str) -> str | None:
    """A value as a person writes it, None if it has no form as source. ``name_of`` returns the names of nodes."""
    try:
        return Expressions(name_of, lambda index: f"tensor {index}").value(value)
    except Unprintable:
        return None


def shown_target(target: Value, *, lowered: bool = False) -> str:
    """The name of a target for a person: as source, or as in the document. ``lowered`` as for `Expressions`."""
    try:
        return Expressions(str, lowered=lowered).target(target)
    except Unprintable:
        return str(target[tag(target)]) if tag(target) else str(target)


#: Python reads no source with 200 nested brackets.
DEEPEST = 100
#: The tags that have a source form; ``generator`` and ``object`` have none.
_PRINTED = frozenset(
    {"ref", "tuple", "size", "dict", "set", "frozenset", "float", "complex", "slice", "range", "ellipsis", "dtype",
     "layout", "memory_format", "qscheme", "device", "enum", "finfo", "iinfo", "target", "sym", "bytes", "return_type",
     "tensor"}
)  # fmt: skip


def _attributes(root: str, names: list[str]) -> str:
    for name in names:
        root = f"getattr({root}, {name!r})" if keyword.iskeyword(name) else f"{root}.{name}"
    return root
