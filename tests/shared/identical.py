"""Equality of a round trip: the same bits, places and autograd state, or the first difference."""

from __future__ import annotations

import struct
from typing import Any

import torch
from torch import fx


def difference(a: Any, b: Any, where: str = "value") -> str | None:
    """Return the first difference between two values, or None if they are identical."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return _tensor_difference(a, b, where)
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} became {type(b).__name__}"
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where}: {len(a)} items became {len(b)}"
        return next(
            (d for i, (x, y) in enumerate(zip(a, b, strict=True)) if (d := difference(x, y, f"{where}[{i}]"))), None
        )
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{where}: other keys"
        return next((d for k in a if (d := difference(a[k], b[k], f"{where}[{k!r}]"))), None)
    if isinstance(a, float):
        return None if struct.pack("d", a) == struct.pack("d", b) or a != a != b else f"{where}: {a} became {b}"
    if isinstance(a, complex):
        return difference([a.real, a.imag], [b.real, b.imag], where)
    if isinstance(a, slice):
        return difference([a.start, a.stop, a.step], [b.start, b.stop, b.step], where)
    if isinstance(a, torch.Generator):
        return _tensor_difference(a.get_state(), b.get_state(), where)
    if isinstance(a, torch.finfo | torch.iinfo):
        return None if a.dtype == b.dtype else f"{where}: {a} became {b}"
    return None if a == b else f"{where}: {a!r:.80} became {b!r:.80}"


def _tensor_difference(a: Any, b: Any, where: str) -> str | None:
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} became {type(b).__name__}"
    for name in ("dtype", "device", "layout", "shape", "requires_grad", "is_leaf", "is_quantized"):
        if getattr(a, name) != getattr(b, name):
            return f"{where}: {name} {getattr(a, name)} became {getattr(b, name)}"
    if a.is_inference() != b.is_inference():
        return f"{where}: inference differs"
    if a.layout is not torch.strided or a.is_quantized:
        return difference(_pieces(a), _pieces(b), where)
    for name in ("stride", "is_conj", "is_neg"):
        if getattr(a, name)() != getattr(b, name)():
            return f"{where}: {name} {getattr(a, name)()} became {getattr(b, name)()}"
    if a.device.type == "meta" or _bits(a) == _bits(b):
        return None
    return f"{where}: other values"


def _pieces(t: torch.Tensor) -> list[Any]:
    t = t.detach()
    if t.is_quantized:
        if t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return [str(t.qscheme()), t.q_scale(), t.q_zero_point(), t.int_repr()]
        return [t.q_per_channel_axis(), t.q_per_channel_scales(), t.q_per_channel_zero_points(), t.int_repr()]
    if t.layout is torch.sparse_coo:
        return [t.is_coalesced(), t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]


def _bits(t: torch.Tensor) -> bytes:
    with torch.no_grad(), torch.inference_mode(False):
        t = t.detach().resolve_conj().resolve_neg()
        size = t.element_size()
        flat = torch.empty(t.shape, dtype=t.dtype)
        raw, source = (x.view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8) for x in (flat, _dense(t)))
        raw.copy_(source)
        assert raw.numel() == t.numel() * size
        return raw.numpy().tobytes()


def _dense(t: torch.Tensor) -> torch.Tensor:
    """The elements in a contiguous tensor, copied as bytes: not every dtype can be copied as itself."""
    item = t.element_size()
    storage = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage(), 0, (t.untyped_storage().nbytes(),), (1,))
    shape, stride = (*t.shape, item), (*(s * item for s in t.stride()), 1)
    return (
        storage.as_strided(shape, stride, t.storage_offset() * item)
        .contiguous()
        .reshape(-1)
        .view(t.dtype)
        .reshape(t.shape)
    )


def places(tensors: list[torch.Tensor]) -> list[Any]:
    """Return the tensors that share a storage, the distances of their beginnings, and the identical objects."""
    dense = [t for t in tensors if t.layout is torch.strided and not t.is_quantized and t.device.type != "meta"]
    out = []
    for i, a in enumerate(dense):
        for j, b in enumerate(dense[:i]):
            if a.untyped_storage()._cdata == b.untyped_storage()._cdata:
                apart = a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size()
                out.append((i, j, apart, a is b))
    return out


def tensors_in(x: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def graph_difference(a: fx.GraphModule, b: fx.GraphModule, where: str = "graph") -> str | None:
    """The first difference between two graphs, node by node, targets by identity, sub-graphs included."""
    left, right = list(a.graph.nodes), list(b.graph.nodes)
    if len(left) != len(right) or a.training != b.training:
        return f"{where}: {len(left)} nodes became {len(right)}, or another mode"
    for x, y in zip(left, right, strict=True):
        here = f"{where}.{x.name}"
        if (x.name, x.op) != (y.name, y.op):
            return f"{here}: became {y.op} {y.name}"
        if x.target is not y.target and not (isinstance(x.target, str) and x.target == y.target):
            return f"{here}: target {x.target} became {y.target}"
        plain = (_named((x.args, dict(x.kwargs))), _named((y.args, dict(y.kwargs))))
        if found := difference(*plain, here):
            return found
        if x.op in ("get_attr", "call_module") and (found := _attribute_difference(a, b, x.target, here)):
            return found
    return None


def _named(x: Any) -> Any:
    if isinstance(x, fx.Node):
        return f"%{x.name}"
    if isinstance(x, torch.Size) or (isinstance(x, tuple) and type(x).__module__ == "torch.return_types"):
        return x
    if isinstance(x, tuple):
        return tuple(_named(i) for i in x)
    if isinstance(x, list):
        return [_named(i) for i in x]
    if isinstance(x, dict):
        return {k: _named(v) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(_named(x.start), _named(x.stop), _named(x.step))
    if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        return x.node.hint
    return x


def _attribute_difference(a: Any, b: Any, path: str, where: str) -> str | None:
    for name in path.split("."):
        a, b = getattr(a, name), getattr(b, name)
    if isinstance(a, fx.GraphModule) and isinstance(b, fx.GraphModule):
        return graph_difference(a, b, where)
    if isinstance(a, torch.nn.Module):
        if type(a) is not type(b) or a.training != b.training or a.extra_repr() != b.extra_repr():
            return f"{where}: {a!r:.80} became {b!r:.80}"
        return difference(dict(a.state_dict()), dict(b.state_dict()), where)
    return difference(a, b, where)
