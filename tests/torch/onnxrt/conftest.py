"""Comparison with eager: same results, same layout, same effects on inputs, same gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fxminify.backends.shipped.onnxrt import Storage, compile_fx

LOOSE = {torch.float16: 2e-2, torch.bfloat16: 6e-2}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


def same(actual: Any, expected: Any) -> None:
    """Equal in type, and for tensors in dtype, shape, strides, and numbers to 1e-4 of the largest."""
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if expected.numel() and 0 not in expected.stride():
            assert actual.stride() == expected.stride()
        close(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual == expected


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = LOOSE.get(expected.dtype, 1e-4)
    kind = torch.complex128 if expected.dtype.is_complex else torch.float64
    wide = expected.to(kind)
    scale = max(1.0, float(wide.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual.to(kind), wide, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


class Comparison:
    """A function under the backend beside eager. ``storage`` is what the last run left."""

    def __init__(self) -> None:
        self.storage = Storage()

    @property
    def islands(self) -> list[str]:
        return sorted({i.target for report in self.storage.reports for i in report.islands})

    def __call__(
        self,
        function: Callable[..., Any],
        *calls: tuple[Any, ...],
        grad: bool = False,
        dynamic: bool | None = False,
        **options: Any,
    ) -> None:
        """Compare each call of ``calls``; with ``grad`` also the gradients of every floating-point input."""
        torch._dynamo.reset()
        self.storage = Storage()
        given = {"storage": self.storage, **options}
        compiled = torch.compile(function, backend=compile_fx, dynamic=dynamic, options=given, fullgraph=True)
        for call in calls:
            runs = []
            for fn in (function, compiled):
                args = copy.deepcopy(call)
                if grad:
                    for arg in args:
                        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
                            arg.requires_grad_()
                torch.manual_seed(0)
                out = fn(*args)
                if grad:
                    leaves = [o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad]
                    sum(
                        (o.float() * (torch.arange(o.numel()).reshape(o.shape) % 7 - 2)).sum() for o in leaves
                    ).backward()
                runs.append((out, args, [getattr(a, "grad", None) for a in args] if grad else []))
            (expected, expected_args, expected_grads), (actual, actual_args, actual_grads) = runs
            same(actual, expected)
            same(actual_args, expected_args)
            for one, other in zip(actual_grads, expected_grads, strict=True):
                assert (one is None) == (other is None)
                if one is not None and other is not None:
                    assert (one.dtype, one.shape) == (other.dtype, other.shape)
                    close(one, other)


@pytest.fixture
def compare() -> Comparison:
    return Comparison()
