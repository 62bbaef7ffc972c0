"""Compare one call of a compiled graph with eager, on copies of its inputs, before the program's own call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.autograd.grad_mode import _unsafe_preserve_version_counter as preserve_version

from ...store.failure import Failure, Phase
from ..running import collectives
from ..running.exceptions import failure_of, is_failure, is_out_of_memory, one_line
from ..running.execution import Run, execute
from ..running.shared import SharedStorages, tensors_of
from .compare import Accepted, CannotCompare, Differences
from .reference import Reference

if TYPE_CHECKING:
    from ..capture.graph_snapshot import GraphSnapshot


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a comparison. If all fields have their defaults, the compiled graph agrees with eager.

    ``failure`` is what the compiled graph did wrong: in the backward pass if ``backward``, and visible only in a
    comparison if ``compare``. ``raised`` is what the forward run raised. The program's own call will raise it, too,
    unless the backend fails only the first time. ``unchecked`` says why the call could not be compared, or which
    results could not be judged. ``times`` is the largest difference that was let pass, as a multiple of what
    `torch.testing.assert_close` allows, and ``where`` its place.
    """

    failure: Failure | None = None
    raised: Failure | None = None
    backward: bool = False
    compare: bool = False
    unchecked: str = ""
    times: float = 0.0
    where: str = ""


def check(
    snapshot: GraphSnapshot,
    compiled: Callable[..., Any],
    args: Sequence[Any],
    *,
    marked: Callable[[str], AbstractContextManager[Any]],
    short: Callable[[], frozenset[str]],
) -> CheckResult:
    """Call ``compiled``, made of ``snapshot``, and eager on copies of ``args``, and compare the results.

    ``marked(phase)`` is entered with the phase of a block: ``eager`` or ``forward``. ``short()`` returns the shorter
    dtypes in which this backend is known to compute. No `Exception` is raised.
    """
    try:
        result: CheckResult = _check(snapshot, compiled, args, marked, short)
        return result
    except CannotCompare as exc:
        return CheckResult(unchecked=str(exc))
    except Exception as exc:  # noqa: BLE001  a check that fails must not reach the user's program
        return CheckResult(unchecked=too_large(exc) if is_out_of_memory(exc) else f"{type(exc).__name__}: {exc}")


def too_large(exc: BaseException) -> str:
    """The reason for which a call was not compared, where ``exc`` says that there is no memory left."""
    return f"there is not enough memory to compare it ({one_line(exc)})"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _check(
    snapshot: GraphSnapshot,
    compiled: Callable[..., Any],
    args: Sequence[Any],
    marked: Callable[[str], AbstractContextManager[Any]],
    short: Callable[[], frozenset[str]],
) -> CheckResult:
    with marked("eager"):
        graph = snapshot.module()
        if (node := collectives.communicates(graph)) is not None:
            raise CannotCompare(f"node {node!r} talks to other processes")
        backward = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        shared = SharedStorages(graph, args, whole=snapshot.whole)
        try:
            expected = shared.eager(backward)
        except Exception as exc:
            if is_out_of_memory(exc):
                raise
            raise CannotCompare(f"eager itself fails: {type(exc).__name__}: {exc}") from exc
    with marked("forward"), _unchanged(graph, shared):
        before = shared.checksums()
        actual = _compiled_run(snapshot, compiled, shared.inputs(), expected.gradients is not None)
        overwritten = shared.changed(before)
    if not isinstance(actual, Run):
        return actual
    with marked("eager"):
        accepted = Accepted()
        differences = Differences(expected, replace(actual, overwritten=overwritten), snapshot.tolerance)
        del expected, actual
        found = differences.judged(Reference(shared), short(), accepted, strict=snapshot.strict)
    if found is None:
        told = "; ".join(f"{snapshot.place(place)}: {said}" for place, said in accepted.ill.items())
        times, where = max(((times, place) for place, times in accepted.times.items()), default=(0.0, ""))
        return CheckResult(
            unchecked=told and f"{told} (captured with --check strict)",
            times=times,
            where=where and snapshot.place(where),
        )
    return CheckResult(found.failure(), backward=found.phase is Phase.BACKWARD, compare=True)


def _compiled_run(
    snapshot: GraphSnapshot, compiled: Callable[..., Any], inputs: Sequence[Any], backward: bool
) -> Run | CheckResult:
    """The compiled run, or the result of the check if it failed."""
    phases = [Phase.FORWARD]
    try:
        return execute(compiled, inputs, backward, mark=lambda phase: phases.append(Phase(phase)))
    except BaseException as exc:
        if not is_failure(exc):
            raise
        if is_out_of_memory(exc):  # the copies need memory, too: the program's own call tells
            raise CannotCompare(too_large(exc)) from exc
        if phases[-1] is not Phase.BACKWARD:
            return CheckResult(raised=failure_of(exc, Phase.FORWARD, graphs=[snapshot.graph]))
        return CheckResult(failure_of(exc, Phase.BACKWARD, graphs=[snapshot.graph]), backward=True)


@contextmanager
def _unchanged(graph: fx.GraphModule, shared: SharedStorages) -> Iterator[None]:
    """Restore, after the block, the values of the tensors that a graph holds, because they are the program's own.

    Of storages that are still ``shared`` after an eager run nothing is kept: the graph does not write to them.
    """
    owned = {id(t): t for t in tensors_of(graph) if not t.is_inference() and t not in shared}
    before = [(t, t._version, t.detach().clone()) for t in owned.values()]
    try:
        yield
    finally:
        for tensor, version, values in before:
            if tensor._version != version:
                with torch.no_grad(), preserve_version(tensor):
                    tensor.copy_(values)
