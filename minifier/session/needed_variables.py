"""Find the environment variables that a failure needs, among those that its backend reads.

A variable may be read while modules are imported, so each question is a script in fresh processes that has the other
variables. What is left is in the case: the values that a script sets, and the names of those that a person must set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...store.document.case import Case
from ..oracle.verdict import Outcome, Verdict
from ..reporting.features import Aspect, Feature, ProbeAnswer

#: The shown value of a variable that is not printed, and of one that is not set.
SET, NOT_SET = "set", "not set"


@dataclass(frozen=True, slots=True)
class NeededVariables:
    """``case`` with the variables that its failure needs, and what was answered about each."""

    case: Case
    features: tuple[Feature, ...]


def find(ask: Callable[[Case], Verdict], case: Case) -> NeededVariables:
    """Call ``ask`` with ``case`` without some of its variables, all of them at once first."""
    search = _Search(ask, case)
    search.leave_out(list(case.backend.get("variables", ())))
    needed = [name for name in search.answers if search.answers[name] is not Outcome.SAME]
    left = _with(case, needed)
    unset = [name for name in needed if name not in left.backend.get("environment", {})]
    backend = {**left.backend, **({"required": unset} if unset else {})}
    values = case.backend.get("environment", {})
    features = tuple(
        Feature(Aspect.SETTING, name, values.get(name, SET), (ProbeAnswer(NOT_SET, outcome),))
        for name, outcome in search.answers.items()
    )
    return NeededVariables(replace(left, backend=backend), features)


class _Search:
    """Halves what must stay, until each variable has an answer."""

    def __init__(self, ask: Callable[[Case], Verdict], case: Case) -> None:
        self._ask = ask
        self._case = case
        self._kept: list[str] = list(case.backend.get("variables", ()))
        self.answers: dict[str, Outcome] = {}

    def leave_out(self, names: list[str]) -> None:
        """Leave out as many of ``names`` as the failure allows."""
        others = [name for name in self._kept if name not in names]
        outcome = self._ask(_with(self._case, others)).outcome
        if outcome is Outcome.SAME or len(names) == 1:
            self._kept = others if outcome is Outcome.SAME else self._kept
            self.answers |= dict.fromkeys(names, outcome)
            return
        half = len(names) // 2
        for part in (names[:half], names[half:]):
            self.leave_out(part)


def _with(case: Case, names: Sequence[str]) -> Case:
    """``case`` with no other variables than ``names``."""
    backend = {key: value for key, value in case.backend.items() if key not in ("variables", "environment", "required")}
    values = {name: value for name, value in case.backend.get("environment", {}).items() if name in names}
    backend |= {"variables": list(names)} if names else {}
    return replace(case, backend={**backend, **({"environment": values} if values else {})})
