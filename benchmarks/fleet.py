"""A fleet on one machine: jobs that capture for minutes while all that stores and minifies is killed in turn.

    python -m fxminify.benchmarks.fleet --jobs 50 --minutes 10
    python -m fxminify.benchmarks.fleet --jobs 12 --minutes 1 [--url postgresql+psycopg://...] [--json]

A PostgreSQL server, `minify serve`, `minify work`, its drivers, and the processes that send what waits in spools are
killed, one after the other, and started again after a while; a database named by ``--url`` is left alone. Server and
worker tell a webhook of each new bug and of each verified script. The jobs (`fxminify.benchmarks.fleet_jobs`) write
down what they meet.

When the jobs are over, all runs again, and what waits is sent and minified, the index is compared with what was written
down: nothing is missing, nothing is counted twice, no message came twice, and no task is left with a worker that is
gone. Whatever is not so is a line on stderr, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
from sqlalchemy import func, select

from fxminify.store import codec
from fxminify.store.document.case import Case
from fxminify.store.index import DeliveryState, Index, TaskInfo, TaskState, queue, tasks
from fxminify.store.index.tables import CaptureRow, SightingRow
from fxminify.store.spool.spool import Spool

from .fleet_jobs import REFUSED, JobSettings
from .page import put
from .postgres_server import PostgresServer, running

Row = dict[str, Any]
BACKEND = Path(__file__).parent / "outside" / "planted.py"
DRIVER, SENDER = "fxminify.service.workers.driver", "fxminify.store.spool.sender"
#: The events of the webhook.
EVENTS = ("new", "verified")
#: Seconds that a part may take to answer after it was started.
STARTING = 600.0


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """See `main`. Of ``jobs`` as many as ``per_machine`` share a spool; ``patience`` is for all that is left to do when
    they are over. ``every`` so many seconds something is killed."""

    jobs: int = 50
    minutes: float = 10.0
    url: str = ""
    per_machine: int = 5
    bugs: int = len(REFUSED)
    pause: float = 4.0
    every: float = 12.0
    drivers: int = 1
    patience: float = 900.0
    seed: int = 0


@dataclass
class Outcome:
    """The result of a trial: rows of tables by their titles, and a sentence about each violation."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.wrong.append(sentence)


class FleetPart(Protocol):
    """A part that is killed.

    ``kill`` returns whether there was something to kill, ``start`` returns when it answers again.
    """

    name: str

    def kill(self) -> bool: ...

    def start(self) -> None: ...


class DatabasePart:
    """The PostgreSQL server, which is ended in two ways, in turn."""

    name = "database"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._ways = itertools.cycle([server.kill, server.kill_by_signal])

    def kill(self) -> bool:
        next(self._ways)()
        return True

    def start(self) -> None:
        self._server.start()


class CommandPart:
    """A command that is meant to run for ever. ``answers`` says whether it does what it is for."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str], answers: Callable[[], bool]
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        #: How it ended by itself, if it did.
        self.endings: list[int] = []
        self._command, self._folder, self._environment, self._answers = command, folder, environment, answers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        until(lambda: self._answers() or self.ended(), f"{self.name} does not start: see {self.log}", STARTING)

    def kill(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.kill()
        self._process.wait()
        return True

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def revive(self) -> None:
        """Start it again if it has ended by itself, as systemd would."""
        if self._process is not None and self.ended():
            self.endings.append(self._process.returncode)
            self.start()

    def children(self, module: str) -> list[psutil.Process]:
        """Its child processes that run a module."""
        if self._process is None or self._process.poll() is not None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child for child in psutil.Process(self._process.pid).children() if runs(child, module)]
        return []

    def end(self) -> None:
        """End it as a machine does that is shut down."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        code = self._process.wait(STARTING)
        if code != 128 + signal.SIGTERM:
            self.endings.append(code)


class FoundPart:
    """Processes that others start and start again."""

    def __init__(self, name: str, found: Callable[[], list[psutil.Process]], chance: random.Random) -> None:
        self.name, self._found, self._chance = name, found, chance

    def kill(self) -> bool:
        if not (there := self._found()):
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self._chance.choice(there).kill()
            return True
        return False

    def start(self) -> None:
        """Somebody else does."""


def runs(process: psutil.Process, *words: str) -> bool:
    """Whether these are arguments of a process."""
    try:
        return set(words) <= set(process.cmdline())
    except psutil.Error:
        return False


def until(holds: Callable[[], bool], otherwise: str, seconds: float) -> None:
    """Wait. Raises `TimeoutError` with the sentence ``otherwise``."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.1)


class Webhook:
    """A receiver of notifications, which writes down each message before it answers."""

    def __init__(self) -> None:
        self.messages: list[Row] = []
        told = self.messages

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """It says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def told(self) -> Counter[tuple[int, str]]:
        """Count the messages of each bug and event."""
        each = itertools.chain.from_iterable(message.get("bugs", [message]) for message in list(self.messages))
        return Counter((int(one["bug"]), str(one["what"])) for one in each)

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Away:
    """When a part was away: Unix times. ``kills`` counts how often it was there to be killed."""

    kills: int = 0
    times: list[tuple[float, float]] = field(default_factory=list)

    def has(self, at: float) -> bool:
        return any(begin <= at <= end for begin, end in self.times)


class FleetTrial:
    """A trial in ``folder``, on the index at ``place``. The server of the ``database``, if given, is killed, too."""

    def __init__(self, options: FleetOptions, folder: Path, place: str, database: PostgresServer | None) -> None:
        self._options, self._folder, self._place = options, folder, place
        self._chance = random.Random(options.seed)
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self.webhook = Webhook()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FXMINIFY")},
            "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip
        target = [f'url = "{self.webhook.url}"', f"events = {json.dumps(EVENTS)}", "per_day = 1000000"]
        (folder / "notify.toml").write_text("\n".join(["[fleet]", *target]))
        for name in ("spools", "ledgers"):
            (folder / name).mkdir()
        shutil.copy(BACKEND, folder)
        self.server = self._part("server", "serve", place, "--port", self._port, "--min-free", 0)
        self.worker = self._part(
            "worker", "work", place, "--drivers", options.drivers, "--replays", 1, "--runs", 1, answers=self._is_at_work
        )
        self.parts: list[FleetPart] = [
            FoundPart("driver", self._drivers, self._chance),
            FoundPart("sender", self._senders, self._chance),
            self.worker,
            self.server,
        ]
        self.parts += [] if database is None else [DatabasePart(database)]
        self.away = {part.name: Away() for part in self.parts}

    def run(self) -> Outcome:
        """All of it: the jobs, the kills, the wait for what is left, and what came of it."""
        outcome = Outcome()
        with self.webhook:
            try:
                self.server.start()
                self.worker.start()
                self._jobs(outcome)
                self._send(outcome)
                self._wait(outcome)
            finally:
                for part in (self.worker, self.server):
                    part.end()
                for sender in self._senders():
                    sender.kill()
        self._compare(outcome)
        return outcome

    def _part(self, name: str, verb: str, *words: object, answers: Callable[[], bool] | None = None) -> CommandPart:
        command = [*self._command(verb, *words), "--notify", "notify.toml"]
        return CommandPart(name, command, self._folder, self._environment, answers or self._is_served)

    def _command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "fxminify", *map(str, words)]

    def _is_served(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def _is_at_work(self) -> bool:
        with Index.open(self._place, readonly=True) as index:
            return bool(index.tasks.workers())

    def _drivers(self) -> list[psutil.Process]:
        """Return the drivers that may be killed.

        After too many kills the task would go into quarantine, as it should.
        """
        with Index.open(self._place, readonly=True) as index:
            held = [task for task in index.tasks.page() if task.state is TaskState.LEASED]
        return self.worker.children(DRIVER) if all(task.attempts + 1 < tasks.ATTEMPTS for task in held) else []

    def _senders(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if runs(process, SENDER, self.address)]

    # The jobs, and what is killed meanwhile.

    def _jobs(self, outcome: Outcome) -> None:
        options, end = self._options, time.time() + 60 * self._options.minutes
        over = self._folder / "over"
        settings = JobSettings(
            options.jobs, self._machines, options.bugs, options.pause, str(over), end + options.patience, options.seed,
            self.address, str(self._folder / "spools"), str(self._folder / "ledgers"),
        )  # fmt: skip
        command = [sys.executable, "-m", "fxminify.benchmarks.fleet_jobs", json.dumps(codec.dump(settings))]
        with (self._folder / "jobs.log").open("wb") as log:
            jobs = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            turns = itertools.cycle(self.parts)
            while jobs.poll() is None and (time.time() < end or not all(one.kills for one in self.away.values())):
                self._pass(self._chance.uniform(0.5, 1.5) * options.every, jobs)
                self._kill(next(turns))
            over.touch()
            code = jobs.wait(STARTING)
        finally:
            for process in psutil.Process(jobs.pid).children() if jobs.poll() is None else []:
                process.kill()
            jobs.kill()
            jobs.wait()
        said = (self._folder / "jobs.log").read_text()
        outcome.expect(code == 0, f"{code} jobs ended with an error: {said[-2000:]}")
        for name, away in self.away.items():
            outcome.expect(away.kills > 0, f"there was never a {name} to kill")

    def _pass(self, seconds: float, jobs: subprocess.Popen[bytes]) -> None:
        """Let time pass, in which what has ended by itself is started again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and jobs.poll() is None:
            for part in (self.server, self.worker):
                part.revive()
            time.sleep(0.1)

    def _kill(self, part: FleetPart) -> None:
        """Kill a part when it is there, and start it again after a while."""
        end = time.monotonic() + self._options.every
        while not part.kill():
            if time.monotonic() > end:
                return
            time.sleep(0.05)
        begin = time.time()
        time.sleep(self._chance.uniform(0, self._options.every / 3))
        part.start()
        self.away[part.name].kills += 1
        self.away[part.name].times.append((begin, time.time()))

    # What is left to do when the jobs are over.

    @property
    def _machines(self) -> int:
        return max(1, self._options.jobs // self._options.per_machine)

    def _send(self, outcome: Outcome) -> None:
        """`minify send` on each machine, until nothing waits there."""
        end, left = time.monotonic() + self._options.patience, list(range(self._machines))
        while left and time.monotonic() < end:
            for machine in list(left):
                environment = {**self._environment, "FXMINIFY_SPOOL": str(self._folder / "spools" / str(machine))}
                subprocess.run(
                    self._command("send", self.address, "--wait", 10), env=environment, cwd=self._folder, check=False,
                    capture_output=True,
                )  # fmt: skip
                if not self._waiting(machine):
                    left.remove(machine)
        outcome.expect(not left, f"something still waits in {len(left)} spools")
        refused = [path.read_text().strip() for path in self._folder.glob("spools/*/*/refused/*.txt")]
        outcome.expect(not refused, f"the server did not want {len(refused)} captures: {refused}")

    def _waiting(self, machine: int) -> bool:
        folder = self._folder / "spools" / str(machine) / Spool(self.address).folder.name
        return any(folder.glob("*.capture")) or any(folder.glob("*.again"))

    def _wait(self, outcome: Outcome) -> None:
        """Wait until all tasks are over and all notifications are sent."""

        def is_over() -> bool:
            for part in (self.server, self.worker):
                part.revive()
            with Index.open(self._place, readonly=True) as index:
                if any(task.state in tasks.OPEN for task in index.tasks.page()):
                    return False
                return not any(one.state is DeliveryState.WAITING for one in index.deliveries.page())

        try:
            until(is_over, "", self._options.patience)
        except TimeoutError:
            outcome.wrong.append(f"not everything is minified and sent after {self._options.patience:.0f} s")

    # What must be so.

    def _compare(self, outcome: Outcome) -> None:
        for part in (self.server, self.worker):
            outcome.expect(not part.endings, f"the {part.name} ended by itself: exit codes {part.endings}")
            tracebacks = part.log.read_text().count("Traceback")
            outcome.expect(not tracebacks, f"the {part.name} shows {tracebacks} tracebacks: see {part.log}")
        lines = [
            json.loads(line)
            for path in sorted(self._folder.glob("ledgers/*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        warnings = Counter(line["warning"] for line in lines if "warning" in line)
        outcome.expect(not warnings, f"jobs were warned: {dict(warnings)}")
        met = [line for line in lines if "graph" in line]
        outcome.rows["killed"] = [
            {
                "part": name, "kills": away.kills,
                "longest away, s": round(max((end - begin for begin, end in away.times), default=0.0), 1),
            }
            for name, away in self.away.items()
        ]  # fmt: skip
        with Index.open(self._place, readonly=True) as index:
            outcome.rows["captures"] = [self._captures(index, met, outcome)]
            outcome.rows["messages"] = [self._messages(index, outcome)]
            outcome.rows["tasks"] = [self._tasks(index, outcome)]
        away, later = self.away["server"], [line for line in met if not line["first"]]
        outcome.rows["delay of a job"] = [
            {"when": "the first failure of a job", **delays([line for line in met if line["first"]])},
            {"when": "the server is there", **delays([line for line in later if not away.has(line["at"])])},
            {"when": "the server is away", **delays([line for line in later if away.has(line["at"])])},
        ]

    def _captures(self, index: Index, met: Sequence[Row], outcome: Outcome) -> Row:
        """Check that each failure is one capture with the right number of occurrences."""
        expected = Counter(line["graph"] for line in met)
        counts = select(CaptureRow.id, CaptureRow.occurrences, func.sum(SightingRow.count)).join(
            SightingRow, SightingRow.capture == CaptureRow.id
        )
        with index.database.reading() as session:
            rows = session.execute(counts.where(CaptureRow.parent.is_(None)).group_by(CaptureRow.id)).all()
            in_all = session.scalars(select(func.count(CaptureRow.id))).one()
        found: dict[str, list[tuple[int, int]]] = {}
        for id, occurrences, seen in rows:
            found.setdefault(called(index.captures.case(id)), []).append((occurrences, seen))
        missing = [graph for graph in expected if graph not in found]
        twice = [graph for graph, all_of_it in found.items() if len(all_of_it) > 1]
        unmet = [graph for graph in found if graph not in expected]
        counted = {graph: sum(occurrences for occurrences, _ in all_of_it) for graph, all_of_it in found.items()}
        lost = sum(max(0, times - counted.get(graph, 0)) for graph, times in expected.items())
        more = sum(max(0, times - expected[graph]) for graph, times in counted.items())
        outcome.expect(not missing, f"{len(missing)} captures are lost: {missing[:5]}")
        outcome.expect(not twice, f"{len(twice)} captures are stored twice: {twice[:5]}")
        outcome.expect(not unmet, f"{len(unmet)} captures are of failures that did not occur: {unmet[:5]}")
        outcome.expect(in_all == len(rows), f"{in_all - len(rows)} captures are no job's, or were never seen")
        outcome.expect(not lost, f"{lost} occurrences are lost")
        outcome.expect(not more, f"{more} occurrences are counted twice")
        apart = [graph for graph, all_of_it in found.items() if any(a != b for a, b in all_of_it)]
        outcome.expect(not apart, f"{len(apart)} captures have other sightings than occurrences: {apart[:5]}")
        of_bugs = sum(bug.occurrences for bug in index.bugs.page())
        outcome.expect(of_bugs == sum(counted.values()), f"the bugs count {of_bugs} of {sum(counted.values())}")
        return {
            "met": len(met), "captures": len(expected), "stored": in_all, "captures lost": len(missing),
            "captures twice": len(twice), "occurrences lost": lost, "occurrences twice": more,
        }  # fmt: skip

    def _messages(self, index: Index, outcome: Outcome) -> Row:
        """Check that each bug and event was sent once. A delivery marked as unknown may or may not have arrived."""
        told, deliveries = self.webhook.told(), index.deliveries.page()
        twice = {about: times for about, times in told.items() if times > 1}
        outcome.expect(not twice, f"sent more than once: {twice}")
        by_about = {(one.bug, one.what): one for one in deliveries}
        sent = {about for about, one in by_about.items() if one.state is DeliveryState.SENT}
        doubtful = {
            about for about, one in by_about.items() if one.state in (DeliveryState.UNKNOWN, DeliveryState.SENDING)
        }
        outcome.expect(len(by_about) == len(deliveries), "a bug has two deliveries of one event")
        outcome.expect(sent <= set(told), f"marked as sent, and did not arrive: {sorted(sent - set(told))}")
        unnoted = set(told) - sent - doubtful
        outcome.expect(not unnoted, f"arrived, and not marked as sent: {sorted(unnoted)}")
        wanted = {(bug.id, "new") for bug in index.bugs.page()}
        wanted |= {(task.bug, "verified") for task in index.tasks.page() if _has_script(task)}
        never = wanted - sent - doubtful
        outcome.expect(not never, f"never told: {sorted(never)}")
        return {
            "to send": len(wanted), "sent": len(told), "twice": len(twice), "never": len(never),
            "unknown": len(doubtful), "of these sent": len(doubtful & set(told)),
        }  # fmt: skip

    def _tasks(self, index: Index, outcome: Outcome) -> Row:
        """Check that each bug has a script, and that no task is leased any more."""
        states = Counter(task.state.value for task in index.tasks.page())
        held = [index.leases.find(), index.tasks.workers()]
        outcome.expect(not states[TaskState.LEASED.value], "a task is left with a worker that is gone")
        outcome.expect(held == [[], []], f"leases or workers are left: {held}")
        bugs = index.bugs.page()
        unverified = [bug.id for bug in bugs if index.bugs.with_script(bug.id) is None]
        outcome.expect(not unverified, f"bugs without a verified script: {unverified}")
        return {"bugs": len(bugs), "with a script": len(bugs) - len(unverified), **dict(sorted(states.items()))}


def _has_script(task: TaskInfo) -> bool:
    return task.kind == queue.MINIFY and task.state is TaskState.DONE


def called(case: Case) -> str:
    """The names of the functions that a graph calls, which `fxminify.benchmarks.fleet_jobs.Planned.graph` has."""
    names = [str(node.target["fn"]) for node in case.graph.nodes if isinstance(node.target, dict)]
    return " ".join(name.rpartition(".")[2] for name in names)


def delays(met: Sequence[Row]) -> Row:
    """By how many milliseconds the hook delayed compilations that failed; of these, what the spool took.

    A failure that the same process has met before is only counted.
    """
    row: Row = {"failures": len(met)}
    for name, what in (("delay", ""), ("processor", "processor "), ("spooled", "spool ")):
        took = sorted(1000 * line[name] for line in met if name in line)
        for share in (0.5, 0.99):
            value = took[min(int(len(took) * share), len(took) - 1)] if took else float("nan")
            row[f"{what}p{100 * share:.0f}, ms"] = round(value, 1)
    return row


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def indexed(url: str) -> Iterator[tuple[str, PostgresServer | None]]:
    """The place of an index: that at ``url``, or on a server of its own."""
    if url:
        yield url, None
        return
    with running() as server:
        yield server.url, server


def trial(options: FleetOptions, folder: Path) -> Outcome:
    """Run a trial whose files are in ``folder``. Raises `fxminify.benchmarks.postgres_server.PostgresMissing`."""
    with indexed(options.url) as (place, server):
        with Index.open(place, create=True):
            pass
        return FleetTrial(options, folder, place, server).run()


def table(rows: dict[str, list[Row]]) -> str:
    lines = []
    for title, of_it in rows.items():
        lines += ["", f"**{title}**", "", "| " + " | ".join(of_it[0]) + " |", "|" + "---|" * len(of_it[0])]
        lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in of_it]
    return "\n".join(lines[1:])


def main() -> None:
    usual = FleetOptions()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=usual.jobs)
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="how long they capture")
    parser.add_argument("--url", default="", help="an empty database, not killed; by default a server of its own")
    parser.add_argument("--per-machine", type=int, default=usual.per_machine, help="jobs that share a spool")
    parser.add_argument("--bugs", type=int, default=usual.bugs, choices=range(1, len(REFUSED) + 1), metavar="N")
    parser.add_argument("--pause", type=float, default=usual.pause, help="seconds between two failures of a job")
    parser.add_argument("--every", type=float, default=usual.every, help="seconds between two kills")
    parser.add_argument("--drivers", type=int, default=usual.drivers)
    parser.add_argument("--patience", type=float, default=usual.patience, help="seconds for what is left in the end")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for logs, ledgers and spools, kept")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page, between its marks")
    asked = vars(parser.parse_args())
    keep, as_json, page = asked.pop("keep"), asked.pop("json"), asked.pop("write")
    with contextlib.ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-")))
        else:
            folder = keep.resolve()
            folder.mkdir(parents=True)
        outcome = trial(FleetOptions(**asked), folder)
    if as_json:
        for title, rows in outcome.rows.items():
            for row in rows:
                print(json.dumps({"what": title, **row}))
    else:
        print(table(outcome.rows))
    if page is not None:
        page.write_text(put(page.read_text(), table(outcome.rows), "fleet"))
    for sentence in outcome.wrong:
        print(sentence, file=sys.stderr)
    sys.exit(bool(outcome.wrong))


if __name__ == "__main__":
    main()
