"""The graphs of AOTAutograd: it turns Dynamo's graph into graphs of ATen operators, one for each of its compilers.

* `AotCalls` observes a backend's own calls of AOTAutograd: which compiler raised, and with what decompositions and
  partitioner. Nothing is copied while a program is healthy.
* `lower` makes these graphs again from the snapshot, with recording compilers in place of the backend's. It runs the
  program up to the wanted graph, so that the inputs are real values. Tensor subclasses, numpy and ``x.data =`` are
  plain operators there, so a graph that cannot be stored at Dynamo's level may be stored at this one.

This module uses private API of torch: ``aot_module_simplified`` and ``GmWrapper``.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...store.failure import Failure, FailureKind, Phase
from ...store.live.snapshot import CannotSnapshot
from ..adapters import adapters
from ..provenance import origin
from ..provenance.spec import BackendSpec
from ..running.exceptions import text_of, type_name
from ..running.execution import cotangents, differentiable
from . import seam
from .aside import aside, fresh, static
from .graph_snapshot import GraphSnapshot, KeptInputs

Compiler = Callable[..., Any]


class Role(StrEnum):
    """The purpose of a graph of AOTAutograd."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"


class CannotLower(Exception):
    """AOTAutograd gives no graph; the message says why."""


@dataclass
class AotCall:
    """A call of AOTAutograd by a backend. ``raised`` maps the type and message of an error to its compiler."""

    options: Mapping[str, Any]
    compilers: Mapping[Role, Compiler]
    raised: dict[tuple[str, str], Role] = field(default_factory=dict)

    def watched(self) -> dict[str, Compiler]:
        """The compilers, wrapped to note what they raise."""
        made = {str(role): self._watched(role, compiler) for role, compiler in self.compilers.items()}
        made["backward"] = torch._dynamo.disable(made["backward"])
        return made

    def _watched(self, role: Role, compiler: Compiler) -> Compiler:
        def compile_graph(*args: Any, **kwargs: Any) -> Any:
            try:
                return compiler(*args, **kwargs)
            except BaseException as exc:
                if isinstance(exc, Exception):
                    self.raised[type_name(exc), text_of(exc)] = role
                seam.unseen(exc)
                raise

        return compile_graph


class AotCalls(list[AotCall]):
    """The calls of AOTAutograd that one compilation made."""

    def begun(
        self, partition: Compiler, decompositions: Any, keeps_mutations: bool, compilers: Mapping[str, Compiler]
    ) -> dict[str, Compiler]:
        """Note a call of AOTAutograd. Returns the compilers to use."""
        options = {
            "partition_fn": partition,
            "decompositions": decompositions,
            "keep_inference_input_mutations": keeps_mutations,
        }
        self.append(AotCall(options, {Role(role): compiler for role, compiler in compilers.items()}))
        return self[-1].watched()

    def that_raised(self, failure: Failure) -> tuple[AotCall, Role] | None:
        """The call and the compiler that raised ``failure``."""
        seen = {(failure.type, failure.message), *failure.causes}
        return next(((call, role) for call in self for raised, role in call.raised.items() if raised in seen), None)


@dataclass(frozen=True)
class Lowered:
    """A graph of AOTAutograd with its inputs and backend, and the failure as its own compilation shows it."""

    role: Role
    snapshot: GraphSnapshot
    inputs: KeptInputs
    spec: BackendSpec
    failure: Failure


def lower(
    snapshot: GraphSnapshot,
    inputs: KeptInputs,
    rng: Mapping[str, torch.Tensor],
    spec: Callable[[], BackendSpec],
    failure: Failure,
    calls: AotCalls,
) -> Iterator[Lowered]:
    """The graphs of AOTAutograd that may show ``failure`` of ``snapshot``, likeliest first. Raises `CannotLower`.

    They are made with the options of the call in which a compiler raised, or of the only one of ``calls``; then with
    AOTAutograd's own options; last with mutations of inputs kept in the graph, which ``x.data =`` needs.
    """
    raised = calls.that_raised(failure)
    role = raised[1] if raised is not None else Role.BACKWARD if failure.phase is Phase.BACKWARD else None
    call = raised[0] if raised is not None else calls[0] if len(calls) == 1 else None
    below = spec() if call is None or role is None else _below(spec(), call, role)
    shown = _as_forward(failure, compiling=raised is not None)
    problem: Exception | None = None
    for options in ([call.options] if call is not None else []) + [{}, {"keep_inference_input_mutations": True}]:
        try:
            found = _record(snapshot, inputs, rng, role, options)
        except CannotLower as exc:
            problem = problem or exc
            continue
        yield Lowered(*found, below, shown)
    if problem is not None:
        raise problem


def _as_forward(failure: Failure, *, compiling: bool) -> Failure:
    """``failure`` as it appears where the graph is compiled and called on its own, a backward graph, too."""
    if compiling:
        kind = FailureKind.COMPILE_ERROR if failure.kind is FailureKind.RUNTIME_ERROR else failure.kind
        return replace(failure, kind=kind, phase=Phase.COMPILE)
    return replace(failure, phase=Phase.FORWARD) if failure.phase is Phase.BACKWARD else failure


def _below(spec: BackendSpec, call: AotCall, role: Role) -> BackendSpec:
    """The backend that gives the graph of ``role`` to the compiler that had it.

    A graph that is compiled on its own goes to the compiler for inference. If that is another one, the backend is an
    ``aot_autograd`` around the right compiler. If that cannot be written as a spec, the backend stays the same.
    """
    mine, usual = _bare(call.compilers[role]), _bare(call.compilers[Role.INFERENCE])
    if mine is usual or type(mine).__name__ == "SerializableAOTDispatchCompiler" or _of_known_backend(mine):
        return spec
    from torch._dynamo.backends.common import aot_autograd

    made = origin.spec_of(aot_autograd(fw_compiler=mine), compile_kwargs={"dynamic": spec.dynamic})
    return spec if made.problem else made


def _bare(compiler: Compiler) -> Compiler:
    """``compiler`` without what ``aot_autograd`` puts around the one for the backward graph."""
    while getattr(compiler, "_is_wrapped_bw_compiler", False):
        cells = dict(zip(compiler.__code__.co_freevars, compiler.__closure__ or (), strict=True))
        compiler = cells["bw_compiler_fn"].cell_contents
    return compiler


def _of_known_backend(compiler: Compiler) -> bool:
    """Whether ``compiler`` is part of a backend that has an adapter. It is then called by that backend's name."""
    owner = compiler.func if isinstance(compiler, functools.partial) else compiler
    file = str(getattr(owner, "__module__", "")).replace(".", "/")
    return any(f"{file}/".startswith(adapter.source_directories) for adapter in adapters().values())


class _Reached(BaseException):
    """Raised when the wanted graph gets its inputs. It is no `Exception`, so that no handler takes it for a failure."""


def _record(
    snapshot: GraphSnapshot,
    inputs: KeptInputs,
    rng: Mapping[str, torch.Tensor],
    role: Role | None,
    options: Mapping[str, Any],
) -> tuple[Role, GraphSnapshot, KeptInputs]:
    """The graph of ``role``, or the first one that runs, with its inputs."""
    found: list[tuple[Role, GraphSnapshot, KeptInputs]] = []

    def recording(mine: Role) -> Compiler:
        def compiler(gm: fx.GraphModule, _: Any) -> Compiler:
            def run(arguments: list[Any]) -> Any:
                values = [v.detach() if isinstance(v, torch.Tensor) else v for v in arguments]
                arguments.clear()
                if mine is role or (role is None and mine is not Role.BACKWARD):
                    found.append((mine, *_taken(gm, values, snapshot)))
                    raise _Reached
                with torch.no_grad():
                    return gm(*values)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compiler

    compilers = {f"{name}_compiler": recording(r) for name, r in
                 (("fw", Role.FORWARD), ("bw", Role.BACKWARD), ("inference", Role.INFERENCE))}  # fmt: skip
    try:
        module, values = static(snapshot.module(), fresh(inputs.values, snapshot.whole))
    except CannotSnapshot as exc:
        raise CannotLower(str(exc)) from exc
    if role is Role.BACKWARD:
        module = copy.deepcopy(module)  # its forward graph is run for real
    try:
        nested = any(isinstance(v, torch.Tensor) and v.is_nested for v in values)
        with aside(snapshot.context, rng, nested=nested):
            outputs = _aot(module, values, {**options, **compilers})
            wanted = [o for o in pytree.tree_leaves(outputs) if differentiable(o)]
            torch.autograd.backward(wanted, _tangents(wanted))
    except _Reached:
        return found[0]
    except Exception as exc:
        raise CannotLower(f"AOTAutograd cannot lower the graph: {type(exc).__name__}: {exc}"[:3000]) from exc
    raise CannotLower(f"AOTAutograd makes no {role or 'forward'} graph of it")


def _tangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of the outputs; an output of a subclass has one of the same class."""
    made = cotangents([o.detach() if type(o) is torch.Tensor else torch.empty(0) for o in outputs])
    return [t if type(o) is torch.Tensor else torch.ones_like(o) for t, o in zip(made, outputs, strict=True)]


def _aot(module: fx.GraphModule, values: list[Any], options: Mapping[str, Any]) -> Any:
    """Run the compiled ``module`` on ``values``, which may be lists of tensors (compiled autograd's are)."""
    from torch._dynamo.utils import GmWrapper
    from torch._functorch.aot_autograd import aot_module_simplified

    if not any(isinstance(v, list | tuple | dict) for v in values):
        return aot_module_simplified(module, values, **options)(*values)
    flat, structure = pytree.tree_flatten(values)
    unflatten = functools.partial(pytree.tree_unflatten, treespec=structure)
    return aot_module_simplified(GmWrapper(module, unflatten), flat, **options)(flat)


def _taken(gm: fx.GraphModule, values: Sequence[Any], above: GraphSnapshot) -> tuple[GraphSnapshot, KeptInputs]:
    """A snapshot of the graph module in the state in which AOTAutograd runs it: without gradients and autocast.

    Unused inputs that are no tensors are left out: a device mesh, the key of nested sizes.
    """
    left = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), values, strict=True):
        if node.users or isinstance(value, torch.Tensor):
            left.append(value)
        else:
            gm.graph.erase_node(node)
    context = {k: v for k, v in above.context.items() if k not in ("grad", "inference", "autocast")}
    taken = GraphSnapshot.take(gm, [], compile_id=above.compile_id)
    taken.context, taken.rng, taken.inputs = context, above.rng, None
    taken.number, taken.shapes_before = above.number, above.shapes_before
    taken.tolerance, taken.strict = above.tolerance, above.strict
    return taken, KeptInputs(left, [None] * len(left))
