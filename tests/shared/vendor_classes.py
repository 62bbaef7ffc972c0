"""Classes of tensors as an installed package has them."""

from typing import Any

import torch


class Unit(torch.Tensor):
    """Carries a unit."""

    unit: str


class Scaled(torch.Tensor):
    """Every relu adds one."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        return out + 1 if func is torch.relu else out


class Weight(torch.nn.Parameter):
    """A parameter with the number of its shard."""

    shard: int


class Loud(torch.Tensor):
    """Shows that it is looked at."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was called")
