"""The fake kernels of operators of other libraries are compared with the operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from captured import capture, spec

from fxminify.minifier.tracing.fake_kernels import wrong

X = torch.zeros(2, 3, 17)


def pooled(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool1d(x, 2, ceil_mode=True)


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (lambda x: x.new_empty(2, 3, 9), ""),
        (lambda x: x.new_empty(2, 3, 8),
         "mine.pool, which returns float32[2, 3, 8] where the operator returns float32[2, 3, 9]"),
        (lambda x: x.new_empty(2, 3, 9, dtype=torch.float16),
         "mine.pool, which returns float16[2, 3, 9] where the operator returns float32[2, 3, 9]"),
        (lambda x: x.new_empty(3, 2, 9).transpose(0, 1),
         "mine.pool, which returns float32[2, 3, 9] with strides [9, 18, 1] "
         "where the operator returns float32[2, 3, 9] with strides [27, 9, 1]"),
    ],
)  # fmt: skip
def test_a_wrong_fake_kernel_is_found(fake: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    with torch.library._scoped_library("mine", "FRAGMENT") as library:
        library.define("pool(Tensor x) -> Tensor")
        library.impl("pool", pooled, "CPU")
        library.impl("pool", fake, "Meta")
        case, blobs = capture(lambda x: torch.ops.mine.pool(x.relu()) * 2, (X,), spec("healthy"))
        assert wrong(case, blobs) == words


def test_operators_of_torch_are_not_asked_about() -> None:
    case, blobs = capture(lambda x: torch.relu(x).sum(), (X,), spec("healthy"))
    assert wrong(case, blobs) == ""
