"""``fxminify_aoti``: AOTInductor as a backend, which exports, packages, loads and calls each graph.

The hook uses it for programs that call ``torch._inductor.aoti_compile_and_package`` themselves. A script has the text
of `aot_inductor` and needs only torch, so the function uses nothing else of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..provenance import origin
from ..provenance.spec import BackendSpec


def aot_inductor(
    gm: torch.fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Package ``gm`` with AOTInductor and load it. ``options`` are settings of Inductor; sizes are static."""
    with torch._guards.tracing(None):  # a graph that Dynamo compiles is exported on its own
        values = tuple(int(v) if isinstance(v, torch.SymInt) else v for v in inputs)
        package = torch._inductor.aoti_compile_and_package(torch.export.export(gm, values), inductor_configs=options)
        return torch._inductor.aoti_load_package(package)


def spec_of(options: dict[str, Any] | None) -> BackendSpec:
    """The spec that packages as a program did with ``options``, without the settings of the package itself."""
    kept = {name: value for name, value in (options or {}).items() if not name.startswith("aot_inductor.package")}
    kept.pop("aot_inductor.output_path", None)
    return origin.copied(aot_inductor, options=kept or None)
