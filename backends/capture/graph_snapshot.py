"""A snapshot of the graph that a backend received. Neither the backend nor the program can change it afterwards.

A snapshot is taken before every compile, so it must be cheap. The graph is copied node by node. Its attributes and
parameters are kept by reference. Inputs are copied, storage by storage, up to a budget. Only when something failed,
`GraphSnapshot.case` makes data of it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ...store.document.case import Blobs, Case, Json, TensorSpec, Value, tag, tensors_in
from ...store.document.storages import Joined
from ...store.live import modes, subclasses
from ...store.live.encode import Encoder, Unsupported, encode, user_line
from ...store.live.snapshot import EVERYTHING, Digests, Keep
from ..provenance import libraries, tensor_classes
from ..provenance.spec import BackendSpec
from ..running import ambient, collectives, devices
from ..running.execution import copy_inputs, storage_of, tensors, version_of

#: Bytes of inputs that are copied before a compile or a first call; parameters never are.
INPUT_BUDGET = 256 << 20
#: Parts of the names of operations that may draw random numbers. A false hit costs five kilobytes.
_RANDOM = (
    "rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "rrelu", "fractional_max_pool", "gumbel",
    "exponential_", "uniform", "cauchy", "geometric", "scaled_dot_product", "multi_head_attention", "rng",
)  # fmt: skip
_DEVICES_OF_TORCH = frozenset({"cpu", "cuda", "meta", "mkldnn", "mps", "xpu"})
_FROM_STORAGE = ("as_strided", "set_.", "storage", "resize_")


@dataclass(slots=True)
class KeptInputs:
    """Kept inputs: copies, or references with the version that the tensor had."""

    values: list[Any]
    versions: list[int | None]

    @classmethod
    def keep(cls, values: Sequence[Any], *, whole: bool = False, only: Sequence[int] | None = None) -> KeptInputs:
        """Copy the tensors among ``values`` that are no parameters, or only those at ``only``, up to the budget.

        A tensor that wraps others is never copied.
        """
        chosen: dict[int, list[int]] = {}
        held: set[int] = set()
        for index, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                storage = storage_of(value)
                chosen.setdefault(storage, []).append(index)
                by_reference = isinstance(value, torch.nn.Parameter) if only is None else index not in only
                if by_reference or _of_a_subclass(value):
                    held.add(storage)
        budget, copied = INPUT_BUDGET, list[int]()
        for storage, indices in chosen.items():
            size = sum(_bytes(values[i]) for i in indices)
            if storage not in held and size <= budget:
                budget -= size
                copied += indices
        kept = list(values)
        versions = [version_of(v) for v in values]
        with modes.undisturbed():
            for index, value in zip(copied, copy_inputs([values[i] for i in copied], whole=whole), strict=True):
                kept[index], versions[index] = value, None
        return cls(kept, versions)

    @property
    def changed(self) -> list[int]:
        """Indices of the inputs that were overwritten since and whose old values are lost."""
        return [
            i for i, (v, old) in enumerate(zip(self.values, self.versions, strict=True)) if old is not None
            and version_of(v) != old
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Taken:
    """A case and its storages, or no case.

    ``reason`` says why the case is missing, or why it may not run elsewhere. ``left_out`` names the tensors whose
    values were not kept, by the inputs and attributes that hold them, the largest first.
    """

    case: Case | None = None
    blobs: Blobs = field(default_factory=dict)
    reason: str = ""
    left_out: tuple[str, ...] = ()


@dataclass
class GraphSnapshot:
    """The arguments of one call of a backend.

    ``symbols`` are the symbolic inputs by position, ``compile_id`` is Dynamo's number of the frame. ``number`` counts
    the graphs of this process, ``shapes_before`` lists the shapes of the first calls. ``within`` is the backend that
    gave this graph, a piece of its own, to another one.
    """

    graph: fx.Graph
    attributes: dict[str, Any]
    training: bool
    inputs: KeptInputs | None
    context: Json
    rng: dict[str, torch.Tensor]
    compile_id: str
    symbols: dict[int, Json] = field(default_factory=dict)
    random: bool = False
    whole: bool = False
    number: int = 0
    shapes_before: list[str] = field(default_factory=list)
    earlier: list[list[Any]] = field(default_factory=list)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False
    within: str = ""
    _text: str | None = None

    @classmethod
    def take(cls, gm: fx.GraphModule, inputs: Sequence[Any], *, compile_id: str = "") -> GraphSnapshot:
        """Snapshot ``gm`` and its example inputs."""
        context = ambient.snapshot()
        with modes.undisturbed():
            names = [str(n.target) for m in gm.modules() if isinstance(m, fx.GraphModule) for n in m.graph.nodes]
            whole = any(word in name for name in names for word in _FROM_STORAGE)
            graph = _copy(gm.graph)
            paths = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
            encoder = Encoder()
            symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
            return cls(
                graph=graph,
                attributes={path: _private(gm, path) for path in dict.fromkeys(paths)},
                training=gm.training,
                inputs=KeptInputs.keep(inputs, whole=whole),
                context=context,
                rng=devices.generators(devices.used(inputs)),
                compile_id=compile_id,
                symbols={i: s for i, v in enumerate(inputs) if isinstance(v, symbolic) and (s := _symbol(encoder, v))},
                random=any(word in name for name in names for word in _RANDOM),
                whole=whole,
            )

    def module(self) -> fx.GraphModule:
        """The graph as a module of its own; attributes are shared with the graph that the backend received."""
        module = fx.GraphModule(self.attributes, _copy(self.graph))
        module.training = self.training
        return module

    def operations(self) -> int:
        """The number of compute nodes."""
        return sum(node.op not in ("placeholder", "get_attr", "output") for node in self.graph.nodes)

    @property
    def frame(self) -> str:
        """``file:line function`` of the user's code where the graph begins, without its directory."""
        return next(filter(None, (user_line(node.meta) for node in self.graph.nodes)), "")

    def place(self, name: str) -> str:
        """``name``, such as ``output 0``, with the operator and the line of the user's code that make that output."""
        kind, _, index = name.rpartition(" ")
        node = tree_leaves(self.graph.output_node().args[0])[int(index)] if kind == "output" else None
        if not isinstance(node, fx.Node) or node.op == "placeholder":
            return name
        target = getattr(node.target, "__name__", str(node.target))
        return f"{name} ({', '.join(filter(None, (target, user_line(node.meta))))})"

    def text(self) -> str:
        """The code of the graph, which identifies it."""
        if self._text is None:
            with modes.undisturbed():
                self._text = str(self.graph)
        return self._text

    def case(
        self,
        inputs: Sequence[Any],
        rng: dict[str, torch.Tensor],
        spec: BackendSpec,
        *,
        backward: bool = False,
        compare: bool = False,
        calls: int = 1,
        keep: Keep = EVERYTHING,
        digests: Digests | None = None,
    ) -> Taken:
        """The case as data. Values that ``keep`` leaves out are left out. Storages stay where they are.

        Raises `store.live.encode.Unsupported`.
        """
        with modes.undisturbed():
            module = self.module()
            classes = tensor_classes.imports_for(inputs, spec.source)
            encoded = encode(module, inputs, keep=keep, digests=digests or Digests())
            imports, problems = libraries.imports_for(operators(module))
            imports += classes
            problems = [*filter(None, [spec.problem]), *problems, *collectives.problems(module)]
            imports += device_imports({t.device.type for t in tensors(inputs)})
            context, specs, small = dict(self.context), encoded.tensors, dict[str, bytes]()
            if self.random and rng:
                encoder = Encoder()
                states = {device: encoder.tensor(state) for device, state in rng.items()}
                more, bytes_of = encoder.finish()
                context["rng"] = {device: {"tensor": len(specs) + i} for device, i in states.items()}
                specs, small = specs + more, small | bytes_of
            earlier = []
            for given in self.earlier:
                call, more, bytes_of = self._call(given, [n.name for n in encoded.graph.placeholders], len(specs))
                earlier.append(call)
                specs, small = specs + more, small | bytes_of
        values = [self._symbolic(i, v) for i, v in enumerate(encoded.inputs)]
        case = Case(
            graph=encoded.graph,
            inputs=tuple(values),
            tensors=specs,
            context=context,
            backend=spec.to_json(),
            imports=tuple(imports),
            backward=backward,
            compare=compare,
            calls=calls,
            torch=str(torch.__version__),
            earlier=tuple(earlier),
            tolerance=self.tolerance if compare else {},
            strict=self.strict and compare,
        )
        return Taken(case, Joined(small, encoded.blobs), "; ".join(problems), _holders(case, encoded.left_out))

    def _call(
        self, given: Sequence[Any], names: Sequence[str], base: int
    ) -> tuple[Json, tuple[TensorSpec, ...], dict[str, bytes]]:
        """The inputs of an earlier call by name, parameters left out; their tensors get indices from ``base`` on."""
        encoder = Encoder(clip=not self.whole)
        call = {}
        for i, (name, value) in enumerate(zip(names, given, strict=True)):
            if not isinstance(value, torch.nn.Parameter):
                encoded = self._symbolic(i, encoder.value(value))
                call[name] = {"tensor": encoded["tensor"] + base} if tag(encoded) == "tensor" else encoded
        return call, *encoder.finish()

    def _symbolic(self, index: int, value: Value) -> Value:
        """A plain number at a symbolic input becomes that symbol with this value."""
        if index in self.symbols and isinstance(value, int | float):
            return {"sym": self.symbols[index] | {"hint": value}}
        return value


def _holders(case: Case, tensors: Collection[int]) -> tuple[str, ...]:
    """The inputs and attributes that hold these ``tensors``, each with its shape and dtype, the largest first."""
    values = {n.name: value for n, value in zip(case.graph.placeholders, case.inputs, strict=True)}
    values |= {path: value for path, value in case.graph.attrs.items() if "graph" not in value}
    names = {i: name for name, value in reversed(values.items()) for i in tensors_in(value)}
    found = sorted(tensors, key=lambda i: -case.tensors[i].numel)
    specs = ((names.get(i, "a tensor"), case.tensors[i]) for i in found)
    return tuple(f"{name} {list(spec.shape)} {spec.dtype}" for name, spec in specs)


def _symbol(encoder: Encoder, value: Any) -> Json:
    """A symbolic number as data; empty for one without an expression, such as the key of a nested tensor."""
    try:
        symbol: Json = encoder.value(value)["sym"]
    except Unsupported:
        return {}
    return symbol


def device_imports(types: Iterable[str]) -> list[Json]:
    """The plug-in packages that register devices outside torch."""
    modules = [torch.get_device_module(d).__name__ for d in sorted(set(types) - _DEVICES_OF_TORCH)]
    packages = dict.fromkeys(name.partition(".")[0] for name in modules)
    return [{"module": name} for name in packages if name != "torch"]


def operators(gm: fx.GraphModule) -> list[str]:
    """The operators a graph calls, sub-graphs included, as ``ns::name.overload``."""
    found: dict[str, None] = {}
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, torch._ops.OpOverload):
                    found[node.target.name()] = None
                elif isinstance(node.target, torch._ops.OpOverloadPacket):
                    found[node.target._qualified_op_name] = None
    return list(found)


def flat(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm`` with its placeholders as arguments, and without the checks that ``torch.export`` puts before it."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in list(graph.nodes):
        if node.op == "call_module" and not node.users and type(gm.get_submodule(node.target)).__name__ == "GuardsFn":
            graph.erase_node(node)
    return fx.GraphModule(gm, graph)


def _copy(graph: fx.Graph) -> fx.Graph:
    """A copy without fake tensors, which would keep all of Dynamo's compilation alive."""
    new = copy.deepcopy(graph)
    for node in new.nodes:
        value = node.meta.get("example_value")
        kept = {k: node.meta[k] for k in ("stack_trace", "nn_module_stack") if k in node.meta}
        if isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape):
            # Some higher-order operators read ``requires_grad`` from it.
            meta = torch.empty(value.shape, dtype=value.dtype, device="meta")
            kept["example_value"] = meta.requires_grad_() if value.requires_grad else meta
        node.meta = kept
    return new


def _private(gm: torch.nn.Module, path: str) -> Any:
    """The attribute at ``path``, a sub-graph as a copy of its own."""
    found: Any = gm
    for name in path.split("."):
        found = getattr(found, name)
    if not isinstance(found, fx.GraphModule):
        return found
    inner = _copy(found.graph)
    paths = [n.target for n in inner.nodes if n.op in ("get_attr", "call_module")]
    return fx.GraphModule({p: _private(found, p) for p in dict.fromkeys(paths)}, inner)


def _of_a_subclass(t: torch.Tensor) -> bool:
    """Whether a copy would lose what ``t`` wraps. It is then kept by reference."""
    wraps = type(t) not in (torch.Tensor, torch.nn.Parameter) and not modes.is_fake(t)
    return wraps and not subclasses.has_own_class(t)


def _bytes(t: torch.Tensor) -> int:
    return 0 if modes.is_fake(t) or t.layout is not torch.strided else t.numel() * t.element_size()
