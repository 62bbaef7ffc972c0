"""Failures, cases and JSON with their texts masked, and the code in them as it is.

A *mask* is a function from text to text, such as `fxminify.store.private_values.PrivateValues.mask`. What is code
stays: targets, arguments, options, expressions, embedded source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .document.case import Case, Graph, Json
from .document.program_lines import KEYS
from .failure import Failure

Mask = Callable[[str], str]
#: In the provenance of a capture: the version of fxminify that masked what was private where it was captured.
MASKED = "masked_by"


def masked_failure(failure: Failure, mask: Mask, names: Mask | None = None) -> Failure:
    """``failure`` with all its texts masked, but for the names of nodes. ``names``, by default ``mask``, is applied to
    the names of files and functions, which are part of a signature."""
    named = names or mask
    return replace(
        failure,
        message=mask(failure.message),
        causes=tuple((kind, mask(text)) for kind, text in failure.causes),
        frames=tuple(replace(f, file=mask_file(f.file, named), function=named(f.function)) for f in failure.frames),
        diagnostics=mask(failure.diagnostics),
        detail={key: value if key == "nodes" else masked_json(value, mask) for key, value in failure.detail.items()},
    )


def masked_case(case: Case, mask: Mask, folder: Callable[[str], str]) -> Case:
    """``case`` with the lines of the program that its nodes come from masked, and the names of the files from which
    source is embedded. ``folder`` is applied to the directories from which modules are imported; without a text they
    go."""
    backend = _masked_origin(case.backend, mask, folder)
    if isinstance(source := backend.get("source"), dict):
        backend["source"] = _masked_origin(source, mask, folder)
    if isinstance(copied := backend.get("copied"), dict) and isinstance(source := copied.get("source"), dict):
        backend["copied"] = {**copied, "source": _masked_origin(source, mask, folder)}
    imports = tuple(_masked_origin(item, mask, folder) for item in case.imports)
    return replace(case, graph=_masked_graph(case.graph, mask), backend=backend, imports=imports)


def _masked_origin(doc: Mapping[str, Any], mask: Mask, folder: Callable[[str], str]) -> Json:
    out = dict(doc)
    if isinstance(file := doc.get("file"), str):
        out["file"] = mask_file(file, mask)
    if paths := doc.get("search_path"):
        out["search_path"] = [kept for path in paths if (kept := folder(path))]
    return {key: value for key, value in out.items() if key != "search_path" or value}


def masked_json(value: Any, mask: Mask) -> Any:
    """``value`` with all its texts masked, but for the keys of objects."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: masked_json(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_json(item, mask) for item in value)
    return value


def masked_provenance(provenance: Json, mask: Mask) -> Json:
    """Return the provenance of a capture, masked. The name of the backend is code, and stays."""
    return {key: value if key == "backend" else masked_json(value, mask) for key, value in provenance.items()}


def mask_file(file: str, mask: Mask) -> str:
    """The name of a file, masked as the last part of a path: what it is called tells failures apart."""
    return mask(f"/{file}").removeprefix("/") if file and not file.startswith(("<", "/")) else mask(file)


def _masked_graph(graph: Graph, mask: Mask) -> Graph:
    nodes = tuple(
        replace(node, meta={key: mask(text) if key in KEYS and isinstance(text, str) else text
                            for key, text in node.meta.items()}) if any(key in node.meta for key in KEYS) else node
        for node in graph.nodes
    )  # fmt: skip
    attrs: dict[str, Json] = {
        path: {**attr, "graph": _masked_graph(attr["graph"], mask)} if "graph" in attr else attr
        for path, attr in graph.attrs.items()
    }
    return replace(graph, nodes=nodes, attrs=attrs)
