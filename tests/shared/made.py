"""Hand-made cases, traces and oracles: a reduction can be tested without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.patch import apply
from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.minifier.oracle.scheduler import Budget, QueryScheduler, WriteAheadLog
from fxminify.minifier.oracle.verdict import InterestingnessTest, Outcome, Verdict
from fxminify.minifier.passes import Pass, Proposal, Stage, in_stage
from fxminify.minifier.reducer.shrinker import Shrinker
from fxminify.store.document.case import Case, Graph, Node, TensorSpec

Step = tuple[str, str, Sequence[str]]
REMOVALS, REPLACEMENTS = in_stage(Stage.REMOVE), in_stage(Stage.REPLACE)


def spec(shape: tuple[int, ...] = (4,), storage: str = "s", dtype: str = "float32") -> TensorSpec:
    stride, step = [], 1
    for extent in reversed(shape):
        stride.append(step)
        step *= extent
    return TensorSpec(dtype, shape, tuple(reversed(stride)), storage=storage)


def make(
    inputs: Sequence[str],
    steps: Sequence[Step],
    outputs: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Case, Trace]:
    """A case whose values are all tensors. A step is ``(name, operation, names it reads)``."""
    shapes = shapes or {}
    nodes = [Node(n, "placeholder", n) for n in inputs]
    nodes += [
        Node(name, "call_function", {"fn": f"torch.{op}"}, tuple({"ref": r} for r in read)) for name, op, read in steps
    ]
    nodes.append(Node("output", "output", "output", ({"tuple": [{"ref": n} for n in outputs]},)))
    given = tuple(spec(shapes.get(n, (4,)), f"in:{n}") for n in inputs)
    case = Case(Graph(tuple(nodes)), tuple({"tensor": i} for i in range(len(given))), given)
    recorded = tuple(spec(shapes.get(name, (4,)), f"{name}@0") for name, _, _ in steps)
    positions = {n.name: i for i, n in enumerate(nodes)}
    values = {name: Recorded(ValueKind.TENSOR, ((positions[name] + 1, i),)) for i, (name, _, _) in enumerate(steps)}
    values |= {name: Recorded(ValueKind.TENSOR) for name in inputs}
    return case, Trace(values, recorded, positions)


def code(case: Case) -> str:
    """The graph on one line: ``x -> b = sin(x) -> b``."""
    parts = [", ".join(n.name for n in case.graph.placeholders)]
    parts += [f"{n.name} = {called(n).split('.')[-1]}({', '.join(n.inputs)})" for n in case.graph.compute]
    return " -> ".join([*parts, ", ".join(case.graph.output.inputs)])


def ops(case: Case) -> list[str]:
    return [called(n).removeprefix("torch.") for n in case.graph.compute]


def called(node: Node) -> str:
    """The name of what a node calls; a method is a name itself."""
    return str(node.target if isinstance(node.target, str) else next(iter(node.target.values())))


class Fails:
    """An oracle made of a predicate; remembers what it was asked."""

    def __init__(self, fails: Callable[[Case], bool]) -> None:
        self.fails = fails
        self.asked: list[Case] = []

    def ask(self, case: Case) -> Verdict:
        self.asked.append(case)
        return Verdict(Outcome.SAME if self.fails(case) else Outcome.PASS)


class Parallel(Fails):
    """Answers in threads, in any order."""

    def __init__(self, fails: Callable[[Case], bool], jobs: int) -> None:
        super().__init__(fails)
        self.pool = ThreadPoolExecutor(jobs)

    def submit(self, case: Case) -> Future[Verdict]:
        return self.pool.submit(self.ask, case)


SHAPES: list[tuple[int, ...]] = [(4,), (2, 2), (1, 4)]
KINDS = ["add", "mul", "gelu", "view", "sum", "relu_", "cat", "asinh", "atan"]


def random_case(rng: Random) -> tuple[Case, Trace]:
    inputs = [f"x{i}" for i in range(rng.randrange(1, 5))]
    names = list(inputs)
    steps: list[Step] = []
    shapes = {n: rng.choice(SHAPES) for n in inputs}
    for i in range(rng.randrange(3, 60)):
        name = f"n{i}"
        steps.append((name, rng.choice(KINDS), rng.sample(names[-6:], min(len(names), rng.randrange(1, 4)))))
        shapes[name] = rng.choice(SHAPES)
        names.append(name)
    returned = rng.sample(names, rng.randrange(1, 4))
    return make(inputs, steps, sorted(set(returned) | {steps[-1][0]}), shapes)


class Held(dict[str, bytes]):
    """Storages by key, as simplifications put them."""

    put = dict.update


def proposed(row: Pass, view: GraphView, step: int) -> Proposal | None:
    """Return the proposal of a pass that removes or replaces nodes."""
    choices = row.propose(view, step)
    assert choices is None or isinstance(choices, Proposal)
    return choices


def assert_nothing_more_can_go(best: Case, trace: Trace, passes: Sequence[Pass], fails: Callable[[Case], bool]) -> None:
    """No single edit that a pass stands for makes ``best`` smaller and still fails."""
    view = GraphView(best, trace)
    for p in passes:
        step = 0
        while not p.one_shot and (proposal := proposed(p, view, step)) is not None:
            for patch in proposal.patches:
                candidate = apply(view, patch)
                if candidate is not None and size(candidate) < size(best):
                    assert not fails(candidate), f"{p.name} can still go on with {patch}"
            step += 1


def shrinker(
    oracle: InterestingnessTest,
    *,
    jobs: int = 1,
    max_queries: int | None = None,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    log: WriteAheadLog | None = None,
    storages: Held | None = None,
    passes: Sequence[Pass] = REMOVALS,
    **more: Any,
) -> Shrinker:
    """A shrinker with a scheduler of its own; by default it only removes."""
    budget = Budget(max_queries, seconds, clock=clock)
    scheduler = QueryScheduler(oracle, jobs=jobs, log=log, budget=budget)
    return Shrinker(scheduler, Held() if storages is None else storages, passes=passes, **more)


def canonicalize(case: Case, storages: Held, same: Callable[[Case], bool]) -> Case:
    """The plainest form of ``case`` that ``same`` accepts. Raises where a pass is wrong itself."""
    made = shrinker(Fails(same), storages=storages, passes=in_stage(Stage.CANONICALIZE), strict=True)
    return made.run(case, Trace({}, (), {})).case


def tower(count: int, rare: dict[int, str], seed: int = 0) -> tuple[Case, Trace]:
    """A chain with side inputs, as residual networks have, and some rare operations in it."""
    rng = Random(seed)
    steps: list[Step] = []
    for i in range(count):
        before = steps[-1][0] if steps else "x"
        side = [rng.choice(steps)[0]] if steps and rng.random() < 0.4 else []
        steps.append((f"n{i}", rare.get(i) or rng.choice(["add", "mul", "gelu", "linear"]), [before, *side]))
    return make(["x"], steps, [steps[-1][0]])


def has(*names: str) -> Callable[[Case], bool]:
    return lambda case: set(names) <= set(ops(case))


class Slow:
    """An oracle with ``jobs`` workers that takes one second for each answer, on a clock of its own."""

    def __init__(self, fails: Callable[[Case], bool], jobs: int) -> None:
        self.fails, self.jobs, self.now = fails, jobs, 0.0
        self.due: list[tuple[float, Future[Verdict], Case]] = []

    def ask(self, case: Case) -> Verdict:
        self.now += 1.0
        return Verdict(Outcome.SAME if self.fails(case) else Outcome.PASS)

    def submit(self, case: Case) -> Future[Verdict]:
        free = sorted(time for time, _, _ in self.due)[-self.jobs :] if len(self.due) >= self.jobs else [self.now]
        future: Future[Verdict] = Future()
        self.due.append((free[0] + 1.0, future, case))
        return future

    def wait(self, futures: Collection[Future[Verdict]], **_: object) -> tuple[set[Future[Verdict]], set[object]]:
        """`concurrent.futures.wait` for the first that is completed."""
        self.now = max(self.now, min(time for time, _, _ in self.due))
        done = {f: case for time, f, case in self.due if time <= self.now and not f.cancelled()}
        for future, case in done.items():
            future.set_result(Verdict(Outcome.SAME if self.fails(case) else Outcome.PASS))
        self.due = [(time, f, case) for time, f, case in self.due if not f.done()]
        return set(done), set()
