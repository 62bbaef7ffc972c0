"""The inputs and tensors of a graph for several runs of it: large storages are shared, all else is copied for each.

A comparison runs a graph several times on the same values. If all its storages have at most `COPIED` bytes, each run
has copies of all of them. Else storages of `LARGE` bytes and more are read in place, as the weights of a model are.

Nothing may change what is shared:

* An eager run goes node by node. Before a node that may write to a shared storage (`backends.running.effects`), the
  storage is saved, and compared after it. A storage that was written to is restored, and copied for each run from then
  on. So a graph that writes to large storages runs once more.
* What was compiled may do anything, so the bytes of all shared storages have the same checksum before and after it. If
  one has not, a backend has written to it that must not.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Self

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ...store.live import modes
from . import effects
from .execution import Run, as_leaf, copy_inputs, execute, is_plain, span, storage_of, tensors, view_of

#: Bytes from which a storage is shared, if a graph has more than `COPIED` bytes.
LARGE = 1 << 20
COPIED = 64 << 20
#: Words of a storage on another device whose checksum is computed at a time.
PIECE = 1 << 22


class SharedStorages:
    """Gives each run of ``graph`` a graph and inputs of its own, which read large storages in place.

    ``whole``: see `backends.running.execution.copy_inputs`. Storages of ``large`` bytes are shared if all of them have
    more than ``copied``. ``given`` are the values that the inputs are made of, and
    ``numbers`` the shared storages (`backends.running.execution.storage_of`).
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        whole: bool = False,
        large: int = LARGE,
        copied: int = COPIED,
    ) -> None:
        self._graph, self.given, self._whole = graph, list(inputs), whole
        held: dict[int, list[torch.Tensor]] = {}
        for t in [*tensors(self.given), *tensors_of(graph)]:
            if is_plain(t):
                held.setdefault(storage_of(t), []).append(t)
        sizes = {number: _size(group) for number, group in held.items()}
        many = sum(sizes.values()) > copied
        self.numbers = {number for number, size in sizes.items() if many and size >= large}
        self._held = {number: group for number, group in held.items() if number in self.numbers}

    def __contains__(self, value: Any) -> bool:
        """Whether ``value`` is a tensor in a shared storage."""
        return isinstance(value, torch.Tensor) and bool(self.numbers) and storage_of(value) in self.numbers

    def inputs(self) -> list[Any]:
        """Inputs for one run."""
        return copy_inputs(self.given, whole=self._whole, shared=self.numbers)

    def graph(self) -> fx.GraphModule:
        """A graph for one run."""
        alike = {id(t): as_leaf(t, view_of(t)) for t in tensors_of(self._graph) if t in self}
        made: fx.GraphModule = copy.deepcopy(self._graph, alike)
        return made

    def eager(self, backward: bool = False, *, wanted: Container[int] | None = None) -> Run:
        """Run the graph in eager mode, see `backends.running.execution.execute`. Raises what the graph raises."""
        while True:
            graph, inputs = self.graph(), self.inputs()
            if not self.numbers:
                return execute(graph, inputs, backward, wanted=wanted)
            with _Guard(graph, self.numbers) as guard:
                run = execute(guard.run, inputs, backward, wanted=wanted)
            if not guard.written:
                return run
            del run, inputs, graph
            self.numbers -= guard.written

    def checksums(self) -> dict[int, int]:
        """A checksum of the bytes of each shared storage."""
        return {number: _checksum(self._held[number]) for number in sorted(self.numbers)}

    def changed(self, before: dict[int, int]) -> frozenset[int]:
        """The inputs, by position, in shared storages whose checksum was another one ``before``."""
        after = self.checksums()
        numbers = {number for number, checksum in after.items() if before[number] != checksum}
        return frozenset(i for i, t in enumerate(self.given) if t in self and storage_of(t) in numbers)


class _Guard(fx.Interpreter):
    """Runs a graph node by node. Inside the context, shared storages that it writes to are restored at the end."""

    def __init__(self, graph: fx.GraphModule, numbers: set[int]) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self._numbers = numbers
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def written(self) -> set[int]:
        return set(self._saved)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with modes.undisturbed():
            for now, before in self._saved.values():
                now.copy_(before)

    def run_node(self, n: fx.Node) -> Any:
        if effects.reads_only(n):
            value = super().run_node(n)
            return value if n.users or n.op in ("placeholder", "output") else None
        read = [*tree_leaves([self.env[m] for m in n.all_input_nodes]), *self._held_by(n)]
        with modes.undisturbed():
            risky = {storage_of(t): _bytes(t) for t in tensors(read) if is_plain(t)}
            before = {
                number: (now, now.clone())
                for number, now in risky.items() if number in self._numbers and number not in self._saved
            }  # fmt: skip
        try:
            return super().run_node(n)
        finally:
            with modes.undisturbed():
                self._saved |= {k: (now, old) for k, (now, old) in before.items() if not torch.equal(now, old)}

    def _held_by(self, n: fx.Node) -> Iterable[torch.Tensor]:
        """The tensors of the modules that ``n`` calls."""
        names = [str(m.target) for m in (n, *n.all_input_nodes) if m.op in ("call_module", "get_attr")]
        found = [self.fetch_attr(name) for name in names]
        return [t for module in found if isinstance(module, torch.nn.Module) for t in tensors_of(module)]


def tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors that a module and those in it hold, also as plain attributes."""
    for owner in module.modules():
        yield from owner.parameters(recurse=False)
        yield from owner.buffers(recurse=False)
        yield from tensors(vars(owner).values())


def _bytes(t: torch.Tensor) -> torch.Tensor:
    """The bytes of the storage of ``t``."""
    made = torch.empty(0, dtype=torch.uint8, device=t.device)
    return made.set_(t.untyped_storage(), 0, (t.untyped_storage().nbytes(),), (1,))


def _size(group: Sequence[torch.Tensor]) -> int:
    """The number of bytes that the tensors use of their common storage."""
    low, high = span(group)
    return max(0, high - low)


def _checksum(group: Sequence[torch.Tensor]) -> int:
    low, high = span(group)
    with modes.undisturbed():
        used = _bytes(group[0])[low:high]
        if used.device.type == "cpu":
            return zlib.crc32(used.numpy().data)
        return _checksum_of_words(used[: used.numel() // 8 * 8].view(torch.int64)) ^ int(used[-8:].sum())


def _checksum_of_words(words: torch.Tensor) -> int:
    """A checksum that is computed where the ``words`` are, piece by piece."""
    total, factors = 0, 2 * torch.arange(min(PIECE, words.numel()), device=words.device) + 1
    for begin in range(0, words.numel(), PIECE):
        piece = words[begin : begin + PIECE]
        total = (31 * total + int((piece * factors[: piece.numel()]).sum())) % 2**64
    return total
