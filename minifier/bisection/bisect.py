"""Find the graphs that must be compiled for a program to fail, and the nodes of each.

Each question is one run of the program, in which the backend compiles some graphs, or some nodes of a graph, and eager
runs the rest. Answers are kept in a file, so an interrupted bisection goes on where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ...backends.capture.selection import CompiledNode, GraphSelection, MetGraph, PartRange
from ...store import codec
from ...store.document.case import Json
from ...store.errors import StoreError
from ..results_file import ResultsFile
from .program import Oracle, ProgramRun, RunAnswer, judged, run
from .subsets import smallest_range, smallest_set

_WORK = "bisection"
#: So many runs in a row that cannot tell end a bisection.
MOST_UNKNOWN = 3
#: The lines of an output that are quoted.
_QUOTED = 5


@dataclass(frozen=True, slots=True)
class BisectOptions:
    """The options of a bisection.

    ``words`` are the command. ``oracle`` judges runs, by default their exit code does. ``runs`` is how often a run that
    passes is repeated before that is believed. ``timeout`` is in seconds, for one run. ``log`` is the file of answers;
    with ``again`` it is started anew.
    """

    words: tuple[str, ...]
    log: Path
    oracle: Oracle | None = None
    oracle_name: str = ""
    runs: int = 1
    timeout: float | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A run of the program: what is compiled in it, and that in words."""

    selection: GraphSelection
    what: str
    without_compile: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question, how the run ended, and its seconds. ``known`` says that it was in the file."""

    answer: RunAnswer
    ended: str
    seconds: float
    known: bool = False


class BisectListener(Protocol):
    """Is called as a bisection goes on."""

    def asked(self, number: int, question: Question, answered: Answered) -> None:
        """The ``number``-th run was made, or was known."""


@dataclass(frozen=True, slots=True)
class BisectedGraph:
    """A graph that must be compiled: the ``number``-th of those that the program passed to backends.

    ``compiled`` are the nodes with which the program fails if the others run in eager; they are empty where the whole
    graph is needed.
    """

    number: int
    graph: MetGraph
    compiled: tuple[CompiledNode, ...]


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result: the program fails if what is in ``found`` is compiled, and passes with nothing compiled.

    ``graphs`` is the number of graphs, ``runs`` of runs. Where ``found`` is empty, ``reason`` says why. ``selection``
    is what is found, for one more run.
    """

    graphs: int
    runs: int
    seconds: float
    found: tuple[BisectedGraph, ...] = ()
    reason: str = ""
    selection: GraphSelection = field(default_factory=lambda: GraphSelection({}))

    def to_json(self) -> Json:
        return {key: value for key, value in codec.dump(self).items() if key != "selection"}


class NoAnswer(StoreError):
    """Runs cannot tell whether the program fails."""


def bisect(options: BisectOptions, listener: BisectListener) -> Bisection:
    """Bisect a program. Raises `StoreError`, also where three runs in a row cannot tell whether it fails."""
    if options.again:
        options.log.unlink(missing_ok=True)
    about = {"command": " ".join(options.words), "folder": os.getcwd(), "oracle": options.oracle_name or "exit code"}
    with closing(ResultsFile(options.log, _WORK, about)) as file:
        return _Bisecting(options, listener, file).result()


class _Bisecting:
    """A bisection on its way."""

    def __init__(self, options: BisectOptions, listener: BisectListener, file: ResultsFile) -> None:
        self.options = options
        self.listener = listener
        self.file = file
        self.known = _known(file.earlier)
        self.first: ProgramRun | None = None
        self.asked = 0
        self.seconds = 0.0
        self.unknown = 0
        self.compiled: dict[str, tuple[CompiledNode, ...]] = {}

    def result(self) -> Bisection:
        first, answered = self.ask(Question(GraphSelection(), "all graphs compiled"))
        if answered.answer is not RunAnswer.FAILS:
            return self.nothing(0, f"the program does not fail with all graphs compiled ({answered.ended})")
        self.first, graphs = first, first.graphs
        if not graphs:
            return self.nothing(0, f"no graph of the program reached a backend; it ends with {first.ended}")
        _, without = self.ask(Question(GraphSelection({}), "no graph compiled"))
        if without.answer is not RunAnswer.PASSES:
            return self.nothing(len(graphs), self.fails_without(without))
        number = {graph.name: i for i, graph in enumerate(graphs, 1)}
        names = [graph.name for graph in graphs]

        def fails(some: Sequence[str]) -> bool:
            return self.fails(dict.fromkeys(some), f"{_numbers([number[n] for n in some])} of {len(names)}")

        needed = names if len(names) == 1 else smallest_set(names, fails)
        chosen: dict[str, PartRange | None] = dict.fromkeys(needed)
        for graph in graphs:
            if graph.name in chosen and graph.parts > 1:
                chosen[graph.name] = self.nodes_of(graph, number[graph.name], chosen)
        found = tuple(
            BisectedGraph(number[g.name], g, self.compiled.get(g.name, ()) if chosen[g.name] is not None else ())
            for g in graphs if g.name in chosen
        )  # fmt: skip
        return Bisection(len(graphs), self.asked, self.seconds, found, selection=GraphSelection(chosen))

    def nodes_of(self, graph: MetGraph, number: int, chosen: Mapping[str, PartRange | None]) -> PartRange | None:
        """The smallest range of parts of ``graph`` that fails beside the rest of ``chosen``; None: the whole graph."""

        def fails(first: int, end: int) -> bool:
            parts = f"part {end}" if end == first + 1 else f"parts {first + 1} to {end}"
            what = f"{parts} of {graph.parts} of graph {number}"
            return self.fails({**chosen, graph.name: PartRange(first, end)}, what)

        first, end = smallest_range(graph.parts, fails)
        return None if (first, end) == (0, graph.parts) else PartRange(first, end)

    def fails(self, graphs: Mapping[str, PartRange | None], what: str) -> bool:
        run, answered = self.ask(Question(GraphSelection(graphs), f"compiled: {what}"))
        if answered.answer is RunAnswer.FAILS:
            self.compiled |= {part.graph: part.nodes for part in run.compiled}
        return answered.answer is RunAnswer.FAILS

    def ask(self, question: Question) -> tuple[ProgramRun, Answered]:
        """Run the program until it fails, or passed as often as it is asked. Raises `NoAnswer`."""
        for _ in range(self.options.runs):
            done, answered = self.once(question)
            if answered.answer is not RunAnswer.PASSES:
                break
        self.unknown = self.unknown + 1 if answered.answer is RunAnswer.UNKNOWN else 0
        if self.unknown >= MOST_UNKNOWN:
            why = done.uncut or f"they end with {answered.ended}, the first one with {self.first_ended()}"
            raise NoAnswer(
                f"{MOST_UNKNOWN} runs in a row cannot tell whether the program fails: {why}. --oracle MODULE:FUNCTION "
                "names a function that can."
            )
        return done, answered

    def once(self, question: Question) -> tuple[ProgramRun, Answered]:
        key = json.dumps([question.selection.to_json(), question.without_compile], sort_keys=True)
        self.asked += 1
        if self.known.get(key):
            done, answer = self.known[key].pop(0)
            answered = Answered(answer, done.ended, done.seconds, known=True)
        else:
            done = run(
                self.options.words, question.selection, timeout=self.options.timeout,
                without_compile=question.without_compile,
            )  # fmt: skip
            answer = judged(done, self.first, self.options.oracle)
            answered = Answered(answer, done.ended, done.seconds)
            kept = replace(done, stdout="", stderr=_tail(done))
            self.file.add({"question": key, "answer": str(answer), "run": codec.dump(kept)})
        self.seconds += done.seconds
        self.listener.asked(self.asked, question, answered)
        return done, answered

    def first_ended(self) -> str:
        return "the same" if self.first is None else self.first.ended

    def fails_without(self, answered: Answered) -> str:
        """Return the reason why no graph makes a program fail that fails with none compiled, too."""
        if answered.answer is RunAnswer.UNKNOWN:
            return f"with no graph compiled the program ends with {answered.ended}, which tells nothing"
        _, plain = self.ask(Question(GraphSelection({}), "torch.compile off", without_compile=True))
        if plain.answer is RunAnswer.FAILS:
            return "the program fails without torch.compile, too: it is not the backend"
        return (
            "the program fails with no graph compiled, where eager runs what Dynamo made, and passes without "
            "torch.compile: it is Dynamo, or how the program uses it, and not the backend"
        )

    def nothing(self, graphs: int, reason: str) -> Bisection:
        return Bisection(graphs, self.asked, self.seconds, reason=reason)


def _known(lines: Sequence[Any]) -> dict[str, list[tuple[ProgramRun, RunAnswer]]]:
    """The answers in a file, by question."""
    found: dict[str, list[tuple[ProgramRun, RunAnswer]]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            found.setdefault(line["question"], []).append(
                (codec.load(line["run"], ProgramRun), RunAnswer(line["answer"]))
            )
    return found


def _tail(run: ProgramRun) -> str:
    return "\n".join((run.stderr or run.stdout).splitlines()[-_QUOTED:])[-2000:]


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers in words: ``graphs 1 to 4, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return f"graph{'s' if len(numbers) > 1 else ''} {', '.join(words)}"
