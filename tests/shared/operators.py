"""Calls of ATen operators, forward and backward, as torch's own operator database makes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: At most so many different calls of one overload, and so many samples of one entry of the database.
CALLS, SAMPLES = 3, 4
Call = tuple[tuple[Any, ...], dict[str, Any], Any]


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class Recorder(TorchDispatchMode):
    """Keeps calls of functional ATen operators with real, dense, small arguments, and what they returned."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[Any, list[Call]] = defaultdict(list)
        self._seen: dict[Any, set[str]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        fit = all(t.layout == torch.strided and t.numel() < 50_000 and not t.is_complex() for t in tensors)
        described = str([(str(v.dtype), v.dim()) if isinstance(v, torch.Tensor) else v for v in leaves])
        wanted = (
            func.namespace == "aten"
            and not func._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in func.tags
            and torch.Tag.data_dependent_output not in func.tags
            and not func.name().startswith(("aten::empty", "aten::new_empty"))
        )
        if not (wanted and fit and tensors) or len(self.calls[func]) >= CALLS or described in self._seen[func]:
            return func(*args, **kwargs)
        self._seen[func].add(described)
        kept = pytree.tree_map(_copy, (args, kwargs))
        out = func(*args, **kwargs)
        self.calls[func].append((*kept, pytree.tree_map(_copy, out)))
        return out


def recorded(names: Iterable[str] | None = None) -> dict[Any, list[Call]]:
    """Calls per overload, from the entries of the database called ``names``, or from all."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = None if names is None else set(names)
    recorder = Recorder()
    torch.manual_seed(0)
    for entry in op_db:
        if wanted is None or entry.name in wanted:
            _exercise(entry, recorder)
    return {op: calls for op, calls in recorder.calls.items() if calls}


def _exercise(entry: Any, recorder: Recorder) -> None:
    dtype = torch.float32 if torch.float32 in entry.dtypes else torch.int64
    grad = dtype == torch.float32 and entry.supports_autograd
    try:
        for number, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=grad)):
            if number >= SAMPLES:
                return
            with recorder:
                out = entry(sample.input, *sample.args, **sample.kwargs)
                outs = [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
                inputs = [t for t in pytree.tree_leaves((sample.input, sample.args)) if isinstance(t, torch.Tensor)]
                inputs = [t for t in inputs if t.requires_grad]
                if outs and inputs:
                    total = torch.stack([(o.abs() if o.is_complex() else o).sum() for o in outs]).sum()
                    torch.autograd.grad(total, inputs, allow_unused=True)
    except Exception:  # noqa: BLE001  samples exist that this build of torch cannot run
        return
