"""The function that a script defines, made of its printed source: what Dynamo traces. Imports torch."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from ...repro_templates.source.function import PrintedGraph, print_graph
from ...store.document.case import Blobs, Case
from ...store.live.build import build_value


def source_function(case: Case, blobs: Blobs, *, public: bool = True) -> tuple[PrintedGraph, Callable[..., Any]]:
    """Return the function that the script of ``case`` defines, with the tensors of its graph, and how it is printed.

    ``public``: see `print_graph`.
    """
    printed = print_graph(case, public=public)
    text = "\n".join(["import torch", *printed.imports, "", printed.text, ""])
    file = "<fxminify graph>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "fxminify_graph"}
    for constant in printed.constants:
        namespace[constant.name] = build_value({"tensor": constant.tensor}, case.tensors, blobs)
    exec(compile(text, file, "exec", dont_inherit=True), namespace)  # noqa: S102  printed from a validated case
    function: Callable[..., Any] = namespace[printed.name]
    return printed, function
