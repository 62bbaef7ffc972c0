"""Tensors of a class of a program, such as ``class Tagged(torch.Tensor)``: data of their own, and attributes.

A document has the name of the class and the attributes. Loading the imports of a case registers its classes under
their names. A class that wraps other tensors (``__torch_dispatch__``) has no data of its own and is not one of these.

Dynamo turns off ``__torch_function__`` while it calls a compiled graph, because the graph has the effect already.
`without_overrides` does the same for a function that is called without Dynamo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor

_TORCH = (torch.Tensor, torch.nn.Parameter)
_classes: dict[str, type[torch.Tensor]] = {}
_names: dict[type, str] = {}


def register(name: str, cls: type[torch.Tensor]) -> None:
    """Let documents call ``cls`` by ``name``."""
    _classes[name], _names[cls] = cls, name


def name_of(tensor: torch.Tensor) -> str | None:
    """The registered name of the class of ``tensor``, None if it has none."""
    return _names.get(type(tensor))


def find(name: str) -> type[torch.Tensor] | None:
    return _classes.get(name)


def has_own_class(value: object) -> bool:
    """Whether ``value`` is a tensor with data of its own and a class that is not torch's."""
    return (
        isinstance(value, torch.Tensor)
        and type(value) not in _TORCH
        and not isinstance(value, FakeTensor)
        and not is_functorch_wrapped_tensor(value)
        and type(value).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        and not type(value).__module__.startswith("torch.")
    )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf of torch's own class over the storage of ``tensor``, which has a class of its own."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        return torch.Tensor._make_subclass(torch.Tensor, tensor.detach(), tensor.requires_grad)


def bare(value: Any) -> Any:
    """`plain` of a tensor with a class of its own, any other value as it is."""
    return plain(value) if has_own_class(value) else value


def like(original: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """``made`` as a leaf of the class of ``original``, with its attributes."""
    with torch._C.DisableTorchFunctionSubclass():
        requires_grad = original.requires_grad
    return of_class(type(original), made, vars(original), requires_grad=requires_grad)


def of_class(
    cls: type[torch.Tensor], made: torch.Tensor, attributes: dict[str, Any], *, requires_grad: bool
) -> torch.Tensor:
    """``made`` as a leaf of class ``cls`` with these attributes."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        tensor: torch.Tensor = torch.Tensor._make_subclass(cls, made.detach(), requires_grad)
    vars(tensor).update(attributes)
    return tensor


def without_overrides(function: Callable[..., Any], inputs: Iterable[object]) -> Callable[..., Any]:
    """``function``, called without ``__torch_function__`` of the classes of ``inputs``, if they have any."""
    if not any(map(has_own_class, inputs)):
        return function

    @wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    return call


def overrides_off(inputs: Iterable[object]) -> AbstractContextManager[Any]:
    """A context without ``__torch_function__`` of the classes of ``inputs``, if they have any."""
    return torch._C.DisableTorchFunctionSubclass() if any(map(has_own_class, inputs)) else nullcontext()
