"""Results are 1-minimal: no single edit that any pass stands for can still be made, for random graphs and failures."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from zlib import crc32

import pytest
from made import REMOVALS, REPLACEMENTS, Fails, assert_nothing_more_can_go, code, ops, random_case, shrinker

from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.passes import Pass
from fxminify.store.document.case import Case


def random_failure(rng: Random, case: Case) -> Callable[[Case], bool]:
    present = sorted(set(ops(case)))
    wanted = set(rng.sample(present, min(len(present), rng.randrange(1, 4))))
    count, returned = rng.randrange(1, 4), rng.randrange(1, 3)
    style, salt = rng.randrange(5), rng.randrange(1 << 20)

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
        if style == 4:
            # Anything but monotone: of what holds the wanted operations a quarter passes, by chance.
            return candidate == case or crc32(f"{salt} {code(candidate)}".encode()) % 4 != 0
        return True

    return fails


def is_valid(case: Case) -> bool:
    """Names are unique and defined before they are read, inputs and tensors are there, all of them are used."""
    known: set[str] = set()
    for node in case.graph.nodes:
        if node.name in known or not known.issuperset(node.inputs):
            return False
        known.add(node.name)
    read = {name for node in case.graph.nodes for name in node.inputs}
    tensors = [value["tensor"] for value in case.inputs]
    return (
        len(case.inputs) == len(case.graph.placeholders)
        and read.issuperset(n.name for n in case.graph.placeholders)
        and sorted(tensors) == list(range(len(case.tensors)))
        and case.graph.nodes[-1].op == "output"
    )


@pytest.mark.parametrize(
    ("seed", "passes"),
    [*((seed, REMOVALS) for seed in range(70)), *((seed, (*REMOVALS, *REPLACEMENTS)) for seed in range(70, 100))],
)
def test_nothing_more_can_go(seed: int, passes: tuple[Pass, ...]) -> None:
    rng = Random(seed)
    case, trace = random_case(rng)
    fails = random_failure(rng, case)
    if not fails(case):
        pytest.skip("this failure needs more than the graph has")
    asked: list[Case] = []

    def watched(candidate: Case) -> bool:
        asked.append(candidate)
        return fails(candidate)

    best = shrinker(Fails(watched), passes=passes, strict=True).run(case, trace).case
    assert fails(best)
    assert all(map(is_valid, asked))
    assert_nothing_more_can_go(best, trace, passes, fails)


@pytest.mark.parametrize("seed", range(25))
def test_the_number_of_jobs_changes_nothing_of_the_result(seed: int) -> None:
    rng = Random(1000 + seed)
    case, trace = random_case(rng)
    fails = random_failure(rng, case)
    if not fails(case):
        pytest.skip("this failure needs more than the graph has")
    alone = shrinker(Fails(fails)).run(case, trace).case
    for jobs in (2, 5):
        with ThreadPoolExecutor(jobs) as pool:
            assert shrinker(Shuffled(fails, seed, pool), jobs=jobs).run(case, trace).case == alone


class Shuffled:
    """Answers in threads, in no order."""

    def __init__(self, fails: Callable[[Case], bool], seed: int, pool: ThreadPoolExecutor) -> None:
        self.fails, self.rng, self.pool = fails, Random(seed), pool

    def ask(self, case: Case) -> Verdict:
        time.sleep(self.rng.random() / 5000)
        return Verdict(Outcome.SAME if self.fails(case) else Outcome.PASS)

    def submit(self, case: Case) -> Future[Verdict]:
        return self.pool.submit(self.ask, case)


def test_every_row_of_the_table_is_documented() -> None:
    for p in REMOVALS:
        assert p.summary.endswith(".")
        assert len(p.summary) > 30
    assert len({p.name for p in REMOVALS}) == len(REMOVALS)
