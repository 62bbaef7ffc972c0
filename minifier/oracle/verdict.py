"""The oracle's answer about a candidate. It keeps *passes*, *unknown* and *another failure* apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ...store.document.case import Case
from ...store.failure import Failure
from ...store.signature import Signature

#: The beginning of the detail of a verdict that passes, before the results that are not equal to eager's.
UNEQUAL = "not equal: "
#: The detail of a verdict that several runs gave.
_COUNTED = re.compile(r"(\d+) of (\d+) runs")


class Outcome(StrEnum):
    SAME = "same"  # the failure under reduction
    OTHER = "other"  # another failure: kept as a capture of its own
    PASS = "pass"  # nothing failed
    CLOSE = "close"  # only in explanations: it passes, and its script would not, because the results differ a little
    INVALID = "invalid"  # eager cannot run it: the backend was never asked
    TIMEOUT = "timeout"  # no answer in time, and the failure under reduction is no hang
    CRASH = "crash"  # the worker died, and the failure under reduction is another one
    FLAKY = "flaky"  # the votes of repeated runs disagree
    INFRA = "infra"  # our own trouble (a worker that could not load the case); says nothing about the candidate


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a query. ``seconds`` is wall time in the worker; ``detail`` is the reason, for the log."""

    outcome: Outcome
    signature: Signature | None = None
    failure: Failure | None = None
    seconds: float = 0.0
    detail: str = ""

    @property
    def same(self) -> bool:
        return self.outcome is Outcome.SAME

    @property
    def unequal(self) -> str:
        """The results that `torch.testing.assert_close` refuses although the candidate passes. Else empty."""
        told = self.outcome is Outcome.PASS and self.detail.startswith(UNEQUAL)
        return self.detail.removeprefix(UNEQUAL) if told else ""

    @property
    def counted(self) -> tuple[int, int]:
        """The number of runs that showed the failure under reduction, and the number of runs."""
        found = _COUNTED.fullmatch(self.detail)
        return (int(found[1]), int(found[2])) if found else (int(self.same), 1)


class InterestingnessTest(Protocol):
    """An oracle: says whether a candidate still fails in the same way. It may also have ``submit``, which returns a
    future, so that several candidates can be tested at a time."""

    def ask(self, case: Case) -> Verdict: ...
