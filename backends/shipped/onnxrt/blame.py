"""Which FX nodes to blame when the exporter or a session refuses a model, read from the message it leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

_NO_KERNEL = re.compile(r"Could not find an implementation for (\w+)\(")
_FAILED_NODE = re.compile(r"Error when translating node %?(\w+)")


def message(error: BaseException) -> str:
    """What an error and those it came from say, in one line."""
    texts, current = [], error
    while current is not None:
        texts.append(f"{type(current).__name__}: {current}")
        current = current.__cause__  # type: ignore[assignment]
    return " ".join(" | ".join(texts).split())


def short(error: BaseException) -> str:
    """The sentence of an error for a report: the innermost cause, bounded."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def blamed(gm: torch.fx.GraphModule, error: BaseException, op_types: Mapping[str, set[str]]) -> set[str]:
    """Names of the nodes of ``gm`` that an error names; empty where it names none."""
    text = message(error)
    nodes = {n.name for n in gm.graph.nodes if n.op == "call_function"}
    if failed := _FAILED_NODE.search(text):
        return {failed[1]} & nodes
    named = set()
    for word in re.findall(r"\bnode_(\w+)", text):
        # The outputs of one FX node are node_x__0, node_x__1 ..., other ONNX nodes of it node_x__12.
        named |= {word, word.rpartition("__")[0]} & nodes
    if named:
        return named
    missing = _NO_KERNEL.search(text)
    return {name for name in nodes if missing and missing[1] in op_types.get(name, ())}
