"""Runs of a graph in float64.

The inputs of a graph, its tensors, and the dtypes among its arguments are widened, and autocast is off. Storages that
runs share (`backends.running.shared`) stay narrow and in place. Such a graph runs node by node: a shared tensor is
widened while a node computes with it and dropped after that, so one at a time is there in float64. What only moves
values, such as a transpose or an embedding, moves the narrow ones. A backward pass widens again what it needs.

In a perturbed run the inputs change by a few units in the last place. Shared tensors do not: each node that computes
with one has its other operands perturbed, or its result if it has no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map

from ..running import effects
from ..running.execution import Run, copy_inputs, execute, is_plain, no_autocast, storage_of, tensors, widened
from ..running.shared import SharedStorages, tensors_of

#: Operators whose results are values of one operand, moved.
_MOVES = frozenset(
    {"alias", "detach", "embedding", "expand", "gather", "getitem", "index", "index_select", "movedim", "narrow",
     "permute", "reshape", "select", "slice", "squeeze", "swapaxes", "t", "take", "transpose", "unflatten", "unsqueeze",
     "view"}
)  # fmt: skip


class _Product(NamedTuple):
    """An operator that multiplies by a matrix: the positions of the matrix and of what is added, and the dimension of
    the matrix that is the last one of the result."""

    matrix: int
    added: int | None
    dim: int


_PRODUCTS = {
    "linear": _Product(1, 2, 0), "mm": _Product(1, None, 1), "matmul": _Product(1, None, 1),
    "addmm": _Product(2, 0, 1),
}  # fmt: skip
#: The most values of a matrix that are widened at a time.
_BLOCK = 8 << 20
#: Methods that convert to a floating dtype, which all are float64 here.
_CONVERSIONS = frozenset({"bfloat16", "double", "float", "half"})
_WIDE_METHODS = {
    "float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Noise:
    """The perturbation of a run: the seed, and the most units in the last place of the original dtype."""

    seed: int
    units: int


def run_wide(
    shared: SharedStorages,
    noise: Noise | None = None,
    *,
    outputs: Collection[int] | None = None,
    gradients: Collection[int] = (),
) -> Run:
    """Run the graph of ``shared`` in float64, for these ``outputs`` (None: all) and the ``gradients`` of these inputs.

    Raises what the graph raises in float64.
    """
    default = torch.get_default_dtype()
    graph, given = shared.graph(), shared.inputs()
    stand_ins = [_Lazy.of(t, bool(gradients)) if t in shared and _is_real(t) else None for t in given]
    inputs = copy_inputs(
        [value if lazy is None else None for value, lazy in zip(given, stand_ins, strict=True)],
        wide=True,
        noise=None if noise is None else noise.seed,
        units=0 if noise is None else noise.units,
        shared=shared.numbers,
    )
    inputs = [value if lazy is None else lazy.anchor for value, lazy in zip(inputs, stand_ins, strict=True)]
    widen(graph, shared)
    function: Callable[..., Any] = graph
    if shared.numbers:
        lazies = {id(lazy.anchor): lazy for lazy in stand_ins if lazy is not None}
        function = _NodeByNode(graph, shared, lazies, noise, outputs, bool(gradients)).run
    try:
        torch.set_default_dtype(torch.float64)
        with no_autocast(given):
            return execute(function, inputs, bool(gradients), wanted=gradients)
    finally:
        torch.set_default_dtype(default)


def widen(graph: fx.GraphModule, shared: SharedStorages) -> None:
    """Make ``graph`` compute in float64: its tensors except shared ones, the dtypes in its arguments, no autocast."""
    for module in (m for m in graph.modules() if isinstance(m, fx.GraphModule)):
        for node in module.graph.nodes:
            node.args = fx.node.map_aggregate(node.args, _wide_argument)
            node.kwargs = fx.node.map_aggregate(node.kwargs, _wide_argument)
            if node.op == "call_method":
                node.target = _WIDE_METHODS.get(node.target, node.target)
            elif getattr(node.target, "__name__", "") == "_enter_autocast":
                device, dtype, _, cache = (*node.args, None, None, None)[:4]
                node.args, node.kwargs = (device, dtype, False, cache), {}
        module.recompile()
    for owner in graph.modules():
        for name, tensor in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
            if tensor.dtype != widened(tensor.dtype) and tensor not in shared:
                tensor.data = tensor.data.to(widened(tensor.dtype))
                setattr(owner, name, tensor)


def without(graph: fx.GraphModule, outputs: Collection[int]) -> None:
    """Return None for all but these ``outputs``, and remove the nodes that only others need."""
    number = iter(range(len(tree_leaves(graph.graph.output_node().args[0]))))
    output = graph.graph.output_node()
    output.args = (tree_map(lambda leaf: leaf if next(number) in outputs else None, output.args[0]),)
    for node in reversed(graph.graph.nodes):
        needed = node.users or node.op in ("placeholder", "output")
        if not needed and effects.reads_only(node) and not effects.draws(node):
            graph.graph.erase_node(node)
    graph.recompile()


@dataclass(frozen=True, slots=True, eq=False)
class _Lazy:
    """A tensor in a shared storage, widened when a node computes with it.

    ``anchor`` has its shape, is float64, has no memory, and stands for it in the autograd graph.
    """

    narrow: torch.Tensor
    anchor: torch.Tensor

    @classmethod
    def of(cls, t: torch.Tensor, backward: bool) -> _Lazy:
        anchor = torch.zeros((), dtype=widened(t.dtype), device=t.device).expand(t.shape)
        return cls(t.detach(), anchor.requires_grad_() if backward and t.requires_grad else anchor)

    def values(self) -> torch.Tensor:
        """The values in float64, with the strides of the narrow ones."""
        made: torch.Tensor
        (made,) = copy_inputs([self.narrow], wide=True)
        return made

    def wide(self) -> torch.Tensor:
        """The values in float64, whose gradient goes to the anchor."""
        values = self.values()
        if not self.anchor.requires_grad:
            return values
        made: torch.Tensor = _Values.apply(self.anchor, [values])  # type: ignore[no-untyped-call]
        return made

    def moved(self, move: Callable[[torch.Tensor], Any]) -> Any:
        """The lazy result of an operator that moves values. None if it has no tensor as a result."""
        with torch.no_grad():
            narrow = move(self.narrow)
        return _Lazy(narrow, move(self.anchor)) if isinstance(narrow, torch.Tensor) else None


class _Values(torch.autograd.Function):
    """Values in the place of a tensor that has none."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, holder: list[torch.Tensor]) -> torch.Tensor:
        return holder[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


@dataclass(frozen=True, slots=True)
class _Saved:
    """A tensor that a backward pass needs and that is a part of a lazy one's values."""

    lazy: _Lazy
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    def values(self) -> torch.Tensor:
        return self.lazy.values().as_strided(self.shape, self.stride, self.offset)


class _NodeByNode(fx.Interpreter):
    """Runs a widened graph on lazy tensors. ``lazies`` are the lazy inputs, by the id of the anchor."""

    def __init__(
        self,
        graph: fx.GraphModule,
        shared: SharedStorages,
        lazies: dict[int, _Lazy],
        noise: Noise | None,
        outputs: Collection[int] | None,
        backward: bool,
    ) -> None:
        if outputs is not None and not backward:
            without(graph, outputs)
        super().__init__(graph)
        self.extra_traceback = False
        self._shared = shared
        self._lazies = lazies
        self._noise = noise
        self._generator = None if noise is None else torch.Generator().manual_seed(noise.seed)
        self._backward = backward
        #: The lazy tensors that are widened now, by storage of their values.
        self._there: dict[int, _Lazy] = {}

    def run(self, *args: Any, **options: Any) -> Any:
        hooks = self._backward and not any(_refuses_hooks(n) for n in self.graph.nodes)
        saving = saved_tensors_hooks(self._pack, _unpack) if hooks else nullcontext()
        with saving, nullcontext() if self._backward else torch.no_grad():
            return super().run(*args, **options)

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            value = super().run_node(n)
            return self._lazies.get(id(value), value)
        if n.op == "get_attr":
            value = super().run_node(n)
            lazy = isinstance(value, torch.Tensor) and value in self._shared and _is_real(value)
            return _Lazy.of(value, self._backward) if lazy else value
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            value = self._called(n, args, kwargs)
        return value if n.users or n.op == "output" else None

    def _called(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        def call(exchange: Callable[[Any], Any]) -> Any:
            return getattr(self, n.op)(n.target, *tree_map(exchange, (args, kwargs)))

        operands = tree_leaves((args, kwargs))
        lazies = {id(each): each for each in operands if isinstance(each, _Lazy)}
        others = any(_is_real(each) for each in tensors(operands))
        if len(lazies) == 1 and not others:
            (lazy,) = lazies.values()
            if n.op == "call_method" and n.target in _CONVERSIONS:
                return lazy
            if _moves(n):
                moved = lazy.moved(lambda t: call(lambda each: t if each is lazy else each))
                if moved is not None:
                    return moved
        if not self._backward and len(lazies) == 1 and _is_large_product(n, args, *lazies.values()):
            return self._product(n, args, kwargs, *lazies.values())
        with self._widened(lazies, n) as wide:
            scale = self._scale(n, self._there.values())
            value = call(lambda each: wide[id(each)] if isinstance(each, _Lazy) else self._perturbed(each, scale))
            return value if others else tree_map(lambda each: self._perturbed(each, scale), value)

    def _product(self, n: fx.Node, args: Sequence[Any], kwargs: dict[str, Any], matrix: _Lazy) -> torch.Tensor:
        """The product of ``n``, one block of ``matrix`` after the other, each with a part of the last dimension."""
        product, narrow = _PRODUCTS[_name(n)], matrix.narrow
        scale = self._scale(n, [matrix])
        given = [each if each is matrix else self._perturbed(each, scale) for each in args]
        added = product.added if product.added is not None and product.added < len(given) else None
        term = None if added is None else given[added]
        size, made = narrow.shape[product.dim], []
        length = max(1, _BLOCK * size // narrow.numel())
        for begin in range(0, size, length):
            part = min(length, size - begin)
            given[product.matrix] = narrow.narrow(product.dim, begin, part).to(widened(narrow.dtype))
            if added is not None and isinstance(term, torch.Tensor) and term.dim() and term.shape[-1] == size > 1:
                given[added] = term.narrow(-1, begin, part)
            made.append(getattr(self, n.op)(n.target, given, kwargs))
        return torch.cat(made, -1)

    @contextmanager
    def _widened(self, lazies: dict[int, _Lazy], n: fx.Node) -> Iterator[dict[int, torch.Tensor]]:
        """The values of ``lazies`` and of the shared tensors of the module that ``n`` calls, inside the context."""
        wide = {key: lazy.wide() for key, lazy in lazies.items()}
        there = {storage_of(t): lazies[key] for key, t in wide.items()}
        held = []
        if n.op == "call_module":
            module = self.fetch_attr(str(n.target))
            held = [(t, _Lazy.of(t, False)) for t in tensors_of(module) if t in self._shared and _is_real(t)]
        for t, lazy in held:
            t.data = wide[id(t)] = lazy.values()
            there[storage_of(t)] = lazy
        self._there = there
        try:
            yield wide
        finally:
            self._there = {}
            for t, lazy in held:
                t.data = lazy.narrow

    def _scale(self, n: fx.Node, lazies: Collection[_Lazy]) -> float:
        """The largest relative change of an operand of ``n``, which reads ``lazies``; 0 if it reads no lazy tensor, or
        may write to one."""
        if self._noise is None or not lazies or not (n.op == "call_module" or effects.reads_only(n)):
            return 0.0
        return self._noise.units * max(torch.finfo(lazy.narrow.dtype).eps for lazy in lazies)

    def _perturbed(self, value: Any, scale: float) -> Any:
        if not scale or not _is_real(value):
            return value
        moves = torch.rand(value.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        return value * (1 + scale * moves.to(value.device))

    def _pack(self, t: torch.Tensor) -> Any:
        lazy = self._there.get(storage_of(t)) if is_plain(t) else None
        return t if lazy is None else _Saved(lazy, t.shape, t.stride(), int(t.storage_offset()))


def _unpack(saved: Any) -> torch.Tensor:
    found: torch.Tensor = saved.values() if isinstance(saved, _Saved) else saved
    return found


def _is_real(value: Any) -> bool:
    """Whether it is a tensor of a floating or complex dtype."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _name(n: fx.Node) -> str:
    return n.target if isinstance(n.target, str) else str(getattr(n.target, "__name__", "")).partition(".")[0]


def _moves(n: fx.Node) -> bool:
    return _name(n) in _MOVES and effects.reads_only(n)


def _is_large_product(n: fx.Node, args: Sequence[Any], matrix: _Lazy) -> bool:
    """Whether ``n`` multiplies by ``matrix``, which has very many values, and does nothing else with it."""
    if n.op == "call_module" or _name(n) not in _PRODUCTS or n.kwargs.keys() - {"alpha", "beta"}:
        return False
    at, shape = _PRODUCTS[_name(n)].matrix, matrix.narrow.shape
    return len(shape) == 2 and shape.numel() > _BLOCK and [i for i, a in enumerate(args) if a is matrix] == [at]


def _refuses_hooks(n: fx.Node) -> bool:
    return getattr(n.target, "__name__", "") == "_saved_tensors_hooks_disable"


def _wide_argument(value: Any) -> Any:
    return widened(value) if isinstance(value, torch.dtype) else value
