"""Does a compiled graph give what eager gives? Asked on copies, before the program's own call, which runs untouched."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter as preserve_version

from ...store.failure import Phase
from ..capture import reentry
from ..running import collectives
from ..running.exceptions import failure_of, is_failure
from ..running.execution import Run, copy_inputs, execute
from .compare import CannotCompare, compare
from .reference import Reference

if TYPE_CHECKING:
    from ..capture.compiled_graph import CompiledCall, CompiledGraph


def check(of: CompiledGraph, compiled: Callable[..., Any], args: Sequence[Any], call: CompiledCall) -> None:
    """Compare one call of ``compiled`` with eager and record a divergence. Never raises."""
    try:
        with reentry.own_calls(), _unchanged(of.snapshot.attributes):
            torch.compiler.disable(_check)(of, compiled, args, call)  # type: ignore[no-untyped-call]
    except CannotCompare as exc:
        _unchecked(of, str(exc))
    except Exception as exc:  # noqa: BLE001  a check that fails must not reach the user's program
        _unchecked(of, f"{type(exc).__name__}: {exc}")


def _unchecked(of: CompiledGraph, reason: str) -> None:
    """Say so once for each graph and reason, not at every call that is due."""
    if reason not in of.reported:
        of.reported.add(reason)
        of.recorder.unchecked(reason)


def _check(of: CompiledGraph, compiled: Callable[..., Any], args: Sequence[Any], call: CompiledCall) -> None:
    def fresh() -> list[Any]:
        return copy_inputs(args, whole=of.snapshot.whole)

    with of.marked("eager"):
        graph = of.snapshot.module()
        if (node := collectives.communicates(graph)) is not None:
            raise CannotCompare(f"node {node!r} talks to other processes")
        backward = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        try:
            expected = execute(copy.deepcopy(graph), fresh(), backward)
        except Exception as exc:
            raise CannotCompare(f"eager itself fails: {type(exc).__name__}: {exc}") from exc
    actual = _compiled_run(of, compiled, fresh(), call, expected.gradients is not None)
    if actual is None:
        return
    with of.marked("eager"):
        short = of.recorder.short(of.spec)
        found = compare(expected, actual, Reference(graph, fresh, backward), of.snapshot.tolerance, short)
    if found is not None and f"{found.phase} {found.kind}" not in of.reported:
        of.reported.add(f"{found.phase} {found.kind}")
        backward = found.phase is Phase.BACKWARD
        of.record(found.failure(), call.kept(), call.rng, backward=backward, compare=True)


def _compiled_run(
    of: CompiledGraph, compiled: Callable[..., Any], inputs: Sequence[Any], call: CompiledCall, backward: bool
) -> Run | None:
    """The compiled run; None where it failed. Its failure is recorded here only if the program may never show it."""
    phases = [Phase.FORWARD]
    of.invoked += 1
    with of.marked("forward"):
        try:
            return execute(compiled, inputs, backward, mark=lambda phase: phases.append(Phase(phase)))
        except BaseException as exc:
            if not is_failure(exc):
                raise
            if phases[-1] is Phase.BACKWARD:
                said = failure_of(exc, Phase.BACKWARD, graphs=[of.snapshot.graph])
                of.record(said, call.kept(), call.rng, backward=True)
            return None


@contextmanager
def _unchanged(attributes: dict[str, Any]) -> Iterator[None]:
    """The tensors a graph owns, as they were before the block: a compiled graph works on the program's own."""
    owned: dict[int, torch.Tensor] = {}
    for value in attributes.values():
        found = [*value.parameters(), *value.buffers()] if isinstance(value, torch.nn.Module) else [value]
        owned |= {id(t): t for t in found if isinstance(t, torch.Tensor)}
    before = [(t, t._version, t.detach().clone()) for t in owned.values() if not t.is_inference()]
    try:
        yield
    finally:
        for tensor, version, values in before:
            if tensor._version != version:
                with torch.no_grad(), preserve_version(tensor):
                    tensor.copy_(values)
