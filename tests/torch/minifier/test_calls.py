"""A minimal graph calls operators by the names that programs use, where the failure allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from made import Held, canonicalize
from torch._dynamo import register_backend

from fxminify.minifier.oracle.observe import observe
from fxminify.repro_templates.source.function import print_graph
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode

aten = torch.ops.aten


def overloads(x: Any) -> Any:
    y = aten.add.Tensor(x, x)
    z = aten.view.default(y, [4])
    return aten._softmax.default(z, 0, False), aten.amax.default(z, [0])


@pytest.fixture(params=[lambda target: True, lambda target: target is aten.view.default], ids=["all", "but one"])
def refuses(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A backend that fails where a call is one of those it looks for."""

    @register_backend
    def refuses(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if any(request.param(node.target) for node in gm.graph.nodes):
            raise RuntimeError("refused")
        return gm.forward

    yield request.param
    torch._dynamo.backends.registry._COMPILER_FNS.pop("refuses")


def case_for(backend: dict[str, Any]) -> tuple[Case, Held]:
    encoded = encode(torch.fx.symbolic_trace(overloads), [torch.ones(2, 2)])
    return Case(encoded.graph, encoded.inputs, encoded.tensors, backend=backend), Held(encoded.blobs)


def test_operators_are_called_as_programs_do(refuses: Callable[..., Any]) -> None:
    case, held = case_for({"name": "refuses", "how": "registered", "target": "refuses"})

    def same(case: Case) -> bool:
        failure = observe(case, held, "direct").failure
        return failure is not None and failure.message == "refused"

    assert same(case)
    text = print_graph(canonicalize(case, held, same)).text
    assert "torch.add(x, x)" in text or "x + x" in text
    assert "torch.amax(" in text
    assert "aten._softmax.default(" in text  # no program can call it otherwise
    kept = not refuses(None)
    assert ("torch.ops.aten.view.default(" in text, ".view([" in text) == (kept, not kept)


def test_what_is_traced_again_keeps_its_overloads() -> None:
    case, held = case_for({"name": "inductor", "how": "registered", "target": "inductor"})
    asked: list[Case] = []

    def same(case: Case) -> bool:
        asked.append(case)
        return True

    plain = canonicalize(case, held, same)
    targets = [node.target for each in [plain, *asked] for node in each.graph.compute]
    assert {"op": "aten::amax.default"} in targets
    assert all(isinstance(target, dict) and "op" in target for target in targets)
