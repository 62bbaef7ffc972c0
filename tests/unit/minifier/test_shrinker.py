"""The engine: what it keeps, what it asks, what it tells, and that nothing of this depends on the number of jobs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from made import REMOVALS, REPLACEMENTS, Fails, Parallel, code, has, ops, shrinker, tower

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.patch import Patch
from fxminify.minifier.candidate.trace import Trace
from fxminify.minifier.oracle.keys import Keys
from fxminify.minifier.oracle.scheduler import MemoryLog
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.passes import Pass, Proposal, Stage
from fxminify.minifier.passes.proposal import each
from fxminify.minifier.passes.searches import sweep
from fxminify.minifier.reducer.shrinker import PassFailed, Progress, ReductionResult
from fxminify.store.document.case import Case


def run(fails: Callable[[Case], bool], case: Case, trace: Trace, **options: Any) -> tuple[ReductionResult, list[Case]]:
    oracle = Fails(fails)
    return shrinker(oracle, **options).run(case, trace), oracle.asked


def test_one_culprit_among_a_thousand_nodes() -> None:
    result, asked = run(has("asinh"), *tower(1000, {500: "asinh"}))
    assert code(result.case) == "n499 -> n500 = asinh(n499) -> n500"
    assert len(asked) == result.queries <= 8
    assert result.complete


def test_two_culprits_far_apart() -> None:
    result, asked = run(has("asinh", "atan"), *tower(1000, {250: "asinh", 750: "atan"}))
    assert ops(result.case) == ["asinh", "atan"]
    assert len(result.case.graph.placeholders) == 1
    assert len(asked) <= 25


def test_no_question_is_asked_twice() -> None:
    for seed in range(5):
        _, asked = run(has("asinh", "atan", "gelu"), *tower(60, {10: "asinh", 50: "atan"}, seed))
        keys = [Keys().key(case) for case in asked]
        assert len(keys) == len(set(keys))


def test_every_question_is_about_something_smaller_than_the_best_case() -> None:
    case, trace = tower(80, {20: "asinh", 60: "atan"})
    best = [case]

    def fails(candidate: Case) -> bool:
        assert size(candidate) < size(best[-1])
        return has("asinh", "atan")(candidate)

    run(fails, case, trace, accepted=lambda new, _: best.append(new))
    assert len(best) > 1


@pytest.mark.parametrize("jobs", [2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_any_number_of_jobs_gives_the_same_case(jobs: int, seed: int) -> None:
    case, trace = tower(120, {30: "asinh", 90: "atan"}, seed)
    fails = has("asinh", "atan", "gelu")
    alone, _ = run(fails, case, trace)
    oracle = Parallel(fails, jobs)
    together = shrinker(oracle, jobs=jobs).run(case, trace)
    assert together.case == alone.case
    assert len(oracle.asked) == len({Keys().key(case) for case in oracle.asked})


def test_any_number_of_jobs_gives_the_same_case_with_late_passes() -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    fails, passes = has("asinh", "atan", "gelu"), (*REMOVALS, *REPLACEMENTS)
    alone, _ = run(fails, case, trace, passes=passes)
    assert shrinker(Parallel(fails, 3), jobs=3, passes=passes).run(case, trace).case == alone.case


def test_resuming_asks_nothing_again() -> None:
    case, trace = tower(200, {50: "asinh", 150: "atan"})
    answers: dict[str, Verdict] = {}

    class Remember(MemoryLog):
        def asked(self, key: str, name: str) -> None:
            assert key not in answers

        def answered(self, key: str, verdict: Verdict) -> None:
            super().answered(key, verdict)
            answers[key] = verdict

    first, _ = run(has("asinh", "atan"), case, trace, log=Remember(), max_queries=9)
    assert not first.complete
    assert first.reason == "9 queries"
    second, asked = run(has("asinh", "atan"), case, trace, log=MemoryLog(answers))
    whole, all_asked = run(has("asinh", "atan"), case, trace)
    assert second.case == whole.case
    assert len(asked) == len(all_asked) - 9


def test_a_question_is_written_down_before_it_is_asked() -> None:
    case, trace = tower(30, {10: "asinh"})
    events: list[str] = []

    class Log(MemoryLog):
        def asked(self, key: str, name: str) -> None:
            events.append(f"asked {key}")

        def answered(self, key: str, verdict: Verdict) -> None:
            super().answered(key, verdict)
            events.append(f"answered {key}")

    def fails(candidate: Case) -> bool:
        events.append(f"runs {Keys().key(candidate)}")
        return has("asinh")(candidate)

    run(fails, case, trace, log=Log())
    assert len(events) > 6
    for i in range(0, len(events), 3):
        key = events[i].split()[1]
        assert events[i : i + 3] == [f"asked {key}", f"runs {key}", f"answered {key}"]


def test_other_failures_are_handed_on_and_never_accepted() -> None:
    case, trace = tower(50, {10: "asinh", 30: "atan", 40: "erfc"})
    others: list[Case] = []

    class Two:
        def ask(self, candidate: Case) -> Verdict:
            if has("asinh", "erfc")(candidate):
                return Verdict(Outcome.SAME)
            return Verdict(Outcome.OTHER if has("atan")(candidate) else Outcome.PASS)

    result = shrinker(Two(), other=lambda candidate, verdict: others.append(candidate)).run(case, trace)
    assert ops(result.case) == ["asinh", "erfc"]
    assert others
    assert all(has("atan")(c) and not has("asinh", "erfc")(c) for c in others)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SAME])
def test_only_same_replaces_the_best_case(outcome: Outcome) -> None:
    case, trace = tower(20, {})

    class Never:
        def ask(self, candidate: Case) -> Verdict:
            return Verdict(outcome)

    assert shrinker(Never()).run(case, trace).case is case


def test_infrastructure_trouble_is_asked_about_again_when_resuming() -> None:
    case, trace = tower(5, {2: "asinh"})
    keys = [Keys().key(c) for c in run(has("asinh"), case, trace)[1]]
    result, asked = run(has("asinh"), case, trace, log=MemoryLog(dict.fromkeys(keys, Verdict(Outcome.INFRA))))
    assert ops(result.case) == ["asinh"]
    assert len(asked) == len(keys)


def test_time_ends_a_reduction_with_the_best_case_so_far() -> None:
    case, trace = tower(500, {100: "asinh", 400: "atan"})
    now = [0.0]

    def fails(candidate: Case) -> bool:
        now[0] += 1
        return has("asinh", "atan")(candidate)

    result, asked = run(fails, case, trace, seconds=5, clock=lambda: now[0])
    assert (result.complete, result.reason, len(asked)) == (False, "5 seconds", 5)
    assert has("asinh", "atan")(result.case)


def test_an_interrupt_passes_and_leaves_the_best_case() -> None:
    case, trace = tower(500, {100: "asinh", 400: "atan"})

    class Interrupted(Fails):
        def ask(self, candidate: Case) -> Verdict:
            if len(self.asked) == 6:
                raise KeyboardInterrupt
            return super().ask(candidate)

    engine = shrinker(Interrupted(has("asinh", "atan")))
    with pytest.raises(KeyboardInterrupt):
        engine.run(case, trace)
    assert has("asinh", "atan")(engine.best)
    assert size(engine.best) < size(case)


def test_progress_counts_the_queries() -> None:
    case, trace = tower(100, {50: "asinh"})
    seen: list[Progress] = []
    result, asked = run(has("asinh"), case, trace, progress=seen.append)
    assert [p.queries for p in seen] == list(range(1, len(asked) + 1))
    assert seen[-1].start_nodes == 100
    assert result.queries == len(asked)
    assert ops(result.case) == ["asinh"]


def test_a_pass_that_brings_nothing_waits_until_the_others_are_done() -> None:
    case, trace = tower(12, {5: "asinh"})
    ran: list[str] = []

    def useless(view: GraphView, step: int) -> Proposal | None:
        ran.append("useless")
        return each((Patch(drop=frozenset(["n5"])),)) if step == 0 else None

    def slow(view: GraphView, step: int) -> Proposal | None:
        """One node a round."""
        ran.append("slow")
        gone = [n for n in view.compute if n != "n5"]
        return each((Patch(drop=frozenset(gone[-1:])),)) if step == 0 and gone else None

    passes = (Pass("useless", "Asks in vain.", useless), Pass("slow", "Takes one node.", slow))
    result = shrinker(Fails(has("asinh")), passes=passes).run(case, trace)
    assert ops(result.case) == ["asinh"]
    first, *_, last = [i for i, name in enumerate(ran) if name == "useless"]
    assert "useless" not in ran[first + 2 : last - 1]


def test_failures_that_need_an_even_number_of_nodes_still_shrink() -> None:
    case, trace = tower(64, {30: "asinh"})
    result, _ = run(lambda c: "asinh" in ops(c) and len(ops(c)) % 2 == 0, case, trace)
    assert len(ops(result.case)) == 2


def test_keys_see_what_counts_and_nothing_else() -> None:
    case, _ = tower(5, {})
    keys = Keys()
    first = case.graph.nodes[1]
    shown = replace(
        case.graph, nodes=(case.graph.nodes[0], replace(first, meta={"stack": "a.py"}), *case.graph.nodes[2:])
    )
    other = replace(case.graph, nodes=(case.graph.nodes[0], replace(first, args=(1,)), *case.graph.nodes[2:]))
    assert keys.key(case) == Keys().key(case)
    assert keys.key(replace(case, graph=shown)) == keys.key(case)
    assert keys.key(replace(case, graph=other)) != keys.key(case)
    assert keys.key(replace(case, backward=True)) != keys.key(case)
    assert keys.key(replace(case, context={"grad": False})) != keys.key(case)
    assert keys.key(replace(case, tensors=(replace(case.tensors[0], dtype="float16"),))) != keys.key(case)


def broken(view: GraphView, step: int) -> Proposal | None:
    raise LookupError("no such node")


def idle(view: GraphView, step: int) -> Proposal | None:
    """Changes nothing, and never comes to an end."""
    return each((Patch(erase=frozenset(["nobody"])),))


@dataclass(frozen=True)
class Swap:
    """The last node comes before all that it reads."""

    order: tuple[int, int] = (0, 0)

    def apply(self, view: GraphView) -> Case:
        graph = view.case.graph
        *first, last, output = [n for n in graph.nodes if n.op != "placeholder"]
        return replace(view.case, graph=replace(graph, nodes=(*graph.placeholders, last, *first, output)))


def swap(view: GraphView, step: int) -> Proposal | None:
    return each((Patch(drop=frozenset([view.compute[0]]), edits=(Swap(),)),)) if step == 0 else None


FAULTY = {
    "raises": (broken, "LookupError: no such node"),
    "changes-nothing": (idle, "RecursionError: after 1129 steps it has not come to an end"),
    "is-no-graph": (swap, "ValueError: node 'n29' reads 'n28', which is not there before it"),
}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("kind", FAULTY)
def test_a_faulty_pass_is_noted_and_the_others_go_on(kind: str, jobs: int) -> None:
    propose, said = FAULTY[kind]
    rows, fails = (Pass("faulty", "Planted.", propose), *REMOVALS), has("asinh")
    case, trace = tower(30, {20: "asinh"})
    result = shrinker(Parallel(fails, jobs), passes=rows, jobs=jobs).run(case, trace)
    assert ops(result.case) == ["asinh"]
    assert result.problems["faulty"][:1] == [said]
    with pytest.raises(PassFailed, match=f"pass faulty: {said}"):
        shrinker(Parallel(fails, jobs), passes=rows, jobs=jobs, strict=True).run(case, trace)


@pytest.mark.parametrize("strict", [False, True])
def test_what_a_pass_does_with_a_case_that_is_only_asked_ahead_about_does_not_count(strict: bool) -> None:
    """With two workers later passes look at a case that is gone before their turn comes."""

    def early(view: GraphView, step: int) -> Proposal | None:
        if step > 0:
            return None
        if len(view.compute) > 1:
            raise LookupError("not yet")
        return Proposal((Patch(replace={view.compute[0]: {"ref": "nobody"}}),), lambda: sweep((0,)))

    def most(view: GraphView, step: int) -> Proposal | None:
        rest = frozenset(name for name in view.compute if name != "n20")
        return Proposal((Patch(drop=rest),), lambda: sweep((0,))) if step == 0 and rest else None

    case, trace = tower(30, {20: "asinh"})
    rows = (Pass("most", "Takes away nearly all.", most), Pass("early", "Wants little.", early))
    seen = []
    for jobs in (1, 2, 3):
        engine = shrinker(Parallel(has("asinh"), jobs), passes=rows, jobs=jobs, strict=strict)
        try:
            seen.append((engine.run(case, trace).problems["early"], ops(engine.best)))
        except PassFailed as error:
            seen.append(([str(error)], ops(engine.best)))
    assert seen == [(["pass early: " * strict + "KeyError: 'nobody'"], ["asinh"])] * 3


def test_a_patch_that_cannot_be_applied_is_noted() -> None:
    def unknown(view: GraphView, step: int) -> Proposal | None:
        return each((Patch(replace={view.compute[0]: {"ref": "nobody"}}),)) if step == 0 else None

    case, trace = tower(30, {20: "asinh"})
    result, _ = run(has("asinh"), case, trace, passes=(Pass("unknown", "Names nothing.", unknown), *REMOVALS))
    assert ops(result.case) == ["asinh"]
    assert result.problems["unknown"] == ["KeyError: 'nobody'"]


def test_late_passes_run_where_the_others_end_on_a_case_studied_anew() -> None:
    seen = []

    def late(view: GraphView, step: int) -> Proposal | None:
        seen.append((len(view.compute), view.trace is again))
        return None

    case, trace = tower(30, {20: "asinh"})
    again = replace(trace, problem="recorded again")
    row = Pass("late", "Looks.", late, stage=Stage.REPLACE)
    result, _ = run(has("asinh"), case, trace, passes=(row, *REMOVALS), study=lambda case: again)
    assert seen == [(1, True)]
    assert result.trace is again
