"""Run a graph or a compiled callable once, on private inputs, for the capture hook and the workers.

Two runs are comparable for these reasons:

* `copy_inputs` copies *storages*, not tensors. So tensors share memory as before, and keep strides, offsets, conj and
  neg bits, and being a leaf, parameter or inference tensor.
* `execute` restores the random number generators, so that successive runs draw the same numbers. It waits for the
  accelerators of the inputs, so that their faults show in the call that made them.
* Gradients are computed for cotangents that are the same in every run and exact in every floating dtype.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import TreeSpec, tree_flatten

from ...store.live import subclasses
from ...store.live.modes import as_it_was, is_fake
from . import devices

Mark = Callable[[str], None]
_SUMMED = ContextVar("summed", default=False)
#: How inputs are perturbed: the seed, and the most units in the last place.
Perturbation = tuple[torch.Generator, int]


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one call.

    * ``outputs`` are the flattened results, ``structure`` their nesting, ``inputs`` the inputs after the call.
    * For every output in the same storage as an input, ``aliases`` has the index of that input. For every output in
      the same storage as an earlier output, ``shared`` has the index of the first one. Other entries are None.
    * ``gradients`` has an entry for every input, None for an input without a gradient. It is None without a
      backward pass.
    * ``random`` is true if the call drew random numbers. ``generators`` are the states of the generators after the
      call, of the CPU and of each accelerator that has an input.
    * ``overwritten`` are the positions of inputs that it wrote to although other runs share them
      (`backends.running.shared`).
    """

    outputs: tuple[Any, ...]
    structure: TreeSpec
    inputs: tuple[Any, ...]
    aliases: tuple[int | None, ...]
    gradients: tuple[torch.Tensor | None, ...] | None
    random: bool
    generators: dict[str, torch.Tensor]
    shared: tuple[int | None, ...] = ()
    overwritten: frozenset[int] = frozenset()


def execute(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    backward: bool = False,
    *,
    mark: Mark = lambda phase: None,
    wanted: Container[int] | None = None,
) -> Run:
    """Call ``function`` on ``inputs`` (which it may change) as Dynamo would, then compute gradients if ``backward``.

    Autocast is off in the backward pass, as torch recommends for programs. Eager computes other gradients inside of it.
    ``mark`` is called with ``"backward"`` when the backward pass begins. ``wanted`` are the inputs whose gradients are
    computed, all if None. Results and inputs of a class of their own are given as tensors of torch's class. Raises what
    ``function`` raises.
    """
    inputs = list(inputs)
    with subclasses.overrides_off(inputs):
        sources = _sources(inputs, wanted) if backward else []
    used = devices.used(inputs)
    with devices.kept_generators(used), as_it_was():
        before = devices.generators(used)
        result = function(*inputs)
        devices.synchronize(used)
        generators = devices.generators(used)
        outputs, structure = tree_flatten(tuple(result) if isinstance(result, list) else result)
        gradients = None
        if backward and any(differentiable(t) for t in outputs):
            mark("backward")
            with subclasses.overrides_off(outputs), no_autocast(outputs):
                gradients = _gradients(outputs, sources)
            devices.synchronize(used)
        outputs, inputs = (list(map(subclasses.bare, values)) for values in (outputs, inputs))
    return Run(
        tuple(outputs),
        structure,
        tuple(inputs),
        _aliases(outputs, inputs),
        gradients,
        not same_states(before, generators),
        generators,
        _shared(outputs),
    )


def same_states(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether generators are in the same states. A device of one run alone has drawn nothing in the other."""
    return all(torch.equal(one[device], other[device]) for device in one.keys() & other.keys())


def tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    return (v for v in values if isinstance(v, torch.Tensor))


def version_of(value: Any) -> int | None:
    """torch's count of writes to a tensor; None for an inference tensor, which has none, and for other values."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def storage_of(t: torch.Tensor) -> int:
    """A number that tensors of one storage share. A tensor without a storage has a number of its own."""
    return t.untyped_storage()._cdata if t.layout is torch.strided and not is_fake(t) else id(t)


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.layout is torch.strided


@contextmanager
def of_the_sum() -> Iterator[None]:
    """Inside of this context, compute gradients of the sum of all outputs, as a script may do."""
    token = _SUMMED.set(True)
    try:
        yield
    finally:
        _SUMMED.reset(token)


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A gradient for each output: seeded multiples of 1/8 of at most 2 in absolute value, none of them 0.

    Inside `of_the_sum` each is 1.
    """
    if _SUMMED.get():
        return [torch.ones_like(output, memory_format=torch.contiguous_format) for output in outputs]
    generator = torch.Generator().manual_seed(0)
    made = []
    for output in outputs:
        numbers = torch.randint(1, 17, output.shape, generator=generator) / 8
        signs = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        made.append((numbers * signs).to(output.dtype).to(output.device))
    return made


def _sources(inputs: Sequence[Any], wanted: Container[int] | None) -> list[GradientEdge | None]:
    """For each input the edge of the autograd graph at which its gradient arrives.

    Read it before the call, because an input that the call changes in place is a result of the graph afterwards.
    """
    wants = [
        isinstance(t, torch.Tensor) and t.requires_grad and (wanted is None or i in wanted)
        for i, t in enumerate(inputs)
    ]
    return [get_gradient_edge(t) if asked else None for t, asked in zip(inputs, wants, strict=True)]


def no_autocast(values: Iterable[Any]) -> ExitStack:
    """A context with autocast off for every device type of ``values`` and for the CPU."""
    stack = ExitStack()
    for device in sorted({"cpu"} | {t.device.type for t in tensors(values)}):
        if torch.amp.autocast_mode.is_autocast_available(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def _gradients(outputs: Sequence[Any], sources: Sequence[GradientEdge | None]) -> tuple[torch.Tensor | None, ...]:
    roots = [t for t in outputs if differentiable(t)]
    wanted = [edge for edge in sources if edge is not None]
    if not wanted:  # only the graph's own parameters
        torch.autograd.backward(roots, cotangents(roots))
        return (None,) * len(sources)
    found = iter(torch.autograd.grad(roots, wanted, cotangents(roots), allow_unused=True))
    return tuple(None if edge is None else next(found) for edge in sources)


def _aliases(outputs: Sequence[Any], inputs: Sequence[Any]) -> tuple[int | None, ...]:
    owners: dict[int, int] = {}
    for index, value in enumerate(inputs):
        if is_plain(value):
            owners.setdefault(value.untyped_storage()._cdata, index)
    return tuple(owners.get(t.untyped_storage()._cdata) if is_plain(t) else None for t in outputs)


def _shared(outputs: Sequence[Any]) -> tuple[int | None, ...]:
    first: dict[int, int] = {}
    found = [first.setdefault(t.untyped_storage()._cdata, i) if is_plain(t) else i for i, t in enumerate(outputs)]
    return tuple(None if owner == i else owner for i, owner in enumerate(found))


def is_plain(value: Any) -> bool:
    """Whether it is an ordinary strided tensor with a storage that can be copied."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type != "meta"
        and not value._is_zerotensor()
    )


def span(values: Sequence[torch.Tensor]) -> tuple[int, int]:
    """The range of bytes that the tensors use of their common storage; its start is a multiple of 64."""
    low, high = None, 0
    for t in values:
        if t.numel():
            start = int(t.storage_offset())
            last = start + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
            low = min(start * t.element_size(), low if low is not None else start * t.element_size())
            high = max(high, (last + 1) * t.element_size())
    return (low or 0) // 64 * 64, high


def copy_inputs(
    values: Sequence[Any],
    *,
    wide: bool = False,
    noise: int | None = None,
    units: int = 8,
    whole: bool = False,
    shared: Container[int] = (),
) -> list[Any]:
    """Return ``values`` with private copies of the tensors.

    * The part of a storage that the tensors use is copied, or all of it if ``whole``, for ``as_strided``, which
      counts from its start.
    * ``wide`` converts floating and complex tensors to float64 and complex128.
    * The seed ``noise`` then changes every element by up to ``units`` units in the last place of its original
      dtype.
    * Tensors in the ``shared`` storages (`storage_of`) become new tensors in the memory of ``values``.
    * A copy has the class and the attributes of its tensor, unless it is ``wide``.
    """
    own = {id(v): v for v in values if subclasses.has_own_class(v)}
    if own:
        plain = {key: subclasses.plain(t) for key, t in own.items()}
        given = [plain.get(id(v), v) for v in values]
        made = copy_inputs(given, wide=wide, noise=noise, units=units, whole=whole, shared=shared)
        alike = {id(v): subclasses.like(v, c) for v, c in zip(values, made, strict=True) if id(v) in own}
        return made if wide else [alike.get(id(v), c) for v, c in zip(values, made, strict=True)]
    groups: dict[int, list[torch.Tensor]] = {}
    for t in values:
        if is_plain(t):
            groups.setdefault(t.untyped_storage()._cdata, []).append(t)
    perturbation = (torch.Generator().manual_seed(noise), units) if noise is not None else None
    done: dict[int, Any] = {}
    with torch.no_grad():
        for number, group in groups.items():
            copies = map(view_of, group) if number in shared else _copy_storage(group, wide, perturbation, whole)
            for original, bare in zip(group, copies, strict=True):
                done.setdefault(id(original), as_leaf(original, bare))
        for t in values:
            if isinstance(t, torch.Tensor) and id(t) not in done:
                if t._is_zerotensor() and not wide:  # nothing can write to it, and a clone would have memory
                    done[id(t)] = t
                    continue
                bare = t.detach().clone()
                if wide and bare.is_floating_point():
                    bare = bare.double()
                done[id(t)] = bare.requires_grad_(t.requires_grad)
    return [done.get(id(v), v) if isinstance(v, torch.Tensor) else v for v in values]


def _copy_storage(
    group: list[torch.Tensor], wide: bool, perturbation: Perturbation | None, whole: bool
) -> list[torch.Tensor]:
    first = group[0]
    low, high = (0, first.untyped_storage().nbytes()) if whole else span(group)
    with torch.inference_mode(first.is_inference()):
        if not wide or not (first.is_floating_point() or first.is_complex()):
            source = torch.empty(0, dtype=torch.uint8, device=first.device)
            source.set_(first.untyped_storage(), low, (high - low,), (1,))
            storage = source.clone().untyped_storage()
            return [_view(t, storage, t.dtype, low) for t in group]
        if any(t.dtype != first.dtype for t in group):
            return [_view(t, _widened(t, *span([t]), perturbation), widened(t.dtype), span([t])[0]) for t in group]
        storage = _widened(first, low, high, perturbation)
        return [_view(t, storage, widened(t.dtype), low) for t in group]


def _widened(t: torch.Tensor, low: int, high: int, perturbation: Perturbation | None) -> torch.UntypedStorage:
    """Bytes ``low`` to ``high`` of the storage of ``t``, read as its type, as a storage of the wide type."""
    size = t.element_size()
    narrow = torch.empty(0, dtype=t.dtype, device=t.device)
    narrow.set_(t.untyped_storage(), low // size, ((high - low) // size,), (1,))
    values = narrow.to(widened(t.dtype), copy=True)
    if perturbation is not None:
        generator, units = perturbation
        moves = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1
        values *= 1 + units * torch.finfo(t.dtype).eps * moves.to(values.device)
    return values.untyped_storage()


def widened(dtype: torch.dtype) -> torch.dtype:
    """float64 or complex128 for a floating or complex dtype, otherwise ``dtype``."""
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def view_of(t: torch.Tensor) -> torch.Tensor:
    """Another tensor over the storage of ``t``, which counts writes (``_version``) by itself."""
    with torch.inference_mode(t.is_inference()):
        return _view(t, t.untyped_storage(), t.dtype, 0)


def _view(t: torch.Tensor, storage: torch.UntypedStorage, dtype: torch.dtype, low: int) -> torch.Tensor:
    """``t`` over a copy of its storage that begins at byte ``low`` of the original."""
    bare = torch.empty(0, dtype=dtype, device=t.device)
    offset = t.storage_offset() - low // t.element_size() if t.numel() else 0
    bare.set_(storage, offset, t.shape, t.stride())
    if t.is_conj():
        torch._C._set_conj(bare, True)
    if t.is_neg():
        torch._C._set_neg(bare, True)
    return bare


def as_leaf(original: torch.Tensor, bare: torch.Tensor) -> torch.Tensor:
    """``bare`` with the autograd state of ``original``: leaf, parameter, inference tensor or result."""
    if isinstance(original, torch.nn.Parameter):
        return torch.nn.Parameter(bare, requires_grad=original.requires_grad)
    if not original.requires_grad:
        return bare
    if original.is_leaf:
        return bare.requires_grad_()
    with torch.inference_mode(False), torch.enable_grad():
        anchor = torch.zeros((), device=bare.device, requires_grad=True)
        made: torch.Tensor = _NonLeaf.apply(anchor, [bare])  # type: ignore[no-untyped-call]
    return made


class _NonLeaf(torch.autograd.Function):
    """Makes a tensor the result of an operation without a copy. It is no view, so it can be changed in place."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, holder: list[torch.Tensor]) -> torch.Tensor:
        return holder[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        return torch.zeros((), device=gradients[0].device), None


def private(gm: fx.GraphModule, *, plain: bool = False) -> fx.GraphModule:
    """A copy of ``gm`` that a backend may edit. It has its own graph and shares attributes and parameters.

    The copy has what Dynamo notes on graph and nodes (``meta``, ``example_value``, names of parameters), and compiles
    its code as lazily as ``gm``. TorchScript cannot read that; for it, ask for a ``plain`` one.
    """
    lazy = isinstance(gm, _LazyGraphModule) and not plain
    new = (_LazyGraphModule if lazy else fx.GraphModule)(gm, copy.deepcopy(gm.graph))
    for old, node in zip(gm.graph.nodes, new.graph.nodes, strict=True):
        vars(node).update(vars(old))  # the sources of inputs, which AOTAutograd asks for
    new.meta = dict(gm.meta)
    new.training = gm.training
    for name, value in vars(gm).items():
        if name not in vars(new):
            setattr(new, name, value)
    return new


def called(node: fx.Node) -> str:
    """The name of what ``node`` calls, for a person: ``relu``, ``aten.relu.default``, ``torch.relu`` ..."""
    if isinstance(node.target, str):
        return node.target
    return str(fx.node._get_qualified_name(node.target)) if callable(node.target) else str(node.target)


def mentions(node: fx.Node, op: str) -> bool:
    """Whether ``node`` calls ``op``, a last name (``relu``) or the name that torch prints (``aten.relu.default``)."""
    shown = {called(node), str(node.target)}
    names = {part.rstrip("_") for text in shown for part in text.replace("::", ".").split(".")}
    return node.op in ("call_function", "call_method", "call_module") and (op in shown or op.rstrip("_") in names)


def counts(gm: fx.GraphModule) -> dict[str, int]:
    """The number of calls of each operation in ``gm``, by name, the most frequent first."""
    found: dict[str, int] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            found[called(node)] = found.get(called(node), 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def trains(inputs: Any) -> bool:
    """Whether a graph with these inputs may get a backward pass."""
    import torch

    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs)
