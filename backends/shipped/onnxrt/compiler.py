"""Compiling a graph: `compile_graph` calls AOTAutograd, and a `Compilation` compiles each ATen graph.

A compilation is a loop. It cuts the graph at the nodes that cannot run, and makes a session for each part. If the
exporter or a session refuses a node, that node becomes an island, and the loop starts again. With ``strict`` there are
no islands.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from ..options_reader import InvalidOption
from . import decompositions, partition, runtime
from .alone import REFUSES
from .evaluator import Evaluator
from .options import OnnxrtOptions
from .report import (
    NO_KERNEL,
    OnnxrtReport,
    Part,
    UnsupportedOperator,
    island,
    log,
    short_message,
    unsupported,
    whole_message,
)
from .results import results_of
from .runtime import RUNTIME_ERRORS, Runner
from .storage import StoredModel, keep, keep_report
from .translate import Translation, translate
from .trust import Trust


@dataclass(frozen=True, slots=True)
class Frozen:
    """The inputs of Dynamo's graph. AOTAutograd keeps their order unless it adds some."""

    inputs: list[Any]
    constant: list[bool]
    results: int

    @classmethod
    def of(cls, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Frozen:
        """Find the inputs of Dynamo's graph that are parameters or buffers of modules."""
        holders = gm.graph.find_nodes(op="placeholder")
        returned = torch.utils._pytree.tree_leaves(gm.graph.output_node().args)
        constant = [_is_state(n, t) for n, t in zip(holders, example_inputs, strict=True)]
        return cls(list(example_inputs), constant, len(returned))

    def constants(self, gm: torch.fx.GraphModule) -> dict[int, torch.Tensor]:
        """Positions of an ATen graph's inputs whose values are constant, with the values.

        None if positions cannot be matched. Empty if the graph returns more than Dynamo's did: then it changes inputs,
        perhaps the buffers.
        """
        holders = gm.graph.find_nodes(op="placeholder")
        returned = torch.utils._pytree.tree_leaves(gm.graph.output_node().args)
        mutates = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for n in gm.graph.nodes)
        if len(holders) != len(self.inputs) or len(returned) != self.results or mutates:
            return {}
        matched = all(_same(n.meta.get("val"), value) for n, value in zip(holders, self.inputs, strict=True))
        return {i: self.inputs[i] for i, constant in enumerate(self.constant) if constant} if matched else {}


def _is_state(node: torch.fx.Node, value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    source = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    name = source() if callable(source) else source
    return isinstance(value, torch.nn.Parameter) or "._buffers[" in name or "._parameters[" in name


def _same(expected: Any, value: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(value, torch.Tensor):
        return isinstance(expected, torch.Tensor) == isinstance(value, torch.Tensor)
    return expected.dtype == value.dtype and expected.dim() == value.dim()


_FAILED_NODE = re.compile(r"Error when translating node %?(\w+)")


def blamed(gm: torch.fx.GraphModule, error: BaseException, op_types: Mapping[str, set[str]]) -> set[str]:
    """The nodes of ``gm`` that an error names."""
    text = whole_message(error)
    nodes = {n.name for n in gm.graph.nodes if n.op == "call_function"}
    if failed := _FAILED_NODE.search(text):
        return {failed[1]} & nodes
    named = set()
    for word in re.findall(r"\bnode_(\w+)", text):
        # The outputs of one FX node are node_x__0, node_x__1 ..., other ONNX nodes of it node_x__12.
        named |= {word, word.rpartition("__")[0]} & nodes
    if named:
        return named
    missing = NO_KERNEL.search(text)
    return {name for name in nodes if missing and missing[1] in op_types.get(name, ())}


#: After this many rounds of eviction a part that still fails runs in PyTorch as a whole.
ROUNDS = 8

_count = itertools.count()


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: OnnxrtOptions, reference: bool = False
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's for inference, or for its forward and backward pass.

    ``reference``: the models are run by `evaluator.Evaluator`.
    """
    runtime.session_options(options.session_options)
    runtime.providers(options, example_inputs)
    frozen = Frozen.of(gm, example_inputs) if options.freeze else None

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_aten(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            constants = frozen.constants(graph) if frozen is not None and kind == "inference" else {}
            return _boxed(Compilation(graph, kind, options, constants, reference).run())

        return compile_aten

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions.table(options.decompositions),
        partition_fn=min_cut_rematerialization_partition,
    )
    with _attention(example_inputs):
        compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


def _attention(inputs: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """In training, attention as plain operators: the backward of the fused kernel has no ONNX form."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    trains = torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs)
    return sdpa_kernel(SDPBackend.MATH) if trains else contextlib.nullcontext()


def _boxed(run: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[list[Any]], Sequence[Any]]:
    """AOTAutograd's calling convention: one list, which the callee empties so that memory is freed early."""

    def boxed(args: list[Any]) -> Sequence[Any]:
        inputs = list(args)
        args.clear()
        return run(inputs)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


class _PartModule(torch.nn.Module):
    """A part that takes the place of its graph module."""

    def __init__(self, run: Callable[[Sequence[Any]], list[Any]], single: bool) -> None:
        super().__init__()
        self._run = run
        self._single = single

    def forward(self, *args: Any) -> Any:
        out = self._run(args)
        return out[0] if self._single else tuple(out)


class Compilation:
    """The compilation of one ATen graph. ``constants`` are inputs, by position, whose values may be built in."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        kind: str,
        options: OnnxrtOptions,
        constants: Mapping[int, torch.Tensor],
        reference: bool = False,
    ) -> None:
        self._gm = gm
        self._reference = reference
        self._options = options
        self._constants = constants
        self._report = OnnxrtReport(kind)
        self._evicted: set[str] = set()
        self._rounds = 0
        self._models: list[StoredModel] = []
        values = [n.meta.get("val") for n in gm.graph.nodes]
        self._providers = runtime.providers(options, torch.utils._pytree.tree_leaves(values))
        #: The nodes that PyTorch runs, by name, and why.
        self._islands = partition.refused(gm, Trust(options, self._providers).why_not)

    def run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The compiled graph. Raises `UnsupportedOperator` or what a session raised with ``strict``."""
        while (compiled := self._round()) is None:
            log.debug("again without %s", ", ".join(self._evicted))
        self._report.islands = [
            island(n, self._islands[n.name], n.name in self._evicted)
            for n in self._gm.graph.nodes
            if n.name in self._islands and n.target is not operator.getitem
        ]
        for model in self._models:
            keep(self._options.storage, model)
        keep_report(self._options.storage, self._report)
        log.info("%s", self._report.text())
        return compiled

    def _round(self) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
        """Make one attempt. Return None if it evicted nodes."""
        self._report.parts.clear()
        self._models.clear()
        if self._islands and self._options.strict:
            nodes = [n for n in self._gm.graph.nodes if n.name in self._islands]
            if any(reason.startswith(REFUSES) for reason in self._islands.values()):
                self._keep_refused()
            raise UnsupportedOperator(unsupported([island(n, self._islands[n.name]) for n in nodes]))
        if not self._islands:
            return self._part(self._gm, "model", self._constants)
        fused, parts = partition.cut(self._gm, self._islands)
        for name, part in parts.items():
            run = self._part(part, name.removeprefix("fxminify_"), partition.constants(fused, name, self._constants))
            if run is None:
                return None
            single = not isinstance(part.graph.output_node().args[0], tuple | list)
            setattr(fused, name, _PartModule(run, single))
        fused.recompile()
        return lambda inputs: fused.forward(*inputs)

    def _part(
        self, gm: torch.fx.GraphModule, name: str, constants: Mapping[int, torch.Tensor]
    ) -> Callable[[Sequence[Any]], list[Any]] | None:
        """A part as a callable; None if it failed and nodes were evicted."""
        op_types: dict[str, set[str]] = {}
        plan = results_of(gm)
        if not plan.computed:
            return lambda inputs: plan.assemble(inputs, [])
        try:
            translation = translate(gm, plan, constants, self._options.target_opset, self._options.optimize)
            op_types = translation.op_types
            made, proto = runtime.make(translation.model, self._options, self._providers)
        except InvalidOption:
            raise
        except Exception as error:
            if op_types:
                self._refused(gm, name, translation, error)
            if self._options.strict:
                raise self._strict(gm, error, op_types) from error
            self._evict(gm, error, op_types)
            return None
        self._report.parts.append(Part(name, _calls(gm), len(proto.graph.node), tuple(made.get_providers())))
        self._models.append(StoredModel(name, proto, gm, made, self._providers, self._report))
        self._dump(self._models[-1])
        if self._reference:
            return Evaluator(gm, proto, translation)
        runner = Runner(gm, made, translation)
        return runner if self._options.strict else _Watched(gm, runner, name, self._report)

    def _keep_refused(self) -> None:
        """Keep the model of the whole graph, if the exporter makes one and ONNX Runtime refuses it."""
        try:
            translation = translate(
                self._gm, results_of(self._gm), self._constants, self._options.target_opset, self._options.optimize
            )
        except Exception as error:  # noqa: BLE001  the exporter raises errors of every kind
            log.debug("there is no model of the graph: %s", short_message(error))
            return
        try:
            runtime.make(translation.model, self._options, self._providers)
        except InvalidOption:
            raise
        except Exception as error:  # noqa: BLE001  sessions raise errors of every kind
            self._refused(self._gm, "model", translation, error)

    def _refused(self, gm: torch.fx.GraphModule, name: str, translation: Translation, error: Exception) -> None:
        """Keep a model that ONNX Runtime refused, for the user to look at."""
        proto, size = runtime.proto(translation.model)
        if proto is None:
            log.warning("the model that was refused has %d bytes and is not kept", size)
            return
        model = StoredModel(name, proto, gm, None, self._providers, self._report, short_message(error))
        keep(self._options.storage, model)
        self._dump(model)

    def _dump(self, model: StoredModel) -> None:
        """Save a model, as ONNX and as text, and the graph it came from."""
        if self._options.dump_dir is None:
            return
        folder = Path(self._options.dump_dir)
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{next(_count):03}_{self._report.kind}_{model.name}{'_refused' if model.session is None else ''}"
        (folder / f"{stem}.onnx").write_bytes(model.onnx.SerializeToString())
        (folder / f"{stem}.onnx.txt").write_text(model.text())
        (folder / f"{stem}.fx.txt").write_text(model.graph_module.print_readable(print_output=False))

    def _strict(self, gm: torch.fx.GraphModule, error: Exception, op_types: Mapping[str, set[str]]) -> Exception:
        names = blamed(gm, error, op_types)
        nodes = [island(n, short_message(error)) for n in gm.graph.nodes if n.name in names]
        return UnsupportedOperator(
            unsupported(nodes) if nodes else f"strict: ONNX Runtime cannot run it: {short_message(error)}"
        )

    def _evict(self, gm: torch.fx.GraphModule, error: Exception, op_types: Mapping[str, set[str]]) -> None:
        names = blamed(gm, error, op_types) - set(self._islands)
        self._rounds += 1
        if not names or self._rounds > ROUNDS:
            names = {n.name for n in gm.graph.nodes if n.op == "call_function"} - set(self._islands)
        if not names:
            raise error
        reason = short_message(error)
        log.warning("left to PyTorch: %s: %s", ", ".join(sorted(names)), reason)
        self._evicted |= names
        picked = {n.name for n in self._gm.graph.nodes if _picks_from(n, names)}
        self._islands |= dict.fromkeys(names | picked, reason)


class _Watched:
    """A part that PyTorch runs, with a report, if the session fails. Graphs are functional: a second run is safe."""

    def __init__(self, gm: torch.fx.GraphModule, runner: Runner, name: str, report: OnnxrtReport) -> None:
        self._gm, self._runner, self._name, self._report = gm, runner, name, report

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        try:
            return self._runner(inputs)
        except RUNTIME_ERRORS as error:
            text = f"{self._name}: {short_message(error)}"
            if text not in self._report.failures:
                self._report.failures.append(text)
                log.warning("run in PyTorch instead: %s", text)
            out = self._gm.forward(*inputs)
            return list(out) if isinstance(out, tuple | list) else [out]


def _picks_from(node: torch.fx.Node, names: set[str]) -> bool:
    return node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and node.args[0].name in names


def _calls(gm: torch.fx.GraphModule) -> int:
    return sum(n.op == "call_function" for n in gm.graph.nodes)
