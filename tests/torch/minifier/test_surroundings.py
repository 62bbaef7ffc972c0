"""What stands around a graph goes, entry by entry, but for what a backend looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from made import Held, canonicalize
from torch._dynamo import register_backend

from fxminify.minifier.oracle.observe import observe
from fxminify.minifier.passes.surroundings import default_arguments, default_context
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode

CONTEXT: dict[str, Any] = {
    "grad": False,
    "default_dtype": "float64",
    "autocast": {"cpu": {"dtype": "bfloat16", "cache": False}},
    "deterministic": {"warn_only": True},
    "matmul_precision": "high",
    "sdp": {"flash": False, "math": False},
    "config": {
        "torch._inductor.config": {"max_fusion_size": 4, "fallback_random": True},
        "torch._dynamo.config": {"specialize_float": True},
    },
}
#: What the failure needs, how the backend sees it, and what is left of the context.
NEEDS: dict[str, tuple[Callable[[], bool], dict[str, Any]]] = {
    "nothing": (lambda: True, {}),
    "no gradients": (lambda: not torch.is_grad_enabled(), {"grad": False}),
    "float64": (lambda: torch.get_default_dtype() is torch.float64, {"default_dtype": "float64"}),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), {"autocast": {"cpu": {"dtype": "bfloat16"}}}),
    "no cache": (lambda: not torch.is_autocast_cache_enabled(), {"autocast": CONTEXT["autocast"]}),
    "determinism": (torch.are_deterministic_algorithms_enabled, {"deterministic": {"warn_only": False}}),
    "warnings": (torch.is_deterministic_algorithms_warn_only_enabled, {"deterministic": {"warn_only": True}}),
    "tf32": (lambda: torch.get_float32_matmul_precision() == "high", {"matmul_precision": "high"}),
    "no flash": (lambda: not torch.backends.cuda.flash_sdp_enabled(), {"sdp": {"flash": False}}),
    "small fusions": (
        lambda: torch._inductor.config.max_fusion_size == 4,
        {"config": {"torch._inductor.config": {"max_fusion_size": 4}}},
    ),
    "two": (
        lambda: torch._inductor.config.fallback_random and torch._dynamo.config.specialize_float,
        {"config": {"torch._inductor.config": {"fallback_random": True},
                    "torch._dynamo.config": {"specialize_float": True}}},
    ),
}  # fmt: skip


@pytest.fixture
def looks() -> Iterator[dict[str, Callable[..., bool]]]:
    """A backend that fails where ``["at"](options)`` says so."""
    at: dict[str, Callable[..., bool]] = {}

    @register_backend(name="looks")
    def looks(gm: torch.fx.GraphModule, inputs: list[Any], **given: Any) -> Any:
        if at["at"](**given):
            raise RuntimeError("as it looked")
        return gm.forward

    yield at
    torch._dynamo.backends.registry._COMPILER_FNS.pop("looks")


def fails(held: Held, entry: str = "direct") -> Callable[..., bool]:
    def same(case: Case) -> bool:
        failure = observe(case, held, entry).failure
        return failure is not None and "as it looked" in failure.message

    return same


def made(**more: Any) -> tuple[Case, Held]:
    encoded = encode(torch.fx.symbolic_trace(lambda x: x.relu()), [torch.ones(2)])
    backend = {"name": "looks", "how": "registered", "target": "looks", **more.pop("backend", {})}
    return Case(encoded.graph, encoded.inputs, encoded.tensors, backend=backend, **more), Held(encoded.blobs)


@pytest.mark.parametrize("needed", NEEDS)
def test_of_the_context_stays_what_the_backend_looks_at(needed: str, looks: dict[str, Callable[..., bool]]) -> None:
    looks["at"], left = NEEDS[needed]
    case, held = made(context=CONTEXT)
    assert fails(held)(case)
    plain = canonicalize(case, held, fails(held))
    assert plain.context == left
    looks["at"] = lambda: False
    assert not fails(held)(case)


def dropped(simplification: Any, case: Case, same: Callable[[Case], bool]) -> tuple[Case, int]:
    candidates, asked = simplification(case, Held()), 0
    try:
        candidate = next(candidates)
        while True:
            asked += 1
            candidate = candidates.send(same(candidate))
    except StopIteration as end:
        return end.value, asked


def test_what_does_not_matter_goes_after_one_question() -> None:
    case, _ = made(context=CONTEXT, tolerance={"float32": 1e-2}, strict=True)
    plain, asked = dropped(default_context, case, lambda c: True)
    assert (plain.context, plain.tolerance, plain.strict, asked) == ({}, {}, False, 1)


def test_a_tolerance_stays_where_it_matters() -> None:
    case, _ = made(context={"grad": False}, tolerance={"float32": 1e-9, "float64": 1e-9}, strict=True)
    plain, _ = dropped(default_context, case, lambda c: "float32" in c.tolerance and c.strict)
    assert (plain.context, plain.tolerance, plain.strict) == ({}, {"float32": 1e-9}, True)


@pytest.mark.parametrize(
    ("needed", "left"),
    [
        (lambda **given: True, {}),
        (lambda **given: given.get("mode") == "max-autotune", {"mode": "max-autotune"}),
        (lambda options=None, **given: bool((options or {}).get("b")), {"options": {"dict": [["b", 2]]}}),
        (lambda options=None, **given: options is not None, {"options": {"dict": [["a", 1]]}}),
    ],
)
def test_of_the_arguments_stays_what_the_backend_is_given(
    needed: Callable[..., bool], left: dict[str, Any], looks: dict[str, Callable[..., bool]]
) -> None:
    looks["at"] = needed
    given = {"mode": "max-autotune", "options": {"dict": [["a", 1], ["b", 2]]}, "dynamic": False}
    case, held = made(backend=given)
    plain, _ = dropped(default_arguments, case, fails(held))
    assert {k: v for k, v in plain.backend.items() if k in given} == left


def test_dynamic_goes_where_sizes_need_not_be_symbolic(looks: dict[str, Callable[..., bool]]) -> None:
    looks["at"] = lambda **given: True
    case, held = made(backend={"dynamic": True})
    plain, asked = dropped(default_arguments, case, fails(held, "compile"))
    assert ("dynamic" in plain.backend, asked) == (False, 1)
    kept, _ = dropped(default_arguments, replace(case), lambda c: bool(c.backend.get("dynamic")))
    assert kept.backend["dynamic"] is True
