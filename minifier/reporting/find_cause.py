"""`minify explain`: find the part of a compiler in which a failure arises, and what works around it.

The adapter of a backend lists switches (`fxminify.backends.switches`). Each is turned for the minimal case. Where no
single one makes the failure go and all together do, switches are taken back as long as the failure stays away. Passes
and lowerings that torch counts are bisected to the one application with which the failure begins to show. In the end
the minimal case is compiled with symbolic sizes and in other modes. Each answer is stored as it comes, so an
interrupted search goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from ...backends.adapters import BackendAdapter, adapter_of
from ...backends.provenance.spec import BackendSpec
from ...backends.running.compiler_caches import CompilerCaches
from ...backends.running.confinement import Confinement, wanted
from ...backends.switches import CannotSwitch, Switch, together
from ...repro_templates.processes import Processes, Script
from ...store import codec
from ...store.document.case import Blobs, Case, Json
from ...store.errors import StoreError
from ...store.index import Index
from ...store.matching import FailureMatcher
from ..consent import NOT_TRUSTED, AgreedCase, Confirm, Tell, may_run, refuse, silent
from ..oracle import tasks
from ..oracle.observation import Observation, Seen, of_reply
from ..sandbox.launcher import BackendImportError, SandboxError
from ..sandbox.pool import Pool, Reply
from .cause import (
    ARTIFACT,
    CANNOT,
    CURES,
    HELPS,
    OTHER,
    STAYS,
    Application,
    Cause,
    SwitchRow,
    TriageJudgement,
    Twin,
    WayAround,
    found,
    key_of,
)
from .export import search_path, stored_repro

#: The most queries of one search; a search that goes on has as many again.
BUDGET = 60
#: Runs in unused workers that a way around must pass.
CONFIRMATIONS = 2
#: The most ways around that are looked for.
MOST_WAYS = 2
#: More applications than a compiler does.
_ALL = 1 << 30


class _OutOfQueries(Exception):
    pass


def explain(
    db: str,
    id: int,
    *,
    timeout: float = 300.0,
    budget: int = BUDGET,
    trust: bool = False,
    sandbox: bool = False,
    confirm: Confirm = refuse,
    tell: Tell = silent,
    done: Callable[[SwitchRow], None] = lambda row: None,
) -> Cause:
    """Search for the cause of capture ``id`` in at most ``budget`` queries of ``timeout`` seconds, and store it.

    Raises `StoreError` where the capture cannot be run, does not show its failure here now, or its backend has no
    switches, and `NoConfinement` where a ``sandbox`` cannot be had.
    """
    confinement = wanted(sandbox)
    with Index.open(db, readonly=True) as index:
        stored = index.stored(id)
        agreed = may_run(
            id, stored.minimal(), script=stored.script, trust=trust, confirm=confirm, sandbox=sandbox, tell=tell
        )
        if agreed is None:
            raise StoreError(f"capture {id} was {NOT_TRUSTED}")
        whole: AgreedCase | None = None
        with suppress(StoreError):  # the captured case cannot be read: only the minimal one is tried
            whole = may_run(id, stored.captured(), trust=trust, sandbox=sandbox, tell=tell)
        failure = index.captures.get(id).failure
        if failure is None:
            raise StoreError(f"capture {id} has no failure to compare with")
        before = found(index, id)
        case = agreed.case
        spec = BackendSpec.from_json(case.backend)
        adapter = adapter_of(spec.name)
        if not adapter.switches and not adapter.subsystems:
            raise StoreError(
                f"the backend {spec.name} has no switches: an adapter can list some (docs/extending.md); "
                f"`minify ablate` finds the layer."
            )
        key = key_of(case, metadata.version("torch"))
        cause = before if before is not None and before.key == key else Cause(key)

        def keep(cause: Cause) -> None:
            with Index.open(db) as writable:
                writable.artifacts.save(id, ARTIFACT, cause.to_json())

        try:
            with CompilerCaches() as caches:
                search = _CauseSearch(
                    case, None if whole is None else whole.case,
                    index.blobs.view([*case.storages, *(() if whole is None else whole.case.storages)]),
                    FailureMatcher((failure,)), adapter, cause, timeout, budget, keep, done,
                )  # fmt: skip
                search.run(agreed, confinement, None if confinement is not None else caches)
            if stored.script is not None:
                _, files, _ = stored_repro(index, id, "script", unverified=True, stored=stored)
                script = Script(agreed.script, timeout, search_path(case), files)
                with Processes(confinement) as processes:
                    search.check(script, processes)
        except (BackendImportError, SandboxError) as error:
            raise StoreError(f"the backend cannot be run: {str(error).strip().splitlines()[0]}") from error
    return search.cause


@dataclass(slots=True)
class _CauseSearch:
    case: Case
    captured: Case | None
    blobs: Blobs
    matcher: FailureMatcher
    adapter: BackendAdapter
    cause: Cause
    timeout: float
    budget: int
    keep: Callable[[Cause], None]
    done: Callable[[SwitchRow], None]
    entry: str = ""
    asked: int = 0
    pool: Pool = field(init=False)

    def run(self, agreed: AgreedCase, confinement: Confinement | None, caches: CompilerCaches | None) -> None:
        case, more = agreed.case, () if self.captured is None else self.captured.imports
        mode = "fork" if all(t.device in ("cpu", "meta") for t in case.tensors) else "spawn"
        with Pool(
            case.backend, [*case.imports, *(i for i in more if i not in case.imports)],
            mode=mode, confinement=confinement, caches=caches, access=agreed.access,  # type: ignore[arg-type]
        ) as self.pool:  # fmt: skip
            self.pool.scratch.put(self.blobs)
            self.cause = replace(self.cause, stopped="")
            try:
                self.find_entry()
                for switch in self.adapter.switches:
                    self.turn(switch)
                if not self.cause.cures:
                    self.combine()
                for subsystem in self.adapter.subsystems:
                    self.bisect(subsystem)
                self.find_ways()
                self.find_twins()
                self.ask_judges()
                self.update(stopped="")
            except _OutOfQueries:
                self.update(stopped=f"{self.budget} queries were asked")

    def update(self, **changes: Any) -> None:
        self.cause = replace(self.cause, **changes)
        self.keep(self.cause)

    def submit(self, task: str, argument: Json, *, fresh: bool = False) -> Reply:
        if self.asked >= self.budget:
            raise _OutOfQueries
        self.asked += 1
        self.cause = replace(self.cause, queries=self.cause.queries + 1)
        return self.pool.submit(task, argument, timeout=self.timeout, fresh=fresh).result()

    def observe(self, case: Case, *, fresh: bool = False) -> Observation:
        return of_reply(self.submit("observe", tasks.observe_argument(case, self.entry), fresh=fresh))

    def shows(self, seen: Observation) -> bool:
        return seen.failure is not None and self.matcher.shows(seen.failure)

    def find_entry(self) -> None:
        """Take the way of calling the backend with which the failure shows. Raises `StoreError` otherwise."""
        for self.entry in reversed(tasks.ENTRIES):
            if self.shows(self.observe(self.case)):
                return
        raise StoreError("the minimal case does not show its failure here now: `minify verify` runs its script")

    def turn(self, *switches: Switch) -> SwitchRow:
        """The answer for ``switches`` turned together, asked once."""
        parts, switch = tuple(switch.part for switch in switches), together(switches)
        known = next((row for row in self.cause.rows if row.parts == parts), None)
        if known is not None:
            return known
        row = SwitchRow(parts, tuple(switch.lines), *self.result(switch))
        self.update(rows=(*self.cause.rows, row))
        self.done(row)
        return row

    def result(self, switch: Switch) -> tuple[str, str]:
        try:
            return self.judged(switch.applied(self.case))
        except CannotSwitch as error:
            return CANNOT, str(error)

    def judged(self, case: Case) -> tuple[str, str]:
        """The result of a variant of the minimal case, and the other failure or why it cannot run."""
        seen = self.observe(case)
        if seen.failure is None:
            return (CURES, "") if seen.seen is Seen.PASS else (CANNOT, seen.detail or seen.refused)
        return (STAYS, "") if self.shows(seen) else (OTHER, seen.failure.headline())

    def combine(self) -> None:
        """Turn all switches that could be turned, and take back each without which the failure stays away."""
        usable = [
            switch
            for switch in self.adapter.switches
            if any(row.parts == (switch.part,) and row.result == STAYS for row in self.cause.rows)
        ]
        if len(usable) < 2 or self.result(together(usable))[0] != CURES:
            return
        for switch in list(usable):
            fewer = [other for other in usable if other is not switch]
            if len(fewer) > 1 and self.result(together(fewer))[0] == CURES:
                usable = fewer
        self.turn(*usable)

    def bisect(self, subsystem: str) -> None:
        """Find the first application of ``subsystem`` with which the failure shows, if it needs one."""
        if any(a.subsystem == subsystem for a in self.cause.applications):
            return
        names: list[str] = []

        def shown(most: int) -> bool | None:
            argument = tasks.observe_argument(self.case, self.entry) | {"subsystem": subsystem, "most": most}
            reply = self.submit("observe_limited", argument)
            answer = reply.result if isinstance(reply.result, dict) else {}
            if "applications" in answer:
                names[:] = [*answer["applications"], *names[len(answer["applications"]) :]]
                reply = replace(reply, result=answer["observation"])
            seen = of_reply(reply)
            return True if self.shows(seen) else False if seen.seen is Seen.PASS else None

        if shown(0) is not False or shown(_ALL) is not True:
            return
        passes, fails = 0, len(names)
        while fails - passes > 1:
            middle = (passes + fails) // 2
            answer = shown(middle)
            if answer is None:
                return
            passes, fails = (passes, middle) if answer else (middle, fails)
        fails_with, passes_with = (self._variables(subsystem, most) for most in (fails, fails - 1))
        application = Application(
            subsystem, fails, len(names), names[fails - 1][:200], self.adapter.subsystems[subsystem], fails_with,
            passes_with,
        )  # fmt: skip
        self.update(applications=(*self.cause.applications, application))

    def find_ways(self) -> None:
        """Run what cures the minimal case again, in unused workers, and with the captured graph."""
        tried = {way.lines for way in self.cause.ways}
        for row in self.cause.cures:
            if sum(way.captured == HELPS for way in self.cause.ways) >= MOST_WAYS:
                return
            switch = together([switch for switch in self.adapter.switches if switch.part in row.parts])
            if row.lines in tried:
                continue
            case = switch.applied(self.case)
            passed = [self.observe(case, fresh=True).seen is Seen.PASS for _ in range(CONFIRMATIONS)]
            if not all(passed):
                continue
            self.update(ways=(*self.cause.ways, WayAround(row.lines, len(passed), self.of_captured(switch))))

    def find_twins(self) -> None:
        """Run the minimal case with symbolic sizes, without, and in each mode of the backend."""
        tried = {twin.change for twin in self.cause.twins}
        for change, backend in twins(self.case.backend, self.adapter.modes):
            if change not in tried and self.entry == "compile":
                twin = Twin(change, *self.judged(replace(self.case, backend=backend)))
                self.update(twins=(*self.cause.twins, twin))

    def ask_judges(self) -> None:
        """Ask the judges of PyTorch's triage about the results of the minimal case, once."""
        if not self.case.compare or self.cause.judgements:
            return
        reply = self.submit("judge", tasks.observe_argument(self.case, self.entry))
        rows = reply.result.get("judgements", ()) if isinstance(reply.result, dict) else ()
        self.update(judgements=tuple(codec.load(row, TriageJudgement) for row in rows))

    def check(self, script: Script, processes: Processes) -> None:
        """Run ``script`` with the variables of each application.

        The variables are the adapter's own: those in the row of the cause have no signature.
        """
        out = []
        for application in self.cause.applications:
            if application.subsystem not in self.adapter.subsystems:
                continue
            both = [self._variables(application.subsystem, application.number - less) for less in (0, 1)]
            codes = [
                processes.run(replace(script, variables=dict(v.split("=", 1) for v in given)), plain=True).code
                for given in both
            ]
            checked = codes[0] not in (0, None) and codes[1] == 0
            out.append(replace(application, fails_with=both[0], passes_with=both[1], checked=checked))
        if self.cause.applications:
            self.update(applications=tuple(out))

    def _variables(self, subsystem: str, most: int) -> tuple[str, ...]:
        """Return the environment variables that limit ``subsystem`` to ``most`` applications, as ``NAME=value``."""
        return tuple(f"{name}={value}" for name, value in self.adapter.limit_variables(subsystem, most).items())

    def of_captured(self, switch: Switch) -> str:
        """Run the captured graph with ``switch`` turned, and return the outcome in words."""
        if self.captured is None:
            return "was not run: it is not trusted or cannot be read"
        try:
            seen = self.observe(switch.applied(self.captured))
        except CannotSwitch as error:
            return str(error)
        if seen.failure is None:
            return HELPS if seen.seen is Seen.PASS else "cannot run"
        return "shows the failure" if self.shows(seen) else f"fails in another way: {seen.failure.headline()}"


def twins(backend: Json, modes: Sequence[str]) -> Iterator[tuple[str, Json]]:
    """Yield the other ways to compile with a backend: the argument of `torch.compile`, and the backend with it."""
    for dynamic in (True, False):
        if backend.get("dynamic") is not dynamic:
            yield f"dynamic={dynamic}", {**backend, "dynamic": dynamic}
    for mode in modes if backend.get("options") is None else ():  # torch takes only one of them
        if backend.get("mode") != mode:
            yield f'mode="{mode}"', {**backend, "mode": mode}
