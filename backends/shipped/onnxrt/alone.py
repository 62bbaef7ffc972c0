"""Check the translation of a single call against eager: `check`.

The call becomes a graph of one node, which is translated and run as a part of a user's graph would be. The results are
compared as ``--check`` compares them, except that strides and shared memory do not count.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ...comparison.compare import CannotCompare, Differences, Divergence
from ...comparison.reference import Reference
from ...running.execution import copy_inputs, execute
from ...running.shared import SharedStorages
from . import runtime
from .options import OnnxrtOptions
from .patterns import hint, used_results
from .report import NO_KERNEL, short_message
from .results import results_of
from .translate import translate

#: Calls on more elements are not made up.
MOST_ELEMENTS = 1 << 24
#: Operators without a tag of torch's that pick elements.
_PICKS = frozenset({"aten::topk", "aten::sort", "aten::sort.stable", "aten::max.dim", "aten::min.dim"})
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 1e30, -1e30, 1e-40, 3.0)
#: Fewer elements have no room for special numbers beside others.
_ENOUGH = 20
#: The kinds of divergences that are no matter of the values of a result.
_LAYOUT = ("stride", "alias", "mutation")
_NAMES = re.compile(r"\b(?:node|val|input|getitem)_\w+|'[^']*'|\([^()]*\)")
_OF_ONNX_RUNTIME = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : (?:This is an invalid model\. )?")
_LONGEST = 200
#: A reason begins so if it is ONNX Runtime that cannot run a translation.
REFUSES = "ONNX Runtime "


class CannotCheck(Exception):
    """A call cannot be checked. The message says why."""


def check(
    node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], options: OnnxrtOptions, providers: tuple[Any, ...]
) -> str:
    """Return how the translation of a call on ``values``, by argument, differs from eager; empty if it does not.

    Raises `CannotCheck` if eager raises, or if a value has not the promised dtype. Do not call it under a fake mode.
    """
    gm = graph_of(node)
    inputs = [values[argument] for argument in node.all_input_nodes]
    for argument, value in zip(node.all_input_nodes, inputs, strict=True):
        if isinstance(value, torch.Tensor) and value.dtype != argument.meta["val"].dtype:
            raise CannotCheck(f"{argument.target} gives another dtype than it promises")

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: tuple(_plain(value) for value in function(*given))

    with torch.no_grad():
        try:
            expected = execute(plain(gm), copy_inputs(inputs))
        except Exception as exc:
            raise CannotCheck(f"eager raises {short_message(exc)}") from exc
        try:
            plan = results_of(gm, views=False)
            translation = translate(gm, plan, {}, options.target_opset, options.optimize)
            session, _ = runtime.make(translation.model, options, providers)
            runner = runtime.Runner(gm, session, translation)
            actual = execute(plain(lambda *given: runner(given)), copy_inputs(inputs))
        except Exception as exc:  # noqa: BLE001  the exporter and sessions raise errors of every kind
            return _refusal(exc)
        reference = Reference(SharedStorages(gm, inputs))
        try:
            found = Differences(expected, actual).judged(reference)
        except CannotCompare as exc:
            return str(exc)
    return _said(found)


def _said(found: Divergence | None) -> str:
    several = [] if found is None else [found, *found.others]
    kind = next((one.kind for one in several if one.kind not in _LAYOUT), "")
    what = kind if kind in ("dtype", "shape", "structure") else "value"
    return f"its translation gives another {what} than eager" if kind else ""


def _refusal(error: Exception) -> str:
    """Return why there is no translation, without the names of nodes."""
    text = short_message(error)
    if missing := NO_KERNEL.search(text):
        return f"{REFUSES}has no kernel for {missing[1]}"
    runtime_error = _OF_ONNX_RUNTIME.search(text)
    text = _NAMES.sub("...", text[runtime_error.end() :] if runtime_error else text)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"{REFUSES}refuses its translation: {text}" if runtime_error else f"the exporter fails: {text}"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _plain(value: Any) -> Any:
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value


def special(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> dict[torch.fx.Node, Any] | None:
    """Return ``values`` with NaN, infinities, zeros of both signs and other numbers at the edges of a dtype in them.

    None for an operator that multiplies and adds many elements, where eager itself depends on their order, for one that
    makes integers of numbers, which have none for NaN, and for arguments of few elements.
    """
    target: Any = node.target
    picks = target.name() in _PICKS or getattr(torch.Tag, "reduction", None) in target.tags
    integers = any(not v.is_floating_point() and v.dtype != torch.bool for v in _tensors(node.meta["val"]))
    if not picks and (integers or torch.Tag.pointwise not in target.tags):
        return None
    found = dict(values)
    floating = [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    for place, argument in enumerate(n for n in floating if values[n].numel() >= _ENOUGH):
        value = values[argument].detach().clone(memory_format=torch.contiguous_format)
        numbers = torch.tensor(_SPECIAL, dtype=torch.float64).to(value.dtype)
        flat = value.view(-1)
        chosen = torch.arange(flat.numel())[:: 2 + place]
        flat[chosen] = numbers[(chosen // (2 + place) + 3 * place) % len(numbers)]
        found[argument] = value
    return None if all(found[n] is values[n] for n in floating) else found


def graph_of(node: torch.fx.Node) -> torch.fx.GraphModule:
    """Return a graph that makes one call, with the same inputs, and returns a tuple of the results that are used."""
    graph = torch.fx.Graph()
    inputs: dict[torch.fx.Node, torch.fx.Node] = {}
    for argument in node.all_input_nodes:
        inputs[argument] = graph.placeholder(f"input_{argument.name}")
        inputs[argument].meta = {"val": argument.meta["val"]}
    call = graph.node_copy(node, inputs.__getitem__)
    value = node.meta.get("val")
    results = [call]
    if isinstance(value, tuple | list):
        results = []
        for place in used_results(node):
            results.append(graph.call_function(operator.getitem, (call, place)))
            results[-1].meta = {"val": value[place]}
    graph.output(tuple(results))
    return torch.fx.GraphModule({}, graph)


def made_up(node: torch.fx.Node, *, empty: bool = False) -> Iterator[dict[torch.fx.Node, Any]]:
    """Yield values for the arguments of a call, from the most telling ones to those that eager takes most likely.

    Integers beside floating-point numbers may be indices, so they are smaller than every size and every other number
    that is positive. ``empty``: sizes that depend on data are 0. Do not call it under a fake mode. Raises `CannotCheck`
    for a call on too many elements.
    """
    arguments = {n: n.meta["val"] for n in node.all_input_nodes}
    tensors = [v for v in arguments.values() if isinstance(v, torch.Tensor)]
    if sum(_elements(t, empty) for t in tensors) > MOST_ELEMENTS:
        raise CannotCheck(f"its arguments have more than {MOST_ELEMENTS} elements")
    numbers = [n for n in torch.utils._pytree.tree_leaves((node.args, node.kwargs)) if type(n) is int and n > 0]
    sizes = [s for t in tensors for s in _shape(t, empty) if s > 0]
    below = min([*sizes, *numbers], default=1)
    indices = any(t.is_floating_point() for t in tensors) and any(not t.is_floating_point() for t in tensors)
    ranges = [(0, below), (0, 1)] if indices else [(-4, 5), (1, 4), (0, below), (0, 1)]
    for low, high in ranges:
        generator = torch.Generator().manual_seed(0)
        yield {n: _value(v, empty, low, high, generator) for n, v in arguments.items()}
        if not any(not t.is_floating_point() and t.dtype != torch.bool for t in tensors):
            return


def _value(value: Any, empty: bool, low: int, high: int, generator: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor):
        return _number(value, empty)
    shape = _shape(value, empty)
    if value.is_floating_point():
        return torch.randn(shape, generator=generator).to(value.dtype).to(value.device)
    low, high = (0, 2) if value.dtype == torch.bool else (max(low, 0) if value.dtype == torch.uint8 else low, high)
    return torch.randint(low, high, shape, generator=generator).to(value.dtype).to(value.device)


def _number(value: Any, empty: bool) -> Any:
    if isinstance(value, torch.SymInt):
        return 0 if empty and value.node.hint is None else hint(value)
    if isinstance(value, torch.SymFloat):
        return 0.5 if value.node.hint is None else float(value.node.hint)
    return value


def _shape(value: torch.Tensor, empty: bool) -> Sequence[int]:
    return [int(_number(size, empty)) for size in value.shape]


def _elements(value: torch.Tensor, empty: bool) -> int:
    count = 1
    for size in _shape(value, empty):
        count *= size
    return count
