"""Backends of a team whose compilers, under AOTAutograd, each miss the lowering of one operator."""

from __future__ import annotations

from typing import Any

import torch
from functorch.compile import make_boxed_compiler
from torch._dynamo.backends.common import aot_autograd


def _refuse(gm: torch.fx.GraphModule, name: str) -> Any:
    if any(name in str(node.target) for node in gm.graph.nodes):
        raise NotImplementedError(f"no lowering for {name}")
    return gm.forward


def plain(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    return gm.forward


def without_sin(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    return _refuse(gm, "aten.sin")


def without_cos(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    return _refuse(gm, "aten.cos")


def fails_later(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    """Compiles everything; a backward graph with a cosine raises when it runs."""

    def run(*arguments: Any) -> Any:
        if any("aten.cos" in str(node.target) for node in gm.graph.nodes):
            raise RuntimeError("the kernel for cos is gone")
        return gm(*arguments)

    return run


forward = aot_autograd(fw_compiler=without_sin)
backward = aot_autograd(fw_compiler=plain, bw_compiler=without_cos)
boxed = aot_autograd(fw_compiler=make_boxed_compiler(plain), bw_compiler=make_boxed_compiler(without_cos))
inference = aot_autograd(fw_compiler=plain, inference_compiler=without_sin)
running = aot_autograd(fw_compiler=plain, bw_compiler=fails_later)
cosine = aot_autograd(fw_compiler=without_cos)


def inside(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    """A backend that calls AOTAutograd itself."""
    from torch._functorch.aot_autograd import aot_module_simplified

    compiler = make_boxed_compiler(without_cos)
    return aot_module_simplified(gm, inputs, fw_compiler=make_boxed_compiler(plain), bw_compiler=compiler)


def inductor(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    """Inductor without its lowering of one operator, which it has forgotten for good."""
    from torch._inductor import lowering
    from torch._inductor.compile_fx import compile_fx

    lowering.lowerings[torch.ops.aten.sinh.default] = _forgotten
    return compile_fx(gm, inputs)


def _forgotten(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("no lowering for aten.sinh")
