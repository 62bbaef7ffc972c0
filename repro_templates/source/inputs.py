"""A case's tensors as source: exact literals, seeded generators, or bytes from a file beside the script.

What is printed rebuilds the very same tensors: dtype, bits, strides, storage offset, sharing, and whether they are
leaves, parameters, lazily conjugated or negated. Strides read as the call that makes them (`.t()`, `.expand(...)`,
``memory_format=torch.channels_last``) where there is one. A tensor whose `TensorSpec.init` names a generator prints
as the call `fxminify.store.live.build` makes: one ``torch.manual_seed(0)``, then draws in the order of the inputs.

Large tensors that are neither constant nor regular have no place in a script: `NeedsData`, unless ``embed`` puts
their storages into a safetensors file that the script loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from ...store.document.case import Blobs, Case, TensorSpec, Value, tag
from .elements import is_numeric, numbers, strided
from .expressions import Unprintable, dtype, string
from .layout import Call, Statement
from .literals import Literals, itemsize, sizes
from .naming import Scope
from .recipes import recipes as recipes
from .strides import contiguous, restride, view

SIDE_FILE = "repro.safetensors"


class NeedsData(Unprintable):
    """Tensors too large for a literal that no generator replaces: embed the data, or find them a recipe.

    ``names`` are the tensors' names in the script.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"the values of {', '.join(names)} do not fit into a script; embed them in a file beside it")
        self.names = tuple(names)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Statements that make the inputs, and the arguments to call the graph's function with.

    ``constants`` make the tensors that the graph holds, after the inputs. ``seeded`` tells that numbers are drawn,
    ``seeded_constants`` that some are for those; ``data`` is the content of the file to write beside the script.
    """

    statements: tuple[Statement, ...]
    arguments: tuple[str, ...]
    constants: tuple[Statement, ...] = ()
    imports: tuple[str, ...] = ()
    seeded: bool = False
    seeded_constants: bool = False
    data: bytes | None = None


def print_inputs(
    case: Case,
    blobs: Blobs,
    names: Sequence[str],
    *,
    constants: Mapping[str, int] = MappingProxyType({}),
    embed: bool = False,
    default_dtype: str = "float32",
    reserved: Collection[str] = (),
) -> Inputs:
    """Source for every input of ``case``; ``names`` has one name per input.

    ``constants`` maps module-level names to tensors the graph holds; they are made last, in the same stream of
    random numbers. Raises `NeedsData` (unless ``embed``) and `Unprintable`.
    """
    printer = _Printer(case, blobs, {*names, *reserved}, constants, embed, default_dtype)
    arguments = [printer.input(name, value) for name, value in zip(names, case.inputs, strict=True)]
    statements, imports = list(printer.statements), printer.literals.expressions.imports
    seeded, printer.literals.seeded = printer.literals.seeded, False
    for name, index in sorted(constants.items(), key=lambda item: item[1]):
        printer.tensor(name, index)
    if printer.missing:
        raise NeedsData(printer.missing)
    held = printer.statements[len(statements) :]
    if seeded or printer.literals.seeded:
        (statements if seeded else held).insert(0, Statement("torch.manual_seed(0)"))
    data = None
    if printer.embedded:
        imports |= {"import pathlib", "from safetensors.torch import load_file"}
        load = Call("load_file", (f"pathlib.Path(__file__).with_name({string(SIDE_FILE)})",))
        statements.insert(0, Statement(load, printer.side))
        data = _safetensors(printer.embedded)
    return Inputs(
        tuple(statements),
        tuple(arguments),
        tuple(held),
        tuple(sorted(imports)),
        seeded or printer.literals.seeded,
        printer.literals.seeded,
        data,
    )


class _Printer:
    def __init__(
        self,
        case: Case,
        blobs: Blobs,
        names: Collection[str],
        constants: Mapping[str, int],
        embed: bool,
        default_dtype: str,
    ) -> None:
        self.case = case
        self.blobs = blobs
        self.embed = embed
        self.scope = Scope(frozenset(names) | frozenset(constants))
        self.literals = Literals(default_dtype)
        self.statements: list[Statement] = []
        self.missing: list[str] = []
        self.embedded: dict[str, bytes] = {}
        self.side = self.scope.fresh("data")
        self.made: dict[int, str] = {}
        self.bases: dict[str, tuple[str, str]] = {}
        used = {*_tensors(list(case.inputs)), *constants.values()}
        self.shared = Counter(case.tensors[i].storage for i in used)

    def input(self, name: str, value: Value) -> str:
        """Print one input, the expression that stands for it is returned."""
        if tag(value) == "tensor":
            return self.tensor(name, value["tensor"])
        if tag(value) == "generator":
            raise Unprintable("a random generator is no printable input")
        if isinstance(value, list) or tag(value) == "tuple":
            items = value if isinstance(value, list) else value["tuple"]
            texts = [self.input(self.scope.fresh(name), item) for item in items]
            comma = "," if len(texts) == 1 and not isinstance(value, list) else ""
            return f"[{', '.join(texts)}]" if isinstance(value, list) else f"({', '.join(texts)}{comma})"
        return self.literals.expressions.value(value)

    def tensor(self, name: str, index: int) -> str:
        """Print ``case.tensors[index]`` as ``name``, once; the name it has is returned."""
        if index in self.made:
            return self.made[index]
        spec = self.case.tensors[index]
        gradient = spec.parts[-1] if spec.extra == {"grad": True} and spec.parts else None
        if spec.layout != "strided" or (gradient is None and (spec.parts or spec.extra)):
            raise Unprintable(
                f"{name} is a {spec.layout} tensor with {len(spec.parts)} parts, which has no source form"
            )
        expression = self.expression(name, spec)
        if spec.inference:
            self.statements.append(Statement("with torch.inference_mode():"))
        self.made[index] = name
        self.statements.append(Statement(expression, name, depth=int(spec.inference)))
        if gradient is not None:
            made = self.expression(name, self.case.tensors[gradient])
            self.statements.append(Statement(made, f"{name}.grad"))
        return name

    def expression(self, name: str, spec: TensorSpec) -> Call | str:
        """A tensor from its values outward: strides, lazy bits, autograd state."""
        grow = ".requires_grad_().clone()" if spec.requires_grad and not spec.leaf else ""
        made: Call | str
        if spec.init is not None:
            made = self.generated(spec, grow)
        elif spec.storage is None:
            made = self.literals.empty(spec)
        elif self.shared[spec.storage] > 1:
            made = self.view_of_shared(spec)
        else:
            made = self.from_storage(name, spec, grow)
        if spec.conj:
            made = _then(made, ".conj()")
        if spec.neg:
            made = Call("torch._neg_view", (str(made),))
        if spec.parameter:
            return Call("torch.nn.Parameter", (str(made), *(() if spec.requires_grad else ("requires_grad=False",))))
        return _then(made, ".requires_grad_()") if spec.requires_grad and spec.leaf else made

    def generated(self, spec: TensorSpec, grow: str) -> Call:
        """The tensor that ``spec.init`` describes, with its strides."""
        if spec.init is not None and spec.init.get("fn") == "full":
            span = 1 + sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
            shape, tail = view(spec.shape, spec.stride) or ((span,), as_strided(spec))
            return self.literals.generated(replace(spec, shape=shape, stride=contiguous(shape))).then(grow + tail)
        made = self.literals.generated(spec)
        if spec.stride == contiguous(spec.shape):
            return made.then(grow)
        if (laid_out := restride(spec.shape, spec.stride)) is not None:
            return made.then(laid_out + grow)
        # A copy of what needs a gradient is no leaf either, and keeps strides that `clone` would not.
        source = made.then(".requires_grad_()") if grow else made
        return self.literals.empty(spec).then(f".copy_({source})")

    def view_of_shared(self, spec: TensorSpec) -> str:
        """A view of a storage that several tensors lie in; the storage gets a name of its own."""
        key = str(spec.storage)
        if key not in self.bases:
            count = len(self.blobs[key]) // itemsize(spec.dtype)
            whole = TensorSpec(spec.dtype, (count,), (1,), storage=key, device=spec.device)
            derived = spec.requires_grad and not spec.leaf
            base = self.scope.fresh("storage")
            self.bases[key] = (base, spec.dtype)
            values = self.from_storage(base, whole, ".requires_grad_().clone()" if derived else "")
            self.statements.append(Statement(values, base))
        base, kind = self.bases[key]
        if kind != spec.dtype:
            base = f"{base}.view({dtype(spec.dtype)})"
        if spec.shape and spec.stride == contiguous(spec.shape):
            part = f"{base}[{spec.offset}:{spec.offset + spec.numel}]"
            return part if len(spec.shape) == 1 else f"{part}.view({', '.join(sizes(spec.shape))})"
        return base + as_strided(spec)

    def from_storage(self, name: str, spec: TensorSpec, grow: str) -> Call | str:
        """The tensor's values in the order they lie in memory, then the view that gives it its shape and strides."""
        data = self.blobs[str(spec.storage)]
        count = len(data) // itemsize(spec.dtype)
        laid_out = view(spec.shape, spec.stride) if spec.offset == 0 else None
        shape, tail = laid_out or ((count,), as_strided(spec))
        if not is_numeric(spec.dtype):
            raw = self.literals.tensor(numbers("uint8", data), "uint8", spec.device)
            made = str(raw.then(f".view({dtype(spec.dtype)})")) if raw else self.stored(name, spec, data)
            return made + grow + as_strided(spec)
        values = strided(numbers(spec.dtype, data), shape, contiguous(shape))
        literal = self.literals.tensor(values, spec.dtype, spec.device)
        if literal is not None:
            return literal.then(grow + tail)
        used = data[: prod(shape) * itemsize(spec.dtype)]
        shaped = "" if len(shape) == 1 else f".view({', '.join(sizes(shape))})"
        return self.stored(name, spec, used) + shaped + grow + tail

    def stored(self, name: str, spec: TensorSpec, data: bytes) -> str:
        """The tensor's storage as an entry of the file beside the script."""
        if not self.embed:
            self.missing.append(name)
            return "None"
        self.embedded[name] = data
        device = "" if spec.device == "cpu" else f".to({string(spec.device)})"
        return f"{self.side}[{string(name)}].clone().view({dtype(spec.dtype)}){device}"


def _then(made: Call | str, tail: str) -> Call | str:
    return made.then(tail) if isinstance(made, Call) else made + tail


def as_strided(spec: TensorSpec) -> str:
    """The view of a flat storage that has the shape, strides and offset of ``spec``."""
    offset = f", {spec.offset}" if spec.offset else ""
    if (spec.shape, spec.stride) == ((), ()):
        return f"[{spec.offset}]"
    return f".as_strided({spec.shape!r}, {spec.stride!r}{offset})"


def _tensors(value: Value) -> Iterator[int]:
    """Indices of the tensors in an input."""
    if isinstance(value, list):
        for item in value:
            yield from _tensors(item)
    elif (name := tag(value)) == "tensor":
        yield value["tensor"]
    elif name == "tuple":
        yield from _tensors(value["tuple"])


def _safetensors(entries: Mapping[str, bytes]) -> bytes:
    """Raw storages as one-dimensional uint8 entries of a safetensors file."""
    import numpy as np
    from safetensors.numpy import save

    return save({name: np.frombuffer(data, dtype=np.uint8) for name, data in entries.items()})
