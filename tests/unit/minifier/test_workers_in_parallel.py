"""What a second worker is worth: the oracle takes all the time, which is counted and not waited for."""

from __future__ import annotations

from random import Random

import pytest
from made import Slow, code, has, ops, shrinker, tower

from fxminify.minifier.oracle import scheduler
from fxminify.store.document.case import Case

NAMES = ("asinh", "atan", "erf")


def connected(case: Case) -> bool:
    """``erf`` depends on ``asinh``."""
    kinds = dict(zip([n.name for n in case.graph.compute], ops(case), strict=True))
    above: dict[str, set[str]] = {}
    for node in case.graph.nodes:
        above[node.name] = {kinds.get(i, "") for i in node.inputs}.union(*(above[i] for i in node.inputs))
    return any(kinds.get(name) == "erf" and "asinh" in above[name] for name in kinds)


def test_two_workers_take_at_most_five_eighths_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {1: 0.0, 2: 0.0, 4: 0.0}
    for seed in range(3):
        places = sorted(Random(seed).sample(range(200), 3))
        for count, fails in enumerate([has("asinh"), has("asinh", "atan"), has(*NAMES), connected, several], 1):
            case, trace = tower(200, dict(zip(places, NAMES[:count], strict=False)), seed)
            if not fails(case):
                continue
            results = set()
            for jobs in taken:
                oracle = Slow(fails, jobs)
                monkeypatch.setattr(scheduler, "wait", oracle.wait)
                results.add(code(shrinker(oracle, jobs=jobs).run(case, trace).case))
                taken[jobs] += oracle.now
            assert len(results) == 1
    assert taken[1] / taken[2] >= 1.6
    assert taken[1] / taken[4] >= 2.0


def several(case: Case) -> bool:
    return len(ops(case)) >= 6
