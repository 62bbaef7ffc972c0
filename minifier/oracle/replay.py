"""Replay a capture before its reduction: whether the failure shows again, through which entry, how often and how fast.

The capture is run ``runs`` times through both entries to the backend. The faster entry that shows the failure is kept.
A graph with subgraphs goes through ``compile`` where that shows it: Dynamo, which traces the candidate there, knows the
rules for the subgraphs of ``cond``, ``while_loop`` and others. Eager does not.
The failures that are seen become the examples of the oracle's *matcher*, their rate gives its *votes*, and their time
its *timeout*: five times the slowest replay, at least 10 s. For a hang the timeout is five times what a healthy graph
of that size should take, estimated from a graph of one node in a fresh worker. Where the failure does not show,
``reproduced`` is False and ``reason`` says what was seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace

from ...store.document.case import Case, Graph, Node, TensorSpec
from ...store.failure import Failure, FailureKind
from ...store.matching import FailureMatcher, known_from
from ..candidate.hop_calls import paths
from ..sandbox import stacks
from ..sandbox.pool import Reply, Workers
from ..sandbox.stacks import StackSampling
from . import tasks
from .observation import Observation, Seen, of_reply
from .oracle import SHORTEST, LongerLimit, Oracle, Votes, hang_seconds

SLOWEST_TIMES = 5.0
#: Seconds a replay may take where the capture names no time of its own.
LIMIT = 600.0
#: A flaky failure is replayed this many times as often, to measure its rate.
MORE = 3
#: What Python says of a missing file.
_NO_FILE = re.compile(r"No such file or directory: (['\"])(.+?)\1")
#: Seconds between two calls of ``meanwhile``.
_TICK = 0.2
#: How much slower ``direct`` may be and still be preferred.
PREFERENCE = 1.2


@dataclass(frozen=True, slots=True)
class Shown:
    """The number of runs through an entry, the number that showed the failure, and their seconds."""

    runs: int = 0
    matched: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.matched / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of the replays.

    * ``matcher`` has an example for each signature that the captured failure had in them, ``entries`` the result of
      each entry.
    * ``threads`` is torch's number of threads (`fxminify.minifier.oracle.tasks`).
    * ``healthy``: for a hang, the seconds that a graph of one node takes, else 0.
    * ``reason`` explains to a person why the failure did not reproduce; ``passes`` is true if every run ended without
      a failure.
    * ``refused`` is the error of eager mode if every run raised one; ``absent`` is the reason why the backend cannot
      run here.
    * ``anchor`` is the call in which a hang hangs (`fxminify.minifier.sandbox.stacks`), empty if it is not known.
    * ``longer`` is the time limit of cases that are larger than the replayed one.
    """

    reproduced: bool
    matcher: FailureMatcher
    entry: str = "direct"
    threads: int = tasks.OWN_THREADS
    rate: float = 0.0
    timeout: float = SHORTEST
    healthy: float = 0.0
    entries: dict[str, Shown] = field(default_factory=dict)
    reason: str = ""
    passes: bool = False
    refused: str = ""
    absent: str = ""
    anchor: str = ""
    longer: LongerLimit | None = None

    @property
    def failures(self) -> tuple[Failure, ...]:
        """An example for each signature of the failure."""
        return self.matcher.examples

    def seldom(self) -> str:
        """Return how often the whole graph failed (``7 of 9``), or an empty text if it always failed."""
        shown = self.entries.get(self.entry)
        return f"{shown.matched} of {shown.runs}" if shown is not None and shown.rate < 1 else ""

    def oracle(self, pool: Workers, least: float | None = None) -> Oracle:
        """The oracle for this capture. A candidate that shows the failure less often than ``least`` does not count."""
        return Oracle(
            pool,
            self.matcher,
            timeout=self.timeout,
            entry=self.entry,
            votes=Votes.for_rate(self.rate, least),
            threads=self.threads,
            healthy=self.healthy,
            anchor=self.anchor,
            longer=self.longer,
        )


def replay(
    pool: Workers,
    case: Case,
    matcher: FailureMatcher,
    *,
    runs: int = 3,
    prefer: str = "",
    limit: float = LIMIT,
    again: str = "minify run --again",
    meanwhile: Callable[[], None] = lambda: None,
    ran: Callable[[int], None] = lambda number: None,
) -> Replay:
    """Replay ``case``, whose storages are in ``pool.scratch``. ``matcher`` has the captured failure.

    ``prefer`` names the entry to take where it shows
    the failure as often as any. ``limit`` is the longest a run may take, in seconds: for a hang the time after
    which the capture was given up. ``again`` is the command that replays it again, for the reason why it did not show.
    ``meanwhile`` is called now and then, ``ran`` after each run with its number, from 1. Raises `SandboxError` when the
    workers cannot work."""
    (captured,) = matcher.examples
    hangs = captured.kind is FailureKind.HANG
    one_node = _healthy_seconds(pool, case, limit) if hangs else 0.0
    timeout = min(limit, hang_seconds(one_node, case.graph.count)) if hangs else limit
    session = _Runs(pool, case, matcher, timeout, meanwhile, ran)
    entries = session.first_sight(again=0 if hangs else runs - 1)
    if not entries and not session.refused() and not session.absent():
        entries = session.second_sight(runs)
    if not entries:
        why = session.why_not(captured, again)
        passes, refused = session.all_pass(), session.refused()
        return Replay(
            False, matcher, entries=session.shown(), reason=why, passes=passes, refused=refused, absent=session.absent()
        )
    entry = fastest(entries, traced=bool(paths(case.graph)))
    if prefer in entries and entries[prefer].rate >= entries[entry].rate:
        entry = prefer
    session.run_until(entry, runs)
    if session.shown()[entry].rate < 1.0:
        session.run_until(entry, MORE * runs)
    if not hangs:
        timeout = min(limit, max(SHORTEST, SLOWEST_TIMES * session.slowest(entry)))
    return Replay(
        True,
        replace(matcher, examples=session.failures(), strict=True),
        entry,
        session.threads,
        session.shown()[entry].rate,
        round(timeout, 1),
        round(one_node, 3),
        session.shown(),
        anchor=session.anchor,
    )


class _Runs:
    """The runs of one capture, by entry."""

    def __init__(
        self,
        pool: Workers,
        case: Case,
        matcher: FailureMatcher,
        timeout: float,
        meanwhile: Callable[[], None],
        ran: Callable[[int], None],
    ) -> None:
        self.pool = pool
        self.case = case
        self.matcher = matcher
        (self.captured,) = matcher.examples
        self.timeout = timeout
        self.meanwhile = meanwhile
        self.ran = ran
        self.threads = tasks.OWN_THREADS
        #: Where the first run that hung did so.
        self.anchor = ""
        self.seen: dict[tuple[str, int], list[tuple[Observation, Reply]]] = {}

    def run(self, *entries: str) -> list[str]:
        """Replay through each of ``entries``, in parallel where there are workers. Returns those that failed alike."""
        shows = []
        for entry, reply in zip(entries, [self._submit(entry) for entry in entries], strict=True):
            while not wait([reply], _TICK).done:
                self.meanwhile()
            observation = of_reply(seen := reply.result())
            hangs = observation.failure is not None and observation.failure.kind is FailureKind.HANG
            doubtful = stacks.is_doubtful(seen.stacks, hangs=hangs, passes=observation.seen is Seen.PASS)
            if observation.seen is Seen.INFRA or doubtful:
                observation = of_reply(seen := self._submit(entry, fresh=True, sampled=False).result())
            self.seen.setdefault((entry, self.threads), []).append((observation, seen))
            self.anchor = self.anchor or stacks.anchor(seen.stacks)
            self.ran(sum(map(len, self.seen.values())))
            shows += [entry] if self._matches(observation) else []
        return shows

    def _submit(self, entry: str, *, fresh: bool = False, sampled: bool = True) -> Future[Reply]:
        argument = tasks.observe_argument(self.case, entry, self.threads)
        hangs = self.captured.kind is FailureKind.HANG
        sampling = StackSampling(self.anchor) if hangs and sampled else None
        return self.pool.submit("observe", argument, timeout=self.timeout, fresh=fresh, sampling=sampling)

    def first_sight(self, *, again: int) -> dict[str, Shown]:
        """Run each entry once, with each number of threads until the failure shows. Return the entries that show it.

        If both do, the one that ran first has ``again`` further runs: its first paid for what the other found warm.
        """
        hangs = self.captured.kind is FailureKind.HANG
        for threads in numbers_of_threads(self.case, self.captured):
            self.threads = threads
            # Once it is known where the first run hangs, the second one need not take all of its time.
            together = [[entry] for entry in tasks.ENTRIES] if hangs else [list(tasks.ENTRIES)]
            shows = [entry for entries in together for entry in self.run(*entries)]
            if again and shows == list(tasks.ENTRIES):
                self.run(*[shows[0]] * again)
            if shows:
                break
        return self.matching()

    def second_sight(self, runs: int) -> dict[str, Shown]:
        """The failure did not show at once and may be flaky: up to ``runs`` runs of everything."""
        for threads in numbers_of_threads(self.case, self.captured):
            self.threads = threads
            for entry in tasks.ENTRIES:
                self.run_until(entry, runs, stop_at_match=True)
            if self.matching():
                break
        return self.matching()

    def run_until(self, entry: str, runs: int, *, stop_at_match: bool = False) -> None:
        """Replay until there are ``runs`` runs, or, if so asked, until one of them matches."""
        while missing := max(0, runs - len(self.seen.get((entry, self.threads), ()))):
            if self.run(*[entry] * (1 if stop_at_match else missing)) and stop_at_match:
                return

    def shown(self) -> dict[str, Shown]:
        """For the number of threads in use now."""
        out = {}
        for entry in tasks.ENTRIES:
            runs = self.seen.get((entry, self.threads), [])
            times = [reply.seconds for _, reply in runs]
            out[entry] = Shown(len(runs), sum(self._matches(o) for o, _ in runs), min(times, default=0.0))
        return out

    def matching(self) -> dict[str, Shown]:
        return {entry: shown for entry, shown in self.shown().items() if shown.matched}

    def failures(self) -> tuple[Failure, ...]:
        """An example for each signature that counts as the captured failure."""
        seen = (self.matcher.find(o.failure) for o, _ in self._all() if o.failure is not None)
        return tuple(known_from(found for found in seen if found is not None).values())

    def slowest(self, entry: str) -> float:
        return max(reply.seconds for _, reply in self.seen[entry, self.threads])

    def all_pass(self) -> bool:
        """Whether every run ended without a failure."""
        return all(observation.seen is Seen.PASS for observation, _ in self._all())

    def refused(self) -> str:
        """Return the error of eager mode if all runs ended in it, before the backend was called; else an empty text."""
        said = {observation.refused for observation, _ in self._all()}
        return said.pop() if len(said) == 1 else ""

    def absent(self) -> str:
        """Return why the backend cannot run here, if every run reported that; else an empty text."""
        said = {observation.absent for observation, _ in self._all()}
        return said.pop() if len(said) == 1 else ""

    def why_not(self, captured: Failure, again: str) -> str:
        """For a person: what the runs showed instead, and what to do before the command ``again``."""
        lines = []
        for (entry, threads), runs in self.seen.items():
            shown = dict.fromkeys(self._said(observation) for observation, _ in runs)
            times = "once" if len(runs) == 1 else f"{len(runs)} times"
            with_threads = " with one thread" if threads == 1 else ""
            lines.append(f"{entry}{with_threads}, {times}: {'; '.join(shown)}")
        seen = (observation.failure for observation, _ in self._all())
        failures = [failure for failure in seen if failure is not None]
        lines += missing(self.case.backend.get("variables", ()), failures, again)
        if any(map(self.matcher.agrees_in_origin, failures)):
            lines.append(f"type and raising frame agree; to take that for the same failure: {again} --match origin")
        return "\n".join([f"captured: {captured.headline()}", *lines])

    def _said(self, observation: Observation) -> str:
        failure = observation.failure
        if failure is None:
            return "passes" if observation.seen is Seen.PASS else f"{observation.seen}: {observation.detail}"
        difference = self.matcher.difference(failure)
        return f"{failure.headline()} ({difference.words() if difference else 'the same'})"

    def _matches(self, observation: Observation) -> bool:
        return observation.failure is not None and self.matcher.shows(observation.failure)

    def _all(self) -> Iterator[tuple[Observation, Reply]]:
        for runs in self.seen.values():
            yield from runs


def missing(variables: Iterable[str], failures: Iterable[Failure], again: str) -> list[str]:
    """List variables and files that the backend had when it failed and that replays do not have.

    Each line says what to do before the command ``again``.
    """
    lines = []
    if unset := ", ".join(name for name in variables if name not in os.environ):
        lines.append(
            f"the backend reads {unset}, set where it failed and not set in this environment: "
            f"set {unset} as the program does, then {again}"
        )
    found = (_NO_FILE.search(failure.message) for failure in failures if failure.type == "FileNotFoundError")
    for path in dict.fromkeys(match[2] for match in found if match is not None):
        if os.path.isabs(path):
            lines.append(f"the file {path} is missing: put it there, then {again}")
        else:
            lines.append(
                f"the backend reads the file {path} of the program's directory, but replays run in an empty directory: "
                f"open it by its absolute path, then minify capture the program again"
            )
    return lines


def fastest(entries: dict[str, Shown], *, traced: bool = False) -> str:
    """Return the entry to search with: the faster one of those that always fail, ``direct`` when it is hardly slower.

    Where candidates must be ``traced``, ``compile`` is preferred.
    """
    best = max(shown.rate for shown in entries.values())
    times = {entry: shown.seconds for entry, shown in entries.items() if shown.rate == best}
    if traced and "compile" in times:
        return "compile"
    quickest = min(times, key=times.__getitem__)
    if "direct" in times and times["direct"] <= PREFERENCE * times[quickest]:
        return "direct"
    return quickest


def numbers_of_threads(case: Case, captured: Failure) -> tuple[int, ...]:
    """Return the numbers of threads to try, the one to prefer first.

    A worker has as many as a script has, because a compiler may generate other code for another number. A crash is
    tried with one thread first: with several it may show another stack and other last words each time (note 4).
    """
    if captured.kind is FailureKind.CRASH and may_have_more_threads(case):
        return 1, tasks.OWN_THREADS
    return (tasks.OWN_THREADS,)


def may_have_more_threads(case: Case) -> bool:
    """Return whether ``case`` runs with more than one thread, as far as it and this machine say."""
    return "threads" not in case.context and len(os.sched_getaffinity(0)) > 1


def _healthy_seconds(pool: Workers, case: Case, limit: float) -> float:
    argument = tasks.observe_argument(healthy(case), "direct")
    reply = pool.submit("observe", argument, timeout=limit, fresh=True).result()
    return reply.seconds - reply.cpu_wait_s


def healthy(case: Case) -> Case:
    """A graph of one ``relu`` for the backend of ``case``, in its context."""
    device = next((t.device for t in case.tensors), "cpu")
    tensor = TensorSpec("float32", (4,), (1,), init={"fn": "full", "value": 1.0}, device=device)
    nodes = (
        Node("x", "placeholder", "x"),
        Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
        Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
    )
    context = {key: value for key, value in case.context.items() if key != "rng"}
    return replace(
        case, graph=Graph(nodes), inputs=({"tensor": 0},), tensors=(tensor,), context=context, backward=False,
        compare=False,
    )  # fmt: skip
