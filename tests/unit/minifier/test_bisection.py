"""A bisection, with a program that is a function: which questions it asks, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxminify.backends.capture.selection import CompiledNode, CompiledPart, GraphSelection, MetGraph, PartRange
from fxminify.minifier.bisection import bisect as bisecting
from fxminify.minifier.bisection import program
from fxminify.minifier.bisection.bisect import Answered, Bisection, BisectOptions, Question
from fxminify.minifier.bisection.program import ProgramRun, RunAnswer, arguments, judged
from fxminify.minifier.bisection.subsets import smallest_range, smallest_set
from fxminify.store.errors import StoreError

GRAPHS = tuple(MetGraph(f"g{i}", "acme", 2 * i, 2 * i, f"train.py:{i} f") for i in range(1, 6))
FINE, WRONG = ProgramRun(0, 1.0), ProgramRun(1, 1.0, "AssertionError")
#: Whether a program fails with these graphs compiled, each wholly or in a range.
Fails = Callable[[dict[str, PartRange | None]], bool]


class Runs:
    """Runs of a program that is a function. ``flaky`` are numbers of runs that pass nevertheless."""

    def __init__(self, fails: Fails, flaky: Sequence[int] = ()) -> None:
        self.fails = fails
        self.flaky = flaky
        self.made: list[GraphSelection] = []
        self.lines: list[str] = []

    def __call__(self, words: Any, selection: GraphSelection, **options: Any) -> ProgramRun:
        self.made.append(selection)
        every: dict[str, PartRange | None] = {graph.name: None for graph in GRAPHS}
        chosen = every if selection.graphs is None else dict(selection.graphs)
        if options["without_compile"]:
            chosen = {}
        ended = WRONG if self.fails(chosen) and len(self.made) not in self.flaky else FINE
        parts = [
            CompiledPart(name, tuple(CompiledNode(f"n{i}", "sin", "") for i in range(r.first, r.end)))
            for name, r in chosen.items() if r is not None
        ]  # fmt: skip
        return replace(ended, graphs=GRAPHS, compiled=tuple(parts))

    def asked(self, number: int, question: Question, answered: Answered) -> None:
        known = ", known" if answered.known else ""
        self.lines.append(f"{number} {question.what}: {answered.answer}{known}")


@pytest.fixture
def bisect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bisection]:
    def made(made_of: Runs, **options: Any) -> Bisection:
        monkeypatch.setattr(bisecting, "run", made_of)
        return bisecting.bisect(BisectOptions(("train.py",), tmp_path / "log", **options), made_of)

    return made


def has(chosen: dict[str, PartRange | None], graph: str, part: int) -> bool:
    """Whether this part of a graph is compiled."""
    return graph in chosen and ((r := chosen[graph]) is None or r.first <= part < r.end)


def test_one_part_of_one_graph_is_found_in_few_runs(bisect: Callable[..., Bisection]) -> None:
    runs = Runs(lambda chosen: has(chosen, "g4", 5))
    found = bisect(runs)
    (graph,) = found.found
    assert (graph.number, graph.graph, [n.name for n in graph.compiled]) == (4, GRAPHS[3], ["n5"])
    assert found.selection == GraphSelection({"g4": PartRange(5, 6)})
    assert found.runs == len(runs.made) <= 2 + 2 * 3 + 2 * 3
    assert runs.lines[:2] == ["1 all graphs compiled: fails", "2 no graph compiled: passes"]


def test_two_graphs_that_are_needed_together_are_both_found(bisect: Callable[..., Bisection]) -> None:
    found = bisect(Runs(lambda chosen: has(chosen, "g2", 1) and has(chosen, "g5", 0)))
    assert found.selection == GraphSelection({"g2": PartRange(1, 2), "g5": PartRange(0, 1)})
    assert [graph.number for graph in found.found] == [2, 5]


def test_a_graph_that_is_needed_as_a_whole_lists_no_nodes(bisect: Callable[..., Bisection]) -> None:
    found = bisect(Runs(lambda chosen: "g3" in chosen and chosen["g3"] in (None, PartRange(0, 6))))
    assert [(graph.number, graph.compiled) for graph in found.found] == [(3, ())]


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (lambda chosen: False, "does not fail with all graphs compiled (exit code 0)"),
        (lambda chosen: True, "fails without torch.compile, too"),
    ],
)
def test_without_a_culprit_it_says_why(fails: Fails, said: str, bisect: Callable[..., Bisection]) -> None:
    found = bisect(Runs(fails))
    assert not found.found
    assert said in found.reason


def test_what_only_dynamo_does_is_not_the_backends(bisect: Callable[..., Bisection]) -> None:
    class OfDynamo(Runs):
        def __call__(self, words: Any, selection: GraphSelection, **options: Any) -> ProgramRun:
            return FINE if options["without_compile"] else super().__call__(words, selection, **options)

    assert "it is Dynamo" in bisect(OfDynamo(lambda chosen: True)).reason


def test_a_run_that_passes_is_repeated_before_it_is_believed(bisect: Callable[..., Bisection]) -> None:
    runs = Runs(lambda chosen: has(chosen, "g1", 0), flaky=(1, 5, 9, 13))
    assert bisect(runs, runs=3).selection == GraphSelection({"g1": PartRange(0, 1)})


def test_three_runs_that_cannot_tell_end_it(bisect: Callable[..., Bisection]) -> None:
    def oracle(run: ProgramRun) -> bool | None:
        return None if 0 < len(runs.made[-1].graphs or {}) < 5 else run.code != 0

    runs = Runs(lambda chosen: has(chosen, "g4", 5))
    with pytest.raises(StoreError, match="3 runs in a row cannot tell whether the program fails"):
        bisect(runs, oracle=oracle)


def test_an_interrupted_bisection_goes_on_where_it_was(bisect: Callable[..., Bisection]) -> None:
    whole = Runs(lambda chosen: has(chosen, "g4", 5))
    expected = bisect(whole)

    class Interrupted(Exception):
        pass

    class Short(Runs):
        def __call__(self, *args: Any, **options: Any) -> ProgramRun:
            if len(self.made) == 4:
                raise Interrupted
            return super().__call__(*args, **options)

    fails: Fails = lambda chosen: has(chosen, "g4", 5)  # noqa: E731
    with pytest.raises(Interrupted):
        bisect(Short(fails), again=True)
    rest = Runs(fails)
    assert bisect(rest) == expected
    assert len(rest.made) == len(whole.made) - 4
    assert [line.endswith("known") for line in rest.lines[:5]] == [True] * 4 + [False]


def test_the_file_of_another_program_is_refused(bisect: Callable[..., Bisection], tmp_path: Path) -> None:
    runs = Runs(lambda chosen: has(chosen, "g1", 0))
    bisect(runs)
    with pytest.raises(StoreError, match=r"has a bisection with command train.py \(now other.py\).*--again"):
        bisecting.bisect(BisectOptions(("other.py",), tmp_path / "log"), runs)


def test_a_run_that_ends_otherwise_than_the_first_one_cannot_tell() -> None:
    assert judged(WRONG, WRONG, None) is RunAnswer.FAILS
    assert judged(replace(WRONG, error="RuntimeError"), WRONG, None) is RunAnswer.UNKNOWN
    assert judged(replace(WRONG, code=139, error=""), WRONG, None) is RunAnswer.UNKNOWN
    assert judged(ProgramRun(125, 1.0), None, None) is RunAnswer.UNKNOWN
    assert judged(ProgramRun(None, 1.0), None, None) is RunAnswer.FAILS
    assert judged(replace(FINE, uncut="a value is not known"), WRONG, None) is RunAnswer.UNKNOWN


def test_python_may_be_named_before_the_program() -> None:
    assert arguments(["python", "train.py", "-x"]) == ["train.py", "-x"]
    assert arguments(["/usr/bin/python3.11", "-m", "pytest"]) == ["-m", "pytest"]
    assert arguments(["train.py"]) == ["train.py"]
    assert arguments(["pytest", "-q"], module=True) == ["-m", "pytest", "-q"]


@pytest.mark.parametrize("name", ["nowhere", "no_such_module_here:f", "json:no_such_function"])
def test_an_oracle_that_is_not_there(name: str) -> None:
    with pytest.raises(StoreError, match="oracle"):
        program.oracle_named(name)


@given(st.integers(1, 40), st.data())
def test_a_smallest_set_fails_and_nothing_of_it_can_go(length: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=4))
    asked = 0

    def fails(some: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return needed <= set(some)

    assert set(smallest_set(range(length), fails)) == needed
    if len(needed) == 1:
        assert asked <= 2 * length.bit_length()


@given(st.integers(1, 60), st.data())
def test_a_smallest_range_is_the_one_between_what_is_needed(length: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first, length - 1))
    asked = 0

    def fails(begin: int, end: int) -> bool:
        nonlocal asked
        asked += 1
        return begin <= first and last < end

    assert smallest_range(length, fails) == (first, last + 1)
    assert asked <= 2 * length.bit_length()
