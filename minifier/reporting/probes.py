"""Candidates that differ from a minimal case in one thing, for `minifier.reporting.explain`.

A `Probe` is such a candidate with words that name the change. This module only makes them. `explain` asks about them,
and makes the probes of sizes itself, because each of those depends on the answers before it. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...repro_templates.source.elements import COMPLEX, FLOATS, INTEGERS
from ...repro_templates.source.expressions import Unprintable, shown_target
from ...repro_templates.source.function import is_lowered, print_graph
from ...store.document.case import Blobs, Case, Graph, Node, TensorSpec, Value, refs, tag
from ...store.document.names import UnknownName, check_target
from ...store.document.strides import contiguous
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import renamed
from ..candidate.patch import apply
from ..candidate.rewriting import Omit, inside
from ..candidate.trace import Trace
from ..passes.arguments import omissions, parameter
from ..passes.dimensions import hinted, renumbered
from ..passes.dtypes import retyped
from ..reducer.history import text, values
from .features import DEFAULT, LEFT_OUT, Aspect, change
from .remake import cast, plain, relaid, resize

#: The most nodes whose arguments and operators are varied, and the most arguments.
MOST_NODES, MOST_ARGUMENTS = 4, 8
#: The most arguments that are given although the calls leave them out.
MOST_DEFAULTS = 6
_DTYPES = {
    "float": ("float32", "float64", "float16", "bfloat16"),
    "int": ("int64", "int32", "uint8", "float32"),
    "bool": ("uint8", "float32"),
    "complex": ("complex64", "complex128"),
}
#: Operators that take the same arguments. Similar ones stand side by side.
_FAMILIES = (
    ("sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "asinh", "asin", "acos", "atanh", "acosh"),
    ("relu", "sigmoid", "neg", "abs", "exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "square",
     "erf", "erfinv", "lgamma", "digamma", "floor", "ceil", "round", "trunc", "sign", "frac"),
    ("add", "sub", "mul", "div", "true_divide", "maximum", "minimum", "pow", "atan2", "fmod", "remainder",
     "floor_divide"),
    ("eq", "ne", "lt", "le", "gt", "ge"),
    ("sum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp"),
    ("any", "all"),
    ("argmax", "argmin"),
    ("cumsum", "cumprod"),
    ("matmul", "mm", "bmm"),
)  # fmt: skip


#: Values that are tried in integers, and the fewest elements of which some are zeros and some are ones.
TWOS, RANDOM_BITS, MANY_RANDOM = "all 2", "random zeros and ones", 16
#: Numbers from this one on count as large.
LARGE = 1000.0

#: The index of a tensor, and of one of its dimensions.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """``case`` is the minimal case with ``name`` changed from ``now`` to ``value``. ``blobs`` has the new storages.

    Of the probes that pass, the one with the smallest ``distance`` is shown. ``place`` is the same for the same change
    in each case of one reduction: the name of a node and of a parameter.
    """

    aspect: Aspect
    name: str
    now: str
    value: str
    case: Case
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    distance: int = 0
    place: tuple[str, ...] = ()

    @property
    def is_omission(self) -> bool:
        return self.value == LEFT_OUT

    def words(self) -> str:
        return change(self.aspect, self.name, self.now, self.value)


class Names:
    """The names of the tensors of a case: inputs as in the printed script, attributes by their path.

    ``symbols`` has the inputs that are symbolic sizes, each with its name and its number.
    """

    def __init__(self, case: Case) -> None:
        try:
            printed: Sequence[str] = print_graph(case).parameters
        except Unprintable:
            printed = [node.name for node in case.graph.placeholders]
        self.of: dict[int, str] = {}
        self.symbols: list[tuple[str, int]] = []
        for name, value in zip(printed, case.inputs, strict=True):
            if tag(value) == "tensor":
                self.of.setdefault(value["tensor"], name)
            elif tag(value) == "sym" and type(value["sym"].get("hint")) is int:
                self.symbols.append((name, value["sym"]["hint"]))
        for path, attr in case.graph.attrs.items():
            if "tensor" in attr:
                self.of.setdefault(attr["tensor"], path)

    def all(self, tensors: Sequence[int]) -> str:
        return ", ".join(self.of[i] for i in tensors)


def as_printed(case: Case) -> Case:
    """``case`` with its inputs named as in the printed script."""
    try:
        printed = print_graph(case).parameters
    except Unprintable:
        return case
    names = dict(zip((n.name for n in case.graph.placeholders), printed, strict=True))
    taken = {n.name for n in case.graph.nodes if n.is_compute}
    names = {old: new for old, new in names.items() if new not in taken}
    return replace(case, graph=renamed(case.graph, names))


def settings(case: Case) -> Iterator[Probe]:
    """Each setting with its default value, and ``requires_grad`` where no tensor has it."""
    yield from (replace(probe, place=(probe.name,)) for probe in _settings(case))


def _settings(case: Case) -> Iterator[Probe]:
    for name, value in case.context.items():
        if name != "rng":
            less = {k: v for k, v in case.context.items() if k != name}
            yield Probe(Aspect.SETTING, name, text(value), DEFAULT, replace(case, context=less), distance=35)
    for name in ("dynamic", "mode"):
        if name in case.backend:
            fewer = {k: v for k, v in case.backend.items() if k != name}
            yield Probe(
                Aspect.SETTING, name, text(case.backend[name]), DEFAULT, replace(case, backend=fewer), distance=35
            )
    items = (case.backend.get("options") or {}).get("dict", [])
    for item in items:
        left = {"dict": [other for other in items if other is not item]}
        backend = {k: v for k, v in {**case.backend, "options": left}.items() if k != "options" or left["dict"]}
        name = f"option {text(item[0])}"
        yield Probe(Aspect.SETTING, name, text(item[1]), DEFAULT, replace(case, backend=backend), distance=35)
    if case.backward:
        yield Probe(Aspect.SETTING, "backward pass", "yes", "no", replace(case, backward=False), distance=35)
    if case.calls > 1:
        yield Probe(Aspect.SETTING, "calls", str(case.calls), "1", replace(case, calls=1), distance=35)
    floats = [i for i in Names(case).of if case.tensors[i].dtype in FLOATS]
    if floats and not any(spec.requires_grad for spec in case.tensors):
        asking = with_tensors(case, {i: replace(case.tensors[i], requires_grad=True) for i in floats})
        yield Probe(Aspect.SETTING, "requires_grad", "False", "True", asking, distance=35)


def value_sets(case: Case) -> Iterator[Probe]:
    """Other values, first for all tensors at once, then for single tensors."""
    names = Names(case).of
    able = [i for i in names if plain(case.tensors[i]) and case.tensors[i].numel]
    groups = [able] if len(able) < 2 else [able, *([i] for i in able[:3])]
    for group in groups if able else ():
        name = "values" if group == able else f"values of {names[group[0]]}"
        now = _present(case, group)
        for label in _labels([case.tensors[i] for i in group]):
            changed = {i: replace(_filled(case.tensors[i], label), offset=0) for i in group}
            if any(values(changed[i]) != values(case.tensors[i]) for i in group):
                yield Probe(Aspect.VALUES, name, now, label, with_tensors(case, changed), distance=20)


def _labels(specs: Sequence[TensorSpec]) -> Iterator[str]:
    """The values to try in all of ``specs``. Integers are small, because they may be indices. So few of them are
    random zeros and ones that all may be zeros: another integer takes their place."""
    yield from ("zeros", "ones")
    if any(spec.dtype in FLOATS | COMPLEX for spec in specs):
        yield "random numbers"
        return
    if any(spec.dtype in INTEGERS for spec in specs):
        yield TWOS
    if all(spec.numel >= MANY_RANDOM for spec in specs):
        yield RANDOM_BITS


def _present(case: Case, tensors: Sequence[int]) -> str:
    """The present values of tensors, in a few words."""
    found = list(dict.fromkeys(values(case.tensors[i]) for i in tensors))
    return found[0] if len(found) == 1 else "what they are"


def size_of_values(case: Case) -> float | None:
    """The number that fills all floating tensors. None where there is no such number, or it is small."""
    made = [case.tensors[i].init for i in Names(case).of if case.tensors[i].dtype in FLOATS]
    numbers = {init["value"] for init in made if init is not None and type(init.get("value")) is float}
    whole = len(numbers) == 1 and all(init is not None and init.get("fn") == "full" for init in made)
    (number, *_) = numbers or {0.0}
    return number if whole and abs(number) >= LARGE else None


def of_size(case: Case, number: float) -> Probe:
    """The case with all floating tensors filled with ``number``."""
    names = Names(case).of
    able = [i for i in names if plain(case.tensors[i]) and case.tensors[i].numel]
    changed = {
        i: replace(spec, init={"fn": "full", "value": number})
        for i in names
        if (spec := case.tensors[i]).dtype in FLOATS
    }
    now = _present(case, able)
    return Probe(Aspect.VALUES, "values", now, f"all {number:g}", with_tensors(case, changed), distance=15)


def _filled(spec: TensorSpec, label: str) -> TensorSpec:
    if any(step == 0 and size > 1 for size, step in zip(spec.shape, spec.stride, strict=True)):
        spec = replace(spec, stride=contiguous(spec.shape))
    if label in ("random numbers", RANDOM_BITS):
        whole = spec.dtype not in FLOATS | COMPLEX
        init: dict[str, Any] = {"fn": "randint", "low": 0, "high": 2} if whole else {"fn": "randn"}
    else:
        number = {"zeros": 0, "ones": 1, TWOS: 2}[label]
        init = {"fn": "full", "value": bool(number) if spec.dtype == "bool" else number}
        if spec.dtype in FLOATS:
            init["value"] = float(number)
        if spec.dtype in COMPLEX:
            init["value"] = {"complex": [float(number), 0.0]}
    return replace(spec, storage=None, init=init)


def dtypes(case: Case, blobs: Blobs) -> Iterator[Probe]:
    """Each dtype replaced by others of its kind, in the tensors and in the arguments of the graph."""
    names = Names(case)
    for dtype in list(dict.fromkeys(case.tensors[i].dtype for i in names.of))[:3]:
        kind = "float" if dtype in FLOATS else "int" if dtype in INTEGERS else "bool" if dtype == "bool" else "complex"
        group = [i for i in names.of if case.tensors[i].dtype == dtype]
        for other in _DTYPES[kind] if dtype in FLOATS | INTEGERS | COMPLEX | {"bool"} else ():
            made = {i: cast(case.tensors[i], other, blobs) for i in group}
            if other == dtype or any(m is None for m in made.values()):
                continue
            changed = with_tensors(case, {i: m[0] for i, m in made.items() if m is not None})
            graph = _mapped(changed.graph, partial(retyped, change={dtype: other}))
            new = {k: v for m in made.values() if m is not None for k, v in m[1].items()}
            name, candidate = f"dtype of {names.all(group)}", replace(changed, graph=graph)
            yield Probe(Aspect.DTYPE, name, dtype, other, candidate, new, distance=30)


def layouts(case: Case, blobs: Blobs) -> Iterator[Probe]:
    """Each contiguous tensor transposed in memory, every other tensor made contiguous."""
    for i, name in Names(case).of.items():
        spec = case.tensors[i]
        dense = contiguous(spec.shape)
        if spec.stride != dense or spec.offset:
            other, label = dense, "contiguous"
        else:
            other, label = tuple(reversed(contiguous(tuple(reversed(spec.shape))))), "transposed"
        made = relaid(spec, other, blobs) if other != spec.stride or spec.offset else None
        if made is not None and sum(size > 1 for size in spec.shape) > (label == "transposed"):
            now = "contiguous" if label == "transposed" else f"strides {spec.stride}, offset {spec.offset}"
            changed = with_tensors(case, {i: made[0]})
            yield Probe(Aspect.LAYOUT, f"layout of {name}", now, label, changed, made[1], distance=25)


def arguments(case: Case, trace: Trace | None = None) -> Iterator[Probe]:
    """Each optional argument left out, and each number or flag among the arguments changed a little.

    ``trace`` has the signatures of what the nodes call. Without one, only keyword arguments are known to be optional.
    """
    view = GraphView(case, trace or Trace({}, (), {}))
    left, calls = MOST_ARGUMENTS, _calls(case)
    omitted = {
        (edit.node, edit.argument): patch
        for patch in omissions(view)
        for edit in patch.edits
        if isinstance(edit, Omit) and not edit.path
    }
    for node in case.graph.compute[:MOST_NODES]:
        places: list[tuple[int | str, Value]] = [*enumerate(node.args), *node.kwargs.items()]
        for place, value in places:
            parameter = _parameter(view, node, place)
            default = view.trace.defaults.get(node.name, {}).get(parameter, _NOTHING)
            others = [] if _refers(value) else [other for other in _nearby(value) if other != default]
            without = apply(view, omitted[node.name, place]) if (node.name, place) in omitted else None
            omittable = without is not None and value is not None and value != default and not _refers(value)
            if not (others or omittable) or left == 0:
                continue
            left -= 1
            name = f"argument {parameter} of {calls[node.name]}"
            made: list[tuple[str, Case | None]] = [(LEFT_OUT, without)] if omittable else []
            made += [(text(other), with_node(case, node.name, _given(node, place, other))) for other in others]
            for distance, (label, changed) in enumerate(made[:2]):
                if changed is not None:
                    yield Probe(
                        Aspect.ARGUMENT, name, text(value), label, changed,
                        distance=10 + distance, place=(node.name, parameter),
                    )  # fmt: skip


def defaults(case: Case, trace: Trace | None) -> Iterator[Probe]:
    """Each flag, number or list that a call leaves out given with another value than its default."""
    left, calls = MOST_DEFAULTS, _calls(case)
    if trace is None:
        return
    for node in case.graph.compute[:MOST_NODES]:
        signature = trace.signatures.get(node.name, ())
        given = {name for name, _ in signature[: len(node.args)]} | node.kwargs.keys()
        numbers = [value for value in (*node.args, *node.kwargs.values()) if type(value) is int or _is_numbers(value)]
        for key, default in trace.defaults.get(node.name, {}).items():
            others = [] if key in given or key in _NOT_GIVEN else list(_instead(default, numbers))
            if not others or left == 0 or key not in {name for name, _ in signature}:
                continue
            left -= 1
            name = f"argument {key} of {calls[node.name]}"
            changed = with_node(case, node.name, replace(node, kwargs={**node.kwargs, key: others[0]}))
            place = node.name, key
            yield Probe(Aspect.DEFAULT, name, text(default), text(others[0]), changed, distance=50, place=place)


def _instead(default: Value, given: Sequence[Value]) -> Iterator[Value]:
    """Values to give instead of ``default``. An empty list stands for one of the numbers that are ``given``."""
    if default == []:
        sizes = [[value] if type(value) is int else inside(value) or [] for value in given]
        for length in dict.fromkeys(map(len, sizes)):
            yield from (near for n in (1, 2) if (near := [n] * length) not in sizes)
    elif type(default) in (bool, int, float) or _is_numbers(default):
        yield from _nearby(default)


def _is_numbers(value: Value) -> bool:
    items = inside(value)
    return bool(items) and all(type(item) is int for item in items or ())


def _parameter(view: GraphView, node: Node, place: int | str) -> str:
    """The name of the parameter that takes an argument; its position where that is not known."""
    return parameter(view, node, place) or str(place)


_NOTHING = object()
#: Parameters that say where a result lies and what it is.
_NOT_GIVEN = frozenset(
    {"out", "generator", "dtype", "layout", "device", "pin_memory", "memory_format", "names", "inplace"}
)
#: Larger numbers are not changed by one: that makes no difference to most operators.
_CLOSE = 64


def _given(node: Node, place: int | str, value: Any) -> Node:
    if isinstance(place, int):
        return replace(node, args=(*node.args[:place], value, *node.args[place + 1 :]))
    kwargs = {k: value if k == place else v for k, v in node.kwargs.items()}
    return replace(node, kwargs={k: v for k, v in kwargs.items() if v is not _NOTHING})


def _nearby(value: Value) -> Iterator[Value]:
    if type(value) is bool:
        yield not value
    elif type(value) is int:
        yield from (value + 1, value - 1) if abs(value) <= _CLOSE else (1, value // 2)
    elif type(value) is float:
        yield from (v for v in (value + 1.0, 0.0) if v != value)
    elif type(value) is list and value and all(type(item) is int for item in value):
        yield [item + 1 for item in value]
        if any(item != 1 for item in value):
            yield [1] * len(value)
    elif tag(value) in ("tuple", "size"):
        kind = str(tag(value))
        yield from ({kind: near} for near in _nearby(value[kind]))
    elif tag(value) == "float":
        yield 1.0


def _refers(value: Value) -> bool:
    return next(refs(value), None) is not None


def operators(case: Case) -> Iterator[Probe]:
    """Each operator replaced by the two most similar operators that take the same arguments."""
    calls = _calls(case)
    for node in case.graph.compute[:MOST_NODES]:
        called = _plain_name(node)
        for family in _FAMILIES:
            if called not in family:
                continue
            at = family.index(called)
            near = sorted((other for other in family if other != called), key=lambda o: abs(family.index(o) - at))
            found = [n for other in near if (n := _calling(node, called, other)) is not None][:2]
            for rank, other in enumerate(found):
                now, label = (_called(n, is_lowered(case)) for n in (node, other))
                changed = with_node(case, node.name, other)
                yield Probe(Aspect.OPERATOR, f"operator {calls[node.name]}", now, label, changed, distance=40 + rank)


def _plain_name(node: Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    name = str(node.target.get(tag(node.target) or "", ""))
    return name.partition("::")[2].partition(".")[0] if "::" in name else name.rpartition(".")[2]


def _calling(node: Node, called: str, other: str) -> Node | None:
    """``node`` with another operator. None where no operator has that name."""
    if node.op == "call_method":
        target: Value = other
    else:
        kind = tag(node.target) or ""
        before, _, after = str(node.target[kind]).rpartition(called)
        target = {kind: f"{before}{other}{after}"}
        try:
            check_target(target)
        except UnknownName:
            return None
    return replace(node, target=target)


def _calls(case: Case) -> dict[str, str]:
    """Return the called function of each node, as the script prints it. Repeated calls are numbered."""
    labels = [_called(node, is_lowered(case)) for node in case.graph.compute]
    return {
        node.name: called if labels.count(called) == 1 else f"{called} (call {labels[: i + 1].count(called)})"
        for i, (node, called) in enumerate(zip(case.graph.compute, labels, strict=True))
    }


def _called(node: Node, lowered: bool) -> str:
    return shown_target(node.target, lowered=lowered) if node.op == "call_function" else str(node.target)


def resized(case: Case, places: Sequence[Place], size: int, follow: str, blobs: Blobs) -> tuple[Case, Blobs] | None:
    """``case`` with the dimensions ``places`` resized to ``size``, and the new storages. All had one size before.

    ``follow`` says which numbers of the graph are changed with it, if they equal the old size: those in ``lists``,
    ``all``, or ``none``. Symbolic sizes follow always. None where a tensor cannot be resized.
    """
    old = case.tensors[places[0][0]].shape[places[0][1]]
    changed: dict[int, TensorSpec] = {}
    new: dict[str, bytes] = {}
    for i in dict.fromkeys(i for i, _ in places):
        shape = tuple(size if (i, d) in places else s for d, s in enumerate(case.tensors[i].shape))
        made = resize(case.tensors[i], shape, blobs)
        if made is None:
            return None
        changed[i] = made[0]
        new |= made[1]
    case = with_tensors(case, changed)
    case = replace(case, inputs=tuple(hinted(value, {old: size}) for value in case.inputs))
    if follow != "none":
        graph = _mapped(case.graph, partial(renumbered, sizes={old: size}, inside=follow == "all"))
        case = replace(case, graph=graph)
    return case, new


def with_tensors(case: Case, changed: Mapping[int, TensorSpec]) -> Case:
    """``case`` with some tensors replaced, by index."""
    tensors = tuple(changed.get(i, spec) for i, spec in enumerate(case.tensors))
    return replace(case, tensors=tensors)


def with_node(case: Case, name: str, node: Node) -> Case:
    nodes = tuple(node if n.name == name else n for n in case.graph.nodes)
    return replace(case, graph=replace(case.graph, nodes=nodes))


def _mapped(graph: Graph, edit: Callable[[Value], Value]) -> Graph:
    """``graph`` with ``edit`` applied to every argument, also in subgraphs."""
    return graph.map_nodes(lambda node: node.map_values(edit) if node.is_compute else node)
