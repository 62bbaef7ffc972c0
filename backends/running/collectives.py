"""Collectives in one process: a graph that communicates with other ranks runs under torch's *fake* process group.

The fake group has the size and the rank of the program's group and does not communicate: each collective returns what
this rank passed to it. Compilers see the same graph. Values that depend on other ranks differ from the program's.
Only the default group is made again, because its name, which graphs contain, is always the same.

An import (`backends.provenance.libraries`) of this kind is ``{"processes": {"size": 2, "rank": 0}, "ops": [...]}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

#: Namespaces of operators that work on process groups.
NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional"})
#: The name that torch gives to the first group of a process.
_DEFAULT = "0"


def described() -> dict[str, Any]:
    """Describe the default group of this process as an import. Without one, describe a group of size 1."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return {"processes": {"size": 1, "rank": 0}, "ops": []}
    return {"processes": {"size": dist.get_world_size(), "rank": dist.get_rank()}, "ops": []}


def problems(gm: fx.GraphModule) -> list[str]:
    """Sentences on why process groups of ``gm`` cannot be made again."""
    others: dict[str, str] = {}
    for node in _collectives(gm):
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, str) and value != _DEFAULT and _is_group(value):
                others.setdefault(value, node.name)
    return [
        f"node {node!r} works on the process group {name!r}; only the default group can be made again"
        for name, node in others.items()
    ]


def communicates(gm: fx.GraphModule) -> str | None:
    """Return the name of the first node of ``gm`` that communicates with other processes, or None.

    A further run in this process would wait for a further run in the other processes.
    """
    import torch.distributed as dist

    first = next(_collectives(gm), None)
    alone = first is None or not dist.is_initialized() or dist.get_backend() == "fake"
    return None if alone or first is None else first.name


def _collectives(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes that call collectives, including nodes of subgraphs."""
    import torch

    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            target = node.target
            if isinstance(target, torch._ops.OpOverload):
                name = target.name()
            else:
                name = getattr(target, "_qualified_op_name", "")
            if name.partition("::")[0] in NAMESPACES:
                yield node


def start(item: Mapping[str, int]) -> None:
    """Start the fake group with this process as rank ``item["rank"]``, unless the process has a group."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=item["rank"], world_size=item["size"])


def to_source(item: Mapping[str, int]) -> tuple[list[str], str]:
    """The import lines of a script, and the line that does what `start` does."""
    imports = ["import torch.distributed", "from torch.testing._internal.distributed.fake_pg import FakeStore"]
    size, rank = item["size"], item["rank"]
    call = f'torch.distributed.init_process_group("fake", store=FakeStore(), rank={rank}, world_size={size})'
    return imports, call


def _is_group(name: str) -> bool:
    from torch.distributed import distributed_c10d

    return any(str(known) == name for known in distributed_c10d._world.pg_names.values())
