"""The outcome of one run of a case, as data. No torch.

A worker that answers reports its observation. A worker that dies, hangs or uses too much memory does so in a known
phase. If that happens before the backend is called, the case is invalid. Afterwards it is a failure of the backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...backends.running import deaths
from ...store import codec
from ...store.failure import Failure, Phase
from ...store.private_values import here
from ...store.scrubbing import masked_failure
from ..sandbox.pool import Ended, Reply

#: Phases before the backend is called, and phases of the backend.
BEFORE_BACKEND = ("build", "eager", "trace")
OF_BACKEND = tuple(Phase)


class Seen(StrEnum):
    FAILURE = "failure"
    PASS = "pass"
    INVALID = "invalid"  # eager cannot run it, Dynamo cannot trace it, or the results cannot be compared
    INFRA = "infra"  # our own trouble: says nothing about the case


@dataclass(frozen=True, slots=True)
class Observation:
    """``seconds`` maps each phase that began to its length; ``detail`` says why there is nothing to see;
    ``refused`` is the exception of eager, where it raised one; ``absent`` why the backend cannot run here, if so;
    ``unequal`` the results that `torch.testing.assert_close` refuses although nothing failed."""

    seen: Seen
    failure: Failure | None = None
    detail: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    absent: str = ""
    unequal: str = ""


def of_reply(reply: Reply) -> Observation:
    """The observation in the reply to an ``observe`` task, with what is private here masked as in a capture."""
    seen, mask = _of_reply(reply), here().mask
    failure = None if seen.failure is None else masked_failure(seen.failure, mask)
    return replace(
        seen, failure=failure, detail=mask(seen.detail), refused=mask(seen.refused), absent=mask(seen.absent)
    )


def _of_reply(reply: Reply) -> Observation:
    if reply.ended is Ended.DONE:
        try:
            return _answered(reply)
        except (ValueError, KeyError, TypeError) as exc:
            return Observation(Seen.INFRA, detail=f"a worker's answer cannot be read: {exc!r}")
    if reply.ended is Ended.INFRA:
        return Observation(Seen.INFRA, detail=reply.error)
    if reply.phase in BEFORE_BACKEND:
        return Observation(Seen.INVALID, detail=f"{reply.phase}: {_fate(reply)}")
    if reply.phase not in OF_BACKEND:
        return Observation(Seen.INFRA, detail=f"{reply.phase or 'start'}: {_fate(reply)}")
    return Observation(Seen.FAILURE, _death(reply, Phase(reply.phase)))


def _answered(reply: Reply) -> Observation:
    observation = codec.load(reply.result, Observation)
    if observation.failure is None:
        return observation
    _, diagnostics = deaths.fault_frames(reply.stderr)
    return replace(observation, failure=replace(observation.failure, diagnostics=diagnostics))


def _death(reply: Reply, phase: Phase) -> Failure:
    if reply.ended is Ended.TIMEOUT:
        return deaths.hang(phase, round(reply.seconds, 1), diagnostics=reply.stderr)
    if reply.ended is Ended.MEMORY:
        return deaths.out_of_memory(phase, reply.error, diagnostics=reply.stderr)
    return deaths.crash(phase, signal=reply.signal, exit_code=reply.exit_code, diagnostics=reply.stderr)


def _fate(reply: Reply) -> str:
    if reply.ended is Ended.TIMEOUT:
        return f"no answer within {reply.seconds:.1f} s"
    if reply.ended is Ended.MEMORY:
        return reply.error
    return f"died of {deaths.signal_name(reply.signal)}" if reply.signal else f"left with exit code {reply.exit_code}"
