"""A view of a case for passes: the case, the trace of its values, and facts computed from both.

There is one `GraphView` for each accepted case. It computes each fact when it is first used and then keeps it, so that
thousands of candidates can be made from it quickly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeVar

from ...store.document.case import Blobs, Case, Node, TensorSpec, Value, tag, target_name
from .trace import Recorded, Trace, ValueKind
from .validity import Validity

#: Nodes that switch a state on, with the nodes that switch it off. If only one of the two were dropped, the state would
#: affect the nodes that follow.
PAIRS = {
    "_enter_autocast": "_exit_autocast",
    "_enter_inference_mode": "_exit_inference_mode",
    "_enter_dual_level": "_exit_dual_level",
    "enter_dual_level": "exit_dual_level",
    "_saved_tensors_hooks_disable": "_saved_tensors_hooks_enable",
}
#: Nodes that open a functorch region, with those that close it. The tensors made in between are wrapped and have no
#: meaning outside, so a region stays or goes as a whole.
REGIONS = {
    "_vmap_increment_nesting": "_vmap_decrement_nesting",
    "_grad_increment_nesting": "_grad_decrement_nesting",
    "_jvp_increment_nesting": "_jvp_decrement_nesting",
    "_func_increment_nesting": "_func_decrement_nesting",
}

#: Nodes that wrap values for a region, unwrap them, or have an effect only inside of it.
WRAPPERS = frozenset(
    {"_add_batch_dim", "_remove_batch_dim", "_wrap_for_grad", "_unwrap_for_grad", "_make_dual", "_unpack_dual",
     "lazy_load_decompositions", "set_inplace_requires_grad_allowed", "_set_tensor_requires_grad", "_autograd_grad",
     "_enter_dual_level", "_exit_dual_level", "enter_dual_level", "exit_dual_level", "set_fwd_grad_enabled",
     "_set_fwd_grad_enabled", "_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable"}
)  # fmt: skip

TensorType = tuple[str, tuple[int, ...]]
Key = TypeVar("Key", bound=Hashable)


class Storages(Protocol):
    """The storages of a reduction by key. A pass that makes a storage calls `put` before it yields the candidate."""

    def __getitem__(self, key: str, /) -> bytes: ...

    def put(self, blobs: Blobs, /) -> None: ...


class GraphView:
    """A case under reduction. ``trace`` was recorded on this case or on one that it was made from.

    A node keeps its name through every patch, so the trace of an earlier case stays valid. ``hints`` are groups of
    nodes that the failure names, ``blamed`` the nodes that certainly cause it (see `fxminify.minifier.reducer.hints`).
    ``storages`` has the storages of the reduction; only canonicalization passes need them. ``validity`` tells which
    candidates eager accepts.
    """

    def __init__(
        self,
        case: Case,
        trace: Trace,
        hints: tuple[tuple[str, ...], ...] = (),
        stand_ins: dict[tuple[str, int], Node] | None = None,
        blamed: frozenset[str] = frozenset(),
        storages: Storages | None = None,
        validity: Validity | None = None,
    ) -> None:
        self.case = case
        self.trace = trace
        self.hints = hints
        self.blamed = blamed
        self.storages = storages
        self.validity = validity
        #: The placeholders that stand for recorded values. Candidates share them, as they share other nodes.
        self.stand_ins = {} if stand_ins is None else stand_ins

    def after(self, case: Case) -> GraphView:
        """The view of ``case``, which was made from this case."""
        return GraphView(case, self.trace, self.hints, self.stand_ins, self.blamed, self.storages, self.validity)

    def valid(self, candidates: Sequence[Case]) -> Sequence[bool]:
        """For each candidate whether eager accepts it; True if that is not known. This asks no backend."""
        return (True,) * len(candidates) if self.validity is None else self.validity(self.case, candidates)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes of the top-level graph by name."""
        return {n.name: n for n in self.case.graph.nodes}

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each node in the graph, by name."""
        return {n.name: i for i, n in enumerate(self.case.graph.nodes)}

    @cached_property
    def compute(self) -> tuple[str, ...]:
        """The names of the compute nodes, in the order of the graph."""
        return tuple(n.name for n in self.case.graph.nodes if n.is_compute)

    @cached_property
    def computed(self) -> frozenset[str]:
        return frozenset(self.compute)

    def in_order(self, names: Collection[str]) -> list[str]:
        """``names`` sorted by the order of the graph."""
        position = self.position
        if len(names) * 8 < len(position):
            return sorted(names, key=position.__getitem__)
        return [name for name in position if name in names]

    @cached_property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The names of the nodes that each node reads."""
        return {n.name: n.inputs for n in self.case.graph.nodes}

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """The names of the nodes that read each node. The output node is one of them."""
        users: dict[str, list[str]] = {n.name: [] for n in self.case.graph.nodes}
        for name, read in self.inputs.items():
            for source in read:
                users[source].append(name)
        return users

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        """The values that the graph returns, taken out of nested containers."""
        return tuple(leaves(self.case.graph.output.args[0]))

    @cached_property
    def output_names(self) -> frozenset[str]:
        """The names of the nodes that are returned."""
        return frozenset(value["ref"] for value in self.outputs if tag(value) == "ref")

    @cached_property
    def live(self) -> frozenset[str]:
        """The names of the nodes on which a returned value depends."""
        return reached(self.inputs, self.output_names)

    @cached_property
    def ancestors(self) -> dict[str, int]:
        """For each node the nodes on which it depends, and itself: a bit set over `position`."""
        masks: dict[str, int] = {}
        for i, node in enumerate(self.case.graph.nodes):
            mask = 1 << i
            for source in self.inputs[node.name]:
                mask |= masks[source]
            masks[node.name] = mask
        return masks

    @cached_property
    def given(self) -> dict[str, int]:
        """The index of the input of each placeholder, by name."""
        return {n.name: i for i, n in enumerate(self.case.graph.placeholders)}

    @cached_property
    def written(self) -> frozenset[str]:
        """The compute nodes whose value is a literal, which can be written into the graph."""
        return frozenset(name for name in self.compute if self.value(name).kind is ValueKind.LITERAL)

    @cached_property
    def opaque(self) -> frozenset[str]:
        """The compute nodes whose value can be neither an input nor a literal."""
        return frozenset(name for name in self.compute if self.value(name).kind is ValueKind.OPAQUE)

    @cached_property
    def literals(self) -> frozenset[str]:
        """The nodes with a tensor or a generator among their arguments, which is rare."""
        return frozenset(
            n.name for n in self.case.graph.nodes if any(map(_holds_tensor, (*n.args, *n.kwargs.values())))
        )

    @cached_property
    def brackets(self) -> tuple[str, ...]:
        """The nodes that open a functorch region."""
        return tuple(name for name in self.compute if self.kind(name) in REGIONS)

    def value(self, name: str) -> Recorded:
        """The recorded value of ``name``. A value that was not recorded counts as opaque."""
        return self.trace.value(name) or _UNKNOWN

    def tensor(self, name: str) -> TensorSpec | None:
        """The shape, dtype and layout of ``name``; None if it is no tensor."""
        if name in self.given:
            return self.case.input_tensor(self.given[name])
        node = self.nodes[name]
        if node.op == "get_attr":
            index = self.case.graph.attrs.get(node.target, {}).get("tensor")
            return None if index is None else self.case.tensors[index]
        return self.trace.tensor(name)

    def tensor_type(self, name: str) -> TensorType | None:
        """The dtype and shape of ``name``; None if it is no tensor. Nodes of one type can replace each other."""
        if name not in self._tensor_types:
            spec = self.tensor(name)
            self._tensor_types[name] = (
                None if spec is None else (f"{spec.dtype}:{spec.device}:{spec.layout}", spec.shape)
            )
        return self._tensor_types[name]

    @cached_property
    def _tensor_types(self) -> dict[str, TensorType | None]:
        return {}

    def kind(self, name: str) -> str:
        """The bare name of the operation of a compute node, such as ``relu``."""
        return target_name(self.nodes[name])

    @cached_property
    def number(self) -> dict[str, int]:
        """The position of each compute node among the compute nodes, by name."""
        return {name: i for i, name in enumerate(self.compute)}

    @cached_property
    def by_tensor_type(self) -> dict[TensorType, list[str]]:
        """The names of the nodes of each tensor type, in the order of the graph."""
        groups: dict[TensorType, list[str]] = {}
        for node in self.case.graph.nodes:
            tensor_type = self.tensor_type(node.name) if node.op != "output" else None
            if tensor_type is not None:
                groups.setdefault(tensor_type, []).append(node.name)
        return groups

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The prior probability that each compute node causes the failure, in their order. The sum is 1.

        Bugs are mostly in rare operations, and in rare shapes of common operations. So each kind of operation has the
        same share of 0.45, each combination of an operation with the types that it reads the same share of another
        0.45, and each node the same share of the rest.
        """
        kinds = [repr(n.target) for n in self.case.graph.nodes if n.is_compute]
        types = [
            (kind, *map(self.tensor_type, self.inputs[name])) for kind, name in zip(kinds, self.compute, strict=True)
        ]
        by_kind, by_tensor_type = (
            {k: 0.45 / (len(counted) * n) for k, n in counted.items()} for counted in (Counter(kinds), Counter(types))
        )
        each = 0.1 / max(len(kinds), 1)
        return tuple(
            each + by_kind[kind] + by_tensor_type[tensor_type] for kind, tensor_type in zip(kinds, types, strict=True)
        )

    @cached_property
    def atoms(self) -> tuple[tuple[str, ...], ...]:
        """The groups of compute nodes that can only be removed together, in the order of their first node.

        One group is a node that makes an opaque value with the ``getitem`` nodes that read it, or the two nodes that
        switch a state on and off, or a functorch region. Any other node is a group of its own.
        """
        return self._grouped(PAIRS, REGIONS)

    @cached_property
    def pieces(self) -> tuple[tuple[str, ...], ...]:
        """The atoms inside functorch regions, if each region counted only as the two nodes that open and close it."""
        if not self.brackets:
            return ()
        whole = set(self.atoms)
        return tuple(group for group in self._grouped(PAIRS | REGIONS, {}) if group not in whole)

    @cached_property
    def wrappers(self) -> tuple[tuple[str, ...], ...]:
        """For each functorch region the nodes that open and close it, and those that wrap or unwrap values in it."""
        found, open_regions = [], []
        closing = set(REGIONS.values())
        for name in self.compute:
            kind = self.kind(name)
            if kind in REGIONS:
                open_regions.append([name])
            elif open_regions and (kind in WRAPPERS or kind in closing):
                open_regions[-1].append(name)
                if kind in closing:
                    found.append(tuple(open_regions.pop()))
        return tuple(found)

    def _grouped(self, pairs: dict[str, str], regions: dict[str, str]) -> tuple[tuple[str, ...], ...]:
        leader = {name: name for name in self.compute}

        def find(name: str) -> str:
            while leader[name] != name:
                name = leader[name] = leader[leader[name]]
            return name

        def join(a: str, b: str) -> None:
            first, second = sorted((find(a), find(b)), key=self.position.__getitem__)
            leader[second] = first

        closing = set(pairs.values())
        open_pairs: list[tuple[str, str]] = []
        region: list[tuple[str, str]] = []
        for name in self.compute:
            kind = self.kind(name)
            if kind == "getitem":
                for source in self.inputs[name][:1]:
                    if source in leader and self.value(source).kind is ValueKind.OPAQUE:
                        join(source, name)
            if region:
                join(region[-1][0], name)
            if region and kind == region[-1][1]:
                region.pop()
            elif kind in regions:
                region.append((name, regions[kind]))
            elif kind in pairs:
                open_pairs.append((name, pairs[kind]))
            elif kind in closing:
                match = next((i for i in reversed(range(len(open_pairs))) if open_pairs[i][1] == kind), None)
                if match is not None:
                    join(open_pairs.pop(match)[0], name)
        groups: dict[str, list[str]] = {}
        for name in self.compute:
            groups.setdefault(find(name), []).append(name)
        return tuple(tuple(g) for g in groups.values())


def leaves(value: Value) -> Iterator[Value]:
    """The values inside nested containers, in order. Keys of dictionaries are left out."""
    kind = tag(value)
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif kind in ("tuple", "size", "set", "frozenset"):
        yield from leaves(value[kind])
    elif kind == "dict":
        for _, item in value["dict"]:
            yield from leaves(item)
    elif kind == "return_type":
        yield from leaves(value["return_type"][1])
    else:
        yield value


def reached(edges: Mapping[Key, Iterable[Key]], start: Iterable[Key]) -> frozenset[Key]:
    """``start`` and everything that can be reached from it along ``edges``."""
    seen = set(start)
    stack = list(seen)
    while stack:
        for name in edges[stack.pop()]:
            if name not in seen:
                seen.add(name)
                stack.append(name)
    return frozenset(seen)


def _holds_tensor(value: Value) -> bool:
    if type(value) is list:
        return any(map(_holds_tensor, value))
    if type(value) is dict and "ref" not in value:
        return "tensor" in value or "generator" in value or any(map(_holds_tensor, value.values()))
    return False


_UNKNOWN = Recorded(ValueKind.OPAQUE)
