"""Results are 1-minimal: no single edit that any pass stands for can still be made, for random graphs and failures."""

from collections.abc import Callable
from random import Random

import pytest
from made import Fails, ops, random_case

from fxminify.minifier.engine import Engine
from fxminify.minifier.order import size
from fxminify.minifier.passes import PASSES, REPLACEMENTS, Pass
from fxminify.minifier.patch import apply
from fxminify.minifier.subject import Subject
from fxminify.store.case import Case


def random_failure(rng: Random, case: Case) -> Callable[[Case], bool]:
    present = sorted(set(ops(case)))
    wanted = set(rng.sample(present, min(len(present), rng.randrange(1, 4))))
    count, returned = rng.randrange(1, 4), rng.randrange(1, 3)
    style = rng.randrange(4)

    def fails(candidate: Case) -> bool:
        kinds = ops(candidate)
        if not wanted <= set(kinds):
            return False
        if style == 1:
            return len(kinds) >= count
        if style == 2:
            return len(candidate.graph.output.inputs) >= returned
        if style == 3:
            # Not monotone: an odd number of one operation hides the failure.
            return kinds.count("gelu") % 2 == ops(case).count("gelu") % 2
        return True

    return fails


@pytest.mark.parametrize(
    ("seed", "passes"),
    [*((seed, PASSES) for seed in range(60)), *((seed, (*PASSES, *REPLACEMENTS)) for seed in range(60, 90))],
)
def test_nothing_more_can_go(seed: int, passes: tuple[Pass, ...]) -> None:
    rng = Random(seed)
    case, trace = random_case(rng)
    fails = random_failure(rng, case)
    if not fails(case):
        pytest.skip("this failure needs more than the graph has")
    result = Engine(Fails(fails), passes=passes).run(case, trace)
    best = result.case
    assert fails(best)
    assert not any(s.problems for s in result.stats.values())
    subject = Subject(best, trace)
    for p in passes:
        step = 0
        while not p.coarse and (proposal := p.propose(subject, step)) is not None:
            for patch in proposal.patches:
                candidate = apply(subject, patch)
                if candidate is not None and size(candidate) < size(best):
                    assert not fails(candidate), f"{p.name} can still go on with {patch}"
            step += 1


def test_every_row_of_the_table_is_documented() -> None:
    for p in PASSES:
        assert p.summary.endswith(".")
        assert len(p.summary) > 30
    assert len({p.name for p in PASSES}) == len(PASSES)
