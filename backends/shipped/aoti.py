"""``fxminify_aoti``: AOTInductor as a backend, which exports, packages, loads and calls each graph.

The hook uses it for programs that call ``torch._inductor.aoti_compile_and_package`` themselves. A script has the text
of `aot_inductor` and needs only torch, so the function uses nothing else of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def aot_inductor(
    gm: torch.fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Package ``gm`` with AOTInductor and load it. ``options`` are settings of Inductor; sizes are static."""
    with torch._guards.tracing(None):  # a graph that Dynamo compiles is exported on its own
        values = tuple(int(v) if isinstance(v, torch.SymInt) else v for v in inputs)
        package = torch._inductor.aoti_compile_and_package(torch.export.export(gm, values), inductor_configs=options)
        return torch._inductor.aoti_load_package(package)


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of Inductor among the ``options`` of a program that packages. Options of the file are left out."""
    others = ("aot_inductor.package", "aot_inductor.output_path")
    return {name: value for name, value in options.items() if not name.startswith(others)}
