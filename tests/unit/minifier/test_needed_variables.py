"""Which environment variables a failure needs, with an oracle that knows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from made import make

from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.reporting.features import Aspect, Feature, ProbeAnswer
from fxminify.minifier.session.needed_variables import find
from fxminify.store.document.case import Case

CASE, _ = make(["x"], [("y", "sin", ["x"])], ["y"])


@dataclass
class Needs:
    """Fails where all of ``names`` are set."""

    names: frozenset[str]
    asked: list[list[str]] = field(default_factory=list)

    def ask(self, case: Case) -> Verdict:
        given = case.backend.get("variables", [])
        assert set(case.backend.get("environment", {})) <= set(given)
        self.asked.append(given)
        return Verdict(Outcome.SAME if self.names <= set(given) else Outcome.PASS)


def with_variables(*names: str, **values: str) -> Case:
    return replace(CASE, backend={"name": "acme", "variables": sorted({*names, *values}), "environment": values})


def test_one_variable_takes_one_question() -> None:
    oracle = Needs(frozenset({"A"}))
    found = find(oracle.ask, with_variables(A="2"))
    assert found.case.backend == {"name": "acme", "variables": ["A"], "environment": {"A": "2"}}
    assert found.features == (Feature(Aspect.SETTING, "A", "2", (ProbeAnswer("not set", Outcome.PASS),)),)
    assert oracle.asked == [[]]


def test_what_is_not_needed_goes_at_once() -> None:
    oracle = Needs(frozenset())
    found = find(oracle.ask, with_variables("TERM", A="2", B="on"))
    assert found.case.backend == {"name": "acme"}
    assert [f.name for f in found.features if not f.matters] == ["A", "B", "TERM"]
    assert oracle.asked == [[]]


@pytest.mark.parametrize("needed", [{"C"}, {"B", "TOKEN"}, {"A", "B", "C", "TOKEN"}])
def test_only_what_is_needed_stays(needed: set[str]) -> None:
    oracle = Needs(frozenset(needed))
    found = find(oracle.ask, with_variables("TOKEN", A="1", B="2", C="3"))
    assert set(found.case.backend["variables"]) == needed
    assert {f.name for f in found.features if f.matters} == needed
    assert {f.name for f in found.features} == {"A", "B", "C", "TOKEN"}


def test_a_needed_variable_without_a_value_must_be_set_by_a_person() -> None:
    found = find(Needs(frozenset({"B", "TOKEN"})).ask, with_variables("TOKEN", A="1", B="2"))
    assert found.case.backend["required"] == ["TOKEN"]
    assert found.case.backend["environment"] == {"B": "2"}
    assert [f.now for f in found.features if f.name == "TOKEN"] == ["set"]
