"""Recording what runs inside a higher-order operator. Imports torch.

While the operator runs, each of its bodies is *watched*: the first time it is called with tensors that are no
stand-ins, a recorder of its own runs it. A body that was not called (the other branch, what a checkpoint runs in its
own way) is run afterwards on copies of the operands, if these are known. What a body is given under another name
outside is noted, so that its nodes can take the place of the operator later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ...store.document.case import Value, tag
from ...store.live.modes import is_fake
from .hop_calls import Call, Path

if TYPE_CHECKING:
    from .recorder import Recorder


@contextmanager
def watched(outer: Recorder, made: Sequence[Call]) -> Iterator[None]:
    """Record the bodies of the calls that one node makes while it runs, the others of them afterwards."""
    modules = {path: _module(outer.module, (path,)) for call in made for path in call.paths}
    for path, module in modules.items():
        if id(module) not in outer.tape.returned:
            module.forward = _hook(outer, made, path, module)
    try:
        yield
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)
    for call in made:
        for path in call.paths:
            if id(modules[path]) not in outer.tape.returned:
                _run_aside(outer, call, path, modules[path])


def _hook(outer: Recorder, made: Sequence[Call], path: str, module: Any) -> Any:
    original = module.forward

    def forward(*args: Any) -> Any:
        if id(module) in outer.tape.returned or not all(map(_is_real, args)):
            return original(*args)
        module.__dict__.pop("forward", None)
        return _run(outer, made, path, module, args)

    return forward


def _run(outer: Recorder, made: Sequence[Call], path: str, module: Any, args: Sequence[Any]) -> Any:
    """Run a body on ``args`` and record it."""
    outer.tape.returned[id(module)] = None
    graph = outer.data.attrs[path]["graph"]
    names = {id(v): outer.names[n] for n, v in outer.env.items() if isinstance(v, torch.Tensor)}
    looks = {_look(v): outer.names[n] for n, v in reversed(outer.env.items()) if isinstance(v, torch.Tensor)}
    read = {name for call in made for name in call.node.inputs}
    for node, value in zip(graph.placeholders, args, strict=False):
        if isinstance(value, torch.Tensor):
            alias = names.get(id(value)) or looks.get(_look(value), "")
            if alias in read:
                outer.tape.alias[node.name] = alias
    result = outer.inner(module, graph).run(*args)
    outer.tape.returned[id(module)] = result
    return result


def _run_aside(outer: Recorder, call: Call, path: str, module: Any) -> None:
    """Run a body that the operator did not call, for what its nodes give."""
    placeholders = outer.data.attrs[path]["graph"].placeholders
    values = {outer.names[n]: v for n, v in outer.env.items()}
    operands = [_operand(value, values) for value in call.operands]
    if path not in call.shared or len(operands) != len(placeholders):
        saved = _results(outer, call, path)
        if len(saved) != len(placeholders):
            return
        operands = saved
    else:
        for node, value in zip(placeholders, call.operands, strict=True):
            if tag(value) == "ref":
                outer.tape.alias[node.name] = value["ref"]
    copies = [v.detach().clone().requires_grad_(v.requires_grad) if _is_copied(v) else v for v in operands]
    try:
        _run(outer, (), path, module, copies)
    except Exception:  # noqa: BLE001  a branch that was not taken may not run at all; its nodes just have no values
        outer.tape.returned[id(module)] = None


def _results(outer: Recorder, call: Call, path: str) -> list[Any]:
    """Stand-ins for what a backward function is given: gradients of ones and what the forward function saved."""
    first = outer.tape.returned.get(id(_module(outer.module, (call.paths[0],))))
    if path == call.paths[0] or not isinstance(first, tuple | list) or len(first) != 2:
        return []
    outputs, saved = ([*part] if isinstance(part, tuple | list) else [part] for part in first)
    return [torch.ones_like(t) if isinstance(t, torch.Tensor) else None for t in outputs] + saved


def _operand(value: Value, values: dict[str, Any]) -> Any:
    return values.get(value["ref"]) if tag(value) == "ref" else value


def _is_copied(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or not value.requires_grad)


def _is_real(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, fx.Proxy | torch.SymInt | torch.SymFloat | torch.SymBool)
    return not is_fake(value) and not torch._is_functional_tensor(value)


def _look(value: torch.Tensor) -> tuple[Any, ...]:
    try:
        return value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
    except RuntimeError:  # no storage, as fake and sparse tensors have none
        return (id(value),)


def _module(module: Any, path: Path) -> Any:
    for part in path:
        module = module.get_submodule(part)
    return module
