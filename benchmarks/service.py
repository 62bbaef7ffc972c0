"""Measure the service: captures over HTTP, lists and pages of a million captures, claims, answers, growth.

    python -m fxminify.benchmarks.service                          # all measurements
    python -m fxminify.benchmarks.service --only uploads claims    # some of them
    python -m fxminify.benchmarks.service --only lists --on file   # on a SQLite file alone

PostgreSQL (Debian's package) is started for each measurement anew. With ``--url``, that server is used instead, and
its tables are removed before and after. Each figure is measured for ``--seconds`` of wall time, ``--rounds`` times.
The best and the median of the rounds are shown, because another user of the machine may slow down a round. Next to
it is the processor time of each process that takes part, which depends less on other users.

* **uploads**: 50 clients send new captures over HTTP, with a token; then the same failure again and again, offered
  by its identity as `minify send` does, one in each request or as many as a spool has.
* **lists**: pages and answers of an index of many captures, requested one after the other, their size, and the
  memory of the server.
* **claims**: workers claim tasks, of which ``--tasks`` are queued that need ten different things.
* **answers**: 50 reductions in processes of their own log queries and their answers.
* **delay**: the delay of a program at a failure, without the making of its case, while the server is away, and
  whether the spool loses one or sends one twice when it is there again.
* **growth**: by how much an index grows with each repeat.
* **index**: captures without a server, by one process and by eight.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from sqlalchemy import create_engine, insert, text
from sqlalchemy.pool import NullPool

from fxminify.backends.capture.places import ServerPlace
from fxminify.store.index import Index, TokenScope
from fxminify.store.index.arrivals import Arrival
from fxminify.store.index.tables import Base, TaskRow
from fxminify.store.spool.spool import FOLDER, Spool

from .fleet import free_port, until
from .postgres_server import PostgresServer, running
from .service_clients import PYTHON, TORCH, Clients, Load, identity, recording_of
from .service_filled import Filling, fill

Row = dict[str, Any]
#: Does one thing, the ``number``-th of this process, in an open index.
Action = Callable[[Index, str, int, int], None]

#: What the workers serve, and what the tasks need.
SERVED = {f"backend={number}" for number in range(1, 10)}
NEEDED = [f"backend={number} torch=2.13" for number in range(10)]
#: Reductions that log at the same time, and clients that send.
REDUCTIONS, CLIENTS = 50, 50
#: Failures in one request of a sender that has many.
BATCH = 50
#: Captures that wait in a spool, repeats of which each must cost little space, and versions with which they are met.
WAITING, REPEATS, VERSIONS = 1000, 2000, 40
#: Seconds in which a server begins to answer.
_STARTING = 600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command line."""

    seconds: float
    rounds: int
    captures: int
    bugs: int
    in_one: int
    tasks: int
    processes: int


@dataclass(frozen=True)
class Site:
    """The place of a measurement: an empty index at ``place``, which ``database`` may serve, and a ``folder`` for
    files.
    """

    place: str
    folder: Path
    database: PostgresServer | None

    @property
    def name(self) -> str:
        return "PostgreSQL" if "://" in self.place else "SQLite"

    def postgres(self) -> float:
        """The processor seconds that the database server has used."""
        return 0.0 if self.database is None else used(psutil.Process(self.database.pid))


def used(process: psutil.Process) -> float:
    """The processor seconds of a process and its children, also those that have ended."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class ServerProcess:
    """`minify serve` on the index of a site, with a token for all that is measured."""

    def __init__(self, site: Site) -> None:
        self.port = free_port()
        with Index.open(site.place, create=True) as index:
            _, self.token = index.tokens.new("clients", [TokenScope.SUBMIT, TokenScope.RUN, TokenScope.READ])
        self._log = site.folder / "serve.log"
        self._command = [
            sys.executable, "-m", "fxminify", "serve", site.place, "--port", str(self.port), "--min-free", "0",
        ]  # fmt: skip
        self.again()

    def again(self) -> ServerProcess:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.pid = self._process.pid
        until(self._answers, f"the server does not start: see {self._log}", _STARTING)
        return self

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(_STARTING)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get("/readyz")[0] == 200
        return False

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def used(self) -> float:
        return used(psutil.Process(self.pid))

    def memory(self) -> float:
        """MiB that it holds now."""
        return float(psutil.Process(self.pid).memory_info().rss) / (1 << 20)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


# Captures over HTTP.


def uploads(site: Site, asked: Asked) -> Iterator[Row]:
    """New captures, and repeats of one failure."""
    with ServerProcess(site) as server:
        warm = Load("new", server.port, server.token, 1, 2.0)
        _sent(site, server, warm, 200, 0)
        first = itertools.count(1_000, 100_000)
        for what, kind, batch, most in (
            ("new captures", "new", 1, 600),
            ("repeats, one in a request", "known", 1, 2000),
            (f"repeats, {BATCH} in a request", "known", BATCH, 2000),
            ("repeats, whole and not offered", "whole", 1, 1000),
        ):
            load = Load(kind, server.port, server.token, CLIENTS, asked.seconds, batch)
            rounds = [
                _sent(site, server, load, int(most * asked.seconds) + 100, next(first)) for _ in range(asked.rounds)
            ]
            yield {"what": what, "on": site.name, "clients": CLIENTS, **_over(rounds)}
        yield {"what": "memory of the server", "on": site.name, "MiB": round(server.memory())}


def _sent(site: Site, server: ServerProcess, load: Load, count: int, first: int) -> Row:
    """Run one round and return its row."""
    clients = Clients(load, count, first)
    clients.begin()
    before = server.used(), site.postgres()
    answers = clients.end()
    after = server.used(), site.postgres()
    good = answers.good
    per = 1000 / max(len(good), 1)
    return {
        "a second": round(len(good) * load.batch / answers.wall),
        "p50, ms": milliseconds(good, 0.5), "p99, ms": milliseconds(good, 0.99),
        "refused": sum(len(took) for status, took in answers.took.items() if status >= 300),
        "a request, ms of a processor: server": round((after[0] - before[0]) * per, 2),
        "database": round((after[1] - before[1]) * per, 2), "client": round(answers.processor * per, 2),
    }  # fmt: skip


def _over(rounds: Sequence[Row]) -> Row:
    """The best and the median of several rounds."""
    row: Row = {}
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        if name == "refused":
            row[name] = sum(values)
        elif len(values) == 1:
            row[name] = values[0]
        else:
            best = max(values) if name == "a second" else min(values)
            row[name] = f"{best} / {round(statistics.median(values), 2):g}"
    return row


# Lists and pages.


def lists(site: Site, asked: Asked) -> Iterator[Row]:
    """Pages of a large index."""
    captures, in_one = asked.captures, asked.in_one
    if site.database is None and "://" not in site.place:  # what is demanded of a file is a tenth of it
        captures, in_one = captures // 10, in_one // 10
    with Index.open(site.place, create=True) as index:
        fill(index, Filling(captures, asked.bugs, in_one))
    chance = random.Random(0)
    some = [chance.randrange(2, asked.bugs) for _ in range(20)]
    pages: dict[str, list[str]] = {
        "the list": ["/bugs"],
        "its other orders": ["/bugs?order=often", "/bugs?order=new"],
        "filtered": ["/bugs?backend=planted", "/bugs?kind=compile_error&status=all", "/bugs?state=verified"],
        "filtered, none": ["/bugs?status=fixed", "/bugs?state=blocked", "/bugs?label=nobody-has-it"],
        "search": ["/bugs?q=kernel", "/bugs?q=layer+77", "/bugs?q=relu"],
        "search, none": ["/bugs?q=nobody+says+this"],
        "a bug with a script": [f"/bugs/{id // 2 * 2}" for id in some],
        "a bug without": [f"/bugs/{id // 2 * 2 + 1}" for id in some],
        f"a bug with {in_one:,} captures": ["/bugs/1"],
        "a capture": [f"/captures/{id}" for id in some],
        "tasks, workers": ["/tasks", "/tasks?state=queued", "/workers"],
        "interface: bugs": ["/api/v1/bugs", f"/api/v1/bugs?after={asked.bugs - 500}", "/api/v1/bugs?text=layer+77"],
        "interface: a bug": [f"/api/v1/bugs/{id}" for id in some] + [f"/api/v1/bugs/{id}/sightings" for id in some],
        "interface: captures": ["/api/v1/captures", f"/api/v1/captures?after={captures - 500}"],
        "interface: metrics": ["/metrics"],
    }
    with ServerProcess(site) as server:
        deep = server.get("/bugs")[1].decode()
        after = deep.partition('href="/bugs?after=')[2].partition('"')[0].replace("&amp;", "&")
        pages["its second part"] = [f"/bugs?after={after}"] if after else []
        for name, paths in pages.items():
            if paths:
                yield {"what": name, "on": site.name, "captures": captures, **_asked(server, site, paths, asked)}
        yield {"what": "memory of the server", "on": site.name, "captures": captures, "MiB": round(server.memory())}


def _asked(server: ServerProcess, site: Site, paths: Sequence[str], asked: Asked) -> Row:
    for path in paths:
        status, body = server.get(path)
        if status != 200:
            raise RuntimeError(f"{path} is answered with {status}: {body[:200]!r}")
    took, sizes, before = [], [], (server.used(), site.postgres())
    for number in range(max(20, 20 * asked.rounds)):
        begun = time.monotonic()
        _, body = server.get(paths[number % len(paths)])
        took.append(time.monotonic() - begun)
        sizes.append(len(body))
    per = 1000 / len(took)
    return {
        "p50, ms": milliseconds(sorted(took), 0.5), "p95, ms": milliseconds(sorted(took), 0.95),
        "kB": round(max(sizes) / 1000), "ms of a processor: server": round((server.used() - before[0]) * per, 1),
        "database": round((site.postgres() - before[1]) * per, 1),
    }  # fmt: skip


# Actions in an index, by several processes.


def add(index: Index, number: int) -> int:
    return index.captures.receive(recording_of(number, number % 500)).capture


def new_captures(index: Index, place: str, process: int, number: int) -> None:
    add(index, 1_000_000 * (process + 1) + number)


def one_failure(index: Index, place: str, process: int, number: int) -> None:
    add(index, 0)


def opened_for_each(index: Index, place: str, process: int, number: int) -> None:
    with Index.open(place, create=True) as own:
        add(own, 500_000_000 + 1_000_000 * (process + 1) + number)


def answer(index: Index, place: str, process: int, number: int) -> None:
    reduction = index.reductions.begin(1, {"process": process}).id if number == 0 else _reductions[process]
    _reductions[process] = reduction
    index.verdicts.asked(reduction, f"{number:064x}", "nodes")
    index.verdicts.answered(reduction, f"{number:064x}", "SAME", None, 0.1, "")


def claim(index: Index, place: str, process: int, number: int) -> None:
    if process not in _workers:
        _workers[process] = index.tasks.join("", SERVED)
    assert index.tasks.claim(_workers[process], SERVED) is not None


_reductions: dict[int, int] = {}
_workers: dict[int, int] = {}


def work(place: str, action: Action, process: int, seconds: float, began: Any, out: Any) -> None:
    """In a process of its own: repeat ``action`` for ``seconds``, and send the seconds of each call."""
    took: list[float] = []
    with Index.open(place, create=True) as index:
        action(index, place, process, 0)
        began.wait()
        begun, cpu = time.monotonic(), time.process_time()
        while (started := time.monotonic()) < begun + seconds:
            action(index, place, process, len(took) + 1)
            took.append(time.monotonic() - started)
        index.verdicts.flush()
        out.put((took, time.monotonic() - begun, time.process_time() - cpu))


def together(site: Site, action: Action, processes: int, seconds: float) -> Row:
    """Measure an action of ``processes`` processes at the same time."""
    context = multiprocessing.get_context("fork")
    began, out = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=work, args=(site.place, action, number, seconds, began, out))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    began.wait()
    before = site.postgres()
    ended = [out.get() for _ in workers]
    took = sorted(each for one, _, _ in ended for each in one)
    for worker in workers:
        worker.join()
    per = 1000 / max(len(took), 1)
    return {
        "a second": round(len(took) / max(wall for _, wall, _ in ended)),
        "p50, ms": milliseconds(took, 0.5), "p99, ms": milliseconds(took, 0.99),
        "each, ms of a processor: program": round(sum(cpu for _, _, cpu in ended) * per, 2),
        "database": round((site.postgres() - before) * per, 2),
    }  # fmt: skip


def _rates(site: Site, asked: Asked, what: str, action: Action, processes: Sequence[int]) -> Iterator[Row]:
    for count in processes:
        rounds = [together(site, action, count, asked.seconds) for _ in range(asked.rounds)]
        yield {"what": what, "on": site.name, "processes": count, **_over(rounds)}


def index(site: Site, asked: Asked) -> Iterator[Row]:
    """Captures without a server."""
    for what, action in (
        ("new captures", new_captures), ("one failure", one_failure), ("opened for each", opened_for_each),
    ):  # fmt: skip
        yield from _rates(site, asked, what, action, (1, asked.processes))


def answers(site: Site, asked: Asked) -> Iterator[Row]:
    """The log of queries."""
    with Index.open(site.place, create=True) as opened:
        add(opened, 0)
    yield from _rates(site, asked, "queries with their answers", answer, (1, REDUCTIONS))


def claims(site: Site, asked: Asked) -> Iterator[Row]:
    """Claims of tasks."""
    with Index.open(site.place, create=True) as opened:
        add(opened, 0)
        queue(opened, asked.tasks)
    yield from _rates(site, asked, f"claims of {asked.tasks:,}", claim, (1, asked.processes))


def queue(opened: Index, tasks: int) -> None:
    """Queue so many tasks, all of one capture."""
    row = {
        "kind": "minify", "bug": 1, "capture": 1, "config": "{}", "state": "queued", "why": "", "attempts": 0,
        "fence": 0, "holder": "", "until": 0.0, "created": "",
    }  # fmt: skip
    for begin in range(0, tasks, 5000):
        rows = [
            {**row, "open": f"{n}", "needs": NEEDED[n % len(NEEDED)], "priority": -(n * 7919 % 30)}
            for n in range(begin, min(begin + 5000, tasks))
        ]
        with opened.database.writing() as session:
            session.execute(insert(TaskRow), rows)


# What a program pays, and what an index grows by.


def delay(site: Site, asked: Asked) -> Iterator[Row]:
    """Failures of a program while the server is away, and what the server has when it is there again."""
    server = ServerProcess(site)
    server.end()
    for waiting in (0, WAITING):
        with mock.patch.dict(os.environ, {FOLDER: str(site.folder / f"spool {waiting}")}):
            yield from _delays(site, asked, server, waiting)


def _delays(site: Site, asked: Asked, server: ServerProcess, waiting: int) -> Iterator[Row]:
    """Failures are met: each for the first time, again in the same process, and again in another process."""
    spool, count, first = Spool(f"http://127.0.0.1:{server.port}"), 50 * asked.rounds, 1_000_000 * (1 + waiting)
    with mock.patch.dict(os.environ, {"FXMINIFY_TOKEN": server.token}):
        place = ServerPlace(spool.server)
        for number in range(waiting):
            spool.put(recording_of(first + number, 0))
        took: dict[str, list[tuple[float, float]]] = {
            "a new one": [],
            "again in its process": [],
            "again in another": [],
        }
        for number in range(count):
            met = recording_of(first + waiting + number, number % 7)
            versions = {"torch": TORCH, "python": PYTHON}
            name = _timed(took["a new one"], lambda: place.record(met))  # noqa: B023
            _timed(took["again in its process"], lambda: place.seen_again(name, 2, versions))  # noqa: B023
            _timed(took["again in another"], lambda: place.record(met))  # noqa: B023
        for what, each in took.items():
            wall, cpu = ([times[kind] for times in each] for kind in (0, 1))
            yield {
                "a failure, server away": what, "captures that wait": waiting,
                "p50, ms": milliseconds(sorted(wall), 0.5), "p99, ms": milliseconds(sorted(wall), 0.99),
                "of a processor, p50": milliseconds(sorted(cpu), 0.5),
            }  # fmt: skip
        before = _stored(site)
        with server.again():
            until(lambda: not spool.items(), "the sender does not send", _STARTING * 5)
    stored = _stored(site)
    met_now = waiting + 4 * count
    yield {
        "sent": met_now, "captures": waiting + count, "captures stored": stored[0] - before[0],
        "occurrences stored": stored[1] - before[1], "lost": met_now - (stored[1] - before[1]),
    }  # fmt: skip


def _timed(took: list[tuple[float, float]], do: Callable[[], Any]) -> Any:
    """Return the result of ``do``. Append its wall time and processor time to ``took``."""
    begun = time.perf_counter(), time.thread_time()
    found = do()
    took.append((time.perf_counter() - begun[0], time.thread_time() - begun[1]))
    return found


def _stored(site: Site) -> tuple[int, int]:
    """Return the number of captures and of their occurrences."""
    with Index.open(site.place) as index:
        totals = index.bugs.totals()
    return totals.captures, totals.occurrences


def growth(site: Site, asked: Asked) -> Iterator[Row]:
    """Measure the bytes of each repeat: on the same day with the same versions, and with other versions."""
    with Index.open(site.place, create=True) as index:
        recordings = [recording_of(number, 0) for number in range(REPEATS // VERSIONS + 1)]
        for each in recordings:
            index.captures.receive(each)
        known, *rest = [Arrival(identity=identity(each), provenance=each.provenance) for each in recordings]
        versions = [{"torch": f"2.13.{number}"} for number in range(VERSIONS)]
        index.captures.store([replace(known, provenance=each) for each in versions])
        for what, arrivals in (
            ("the same day and versions", [known] * REPEATS),
            ("other versions", [replace(one, provenance=each) for one in rest for each in versions]),
            ("the same, each under a key, which is kept for 30 days",
             [replace(known, key=uuid.uuid4().hex) for _ in range(REPEATS)]),
        ):  # fmt: skip
            before = _size(index)
            for begin in range(0, REPEATS, BATCH):
                index.captures.store(arrivals[begin : begin + BATCH])
            yield {
                "a repeat": what, "on": site.name, "bytes": round((_size(index) - before) / REPEATS, 1),
            }  # fmt: skip


def _size(index: Index) -> int:
    """The bytes of an index, without what is free in it."""
    database = index.database
    if database.path is None:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM FULL"))
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(statement)
    return database.path.stat().st_size


def milliseconds(took: Sequence[float], share: float) -> float:
    return round(1000 * took[min(int(len(took) * share), len(took) - 1)], 1) if took else float("nan")


#: What can be measured: how, and on what.
MEASURES: dict[str, tuple[Callable[[Site, Asked], Iterator[Row]], tuple[str, ...]]] = {
    "uploads": (uploads, ("server",)),
    "lists": (lists, ("server", "file")),
    "claims": (claims, ("server", "file")),
    "answers": (answers, ("server", "file")),
    "delay": (delay, ("server",)),
    "growth": (growth, ("server", "file")),
    "index": (index, ("server", "file")),
}


@contextlib.contextmanager
def site(kind: str, url: str) -> Iterator[Site]:
    """An empty index on a server, or in a file."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="service-")))
        stack.enter_context(mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}))
        if kind == "file":
            yield Site(str(folder / "repro.db"), folder, None)
        elif url:
            _empty(url)
            stack.callback(_empty, url)
            yield Site(url, folder, None)
        else:
            server = stack.enter_context(running())
            yield Site(server.url, folder, server)


def _empty(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        Base.metadata.drop_all(connection)
        connection.execute(text("DROP TABLE IF EXISTS alembic_version"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--on", choices=("server", "file"), help="measure on this alone")
    parser.add_argument("--url", default="", help="a database whose tables may be removed; by default a new server")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--captures", type=int, default=1_000_000, help="captures in the lists; a file has a tenth")
    parser.add_argument("--bugs", type=int, default=10_000)
    parser.add_argument("--in-one", type=int, default=50_000, help="of these, captures of one bug; a file has a tenth")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
    given = vars(parser.parse_args())
    only, on, url, as_json = (given.pop(name) for name in ("only", "on", "url", "json"))
    for name in only:
        measure, kinds = MEASURES[name]
        for kind in kinds:
            if on in (None, kind):
                with site(kind, url) as here:
                    show(name, measure(here, Asked(**given)), as_json)


def show(name: str, rows: Iterator[Row], as_json: bool) -> None:
    """Print rows as they come; as tables, a new one where the columns change."""
    columns: list[str] = []
    for row in rows:
        if as_json:
            print(json.dumps({"measure": name, **row}), flush=True)
            continue
        if list(row) != columns:
            columns = list(row)
            print("", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), sep="\n")
        print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
