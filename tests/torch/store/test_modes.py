"""What a graph enters and never leaves, because it raises in between, ends with the run; all of it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._C import _functorch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fxminify.store.live import modes


def saving(value: Any) -> Any:
    return value


def entering(context: Any) -> Callable[[], object]:
    return lambda: context().__enter__()


_C: Any = torch._C  # torch's stubs lack some names

#: What is entered, by what is noticed. The private names are those that Dynamo puts into its graphs.
LEAKS: dict[str, Callable[[], object]] = {
    "forward AD level": torch._C._enter_dual_level,
    "functorch levels": lambda: _functorch._vmap_increment_nesting(3, "error"),
    "functorch levels of jvp": lambda: _functorch._jvp_increment_nesting(),
    "functorch levels of grad": lambda: _functorch._grad_increment_nesting(),
    "function modes": entering(BaseTorchFunctionMode),
    "dispatch modes": entering(TorchDispatchMode),
    "function overrides": lambda: _C._set_torch_function_state(_C._TorchFunctionState.ALL_DISABLED),
    "saved-tensor hooks": entering(lambda: saved_tensors_hooks(saving, saving)),
    "saved-tensor hooks refused": lambda: torch._C._autograd._saved_tensors_hooks_disable("no hooks here"),
    "autocast nesting": lambda: torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, True),
    "grad mode": lambda: torch._C._set_grad_enabled(False),
    "forward grad mode": lambda: torch._C._set_fwd_grad_enabled(False),
    "inference mode": lambda: HELD.append(torch.autograd.grad_mode._enter_inference_mode(True)),
    "determinism": lambda: torch.use_deterministic_algorithms(True),
}
HELD: list[object] = []


@pytest.mark.parametrize("what", LEAKS)
def test_what_a_graph_leaves_active_is_noticed_and_ended(what: str) -> None:
    before = modes.active()
    with pytest.raises(KeyError, match="boom"), modes.as_it_was():  # noqa: PT012  the leak is what is tested
        LEAKS[what]()
        entered = modes.active()
        raise KeyError("boom")
    name = what.partition(" of ")[0]
    assert entered[name] != before[name]
    assert modes.active() == before
    HELD.clear()
    assert modes.active() == before


def test_a_candidate_that_raises_inside_jvp_leaves_no_level() -> None:
    def raising(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("boom")

    def nested(x: torch.Tensor) -> torch.Tensor:
        torch._C._enter_dual_level()  # as a graph of Dynamo does
        return raising(x)

    before = modes.active()
    for function in (nested, lambda x: torch.func.jvp(raising, (x,), (x,)), lambda x: torch.func.jacfwd(raising)(x)):
        with pytest.raises(KeyError, match="boom"), modes.as_it_was():
            function(torch.ones(3))
        assert modes.active() == before
        tangent = torch.func.jvp(torch.sin, (torch.zeros(3),), (torch.ones(3),))[1]
        assert torch.equal(tangent, torch.ones(3))


def test_what_was_active_before_stays() -> None:
    with (
        saved_tensors_hooks(saving, saving),
        BaseTorchFunctionMode(),
        torch.no_grad(),
        torch.autograd.forward_ad.dual_level(),
    ):
        before = modes.active()
        with modes.as_it_was():
            torch.ones(2).sin()
        assert modes.active() == before
        assert before["forward AD level"] == "True"
