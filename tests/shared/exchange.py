"""An adversary who can write to an index, and exchanges what a capture holds between two statements of a victim."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from index_tasks import boom
from indexes import chain
from sqlalchemy import event, make_url
from sqlalchemy.engine import Engine

from fxminify.minifier.sandbox.launcher import SandboxError
from fxminify.minifier.sandbox.pool import Pool
from fxminify.repro_templates.processes import EndedRun, Processes, Script
from fxminify.store.document.case import Case
from fxminify.store.index import Index, State, StepInfo
from fxminify.store.signature import signature

#: What names everything that only the adversary made.
EVIL = "exchanged_by_a_stranger"
FAILURE = boom("no kernel")


def own_case() -> Case:
    """A case of the victim, with a backend that every installation has."""
    return replace(chain(["relu", "sin"]), backend={"name": "eager", "how": "registered", "target": "eager"})


def _evil(case: Case) -> Case:
    """The same graph for a backend whose source is in the capture."""
    source = {"imports": [], "text": f"def {EVIL}(gm, inputs):\n    return gm.forward\n", "file": "a.py"}
    spec = {"name": EVIL, "how": "source", "target": {"embedded": EVIL}, "source": source}
    return replace(case, backend=spec)


def planted(place: str) -> None:
    """An index with a capture of this user, minified, and beside it the documents of the adversary."""
    case = own_case()
    best = replace(case, graph=chain(["sin"]).graph)
    with Index.open(place, create=True) as index:
        for owner, ours in ((case, True), (_evil(case), False)):
            id = index.captures.add(
                case=owner, blobs={}, failure=FAILURE, signature=signature(FAILURE), provenance={}, ours=ours
            )
            reduction = index.reductions.begin(id, {}, ours=ours)
            smaller = best if ours else _evil(best)
            index.reductions.add_step(reduction.id, StepInfo(1, "nodes", "one", 1, 1), smaller, {})
            index.reductions.finish(reduction.id, queries=1, nodes_before=2, nodes_after=1, seconds=1.0)
            text = "import torch\nraise RuntimeError('no kernel')\n" + ("" if ours else f"# {EVIL}\n")
            index.repros.save(id, "script", text, verified=3, runs=3, log="", case=smaller, blobs={}, ours=ours)
            index.captures.set_state(id, State.VERIFIED)


#: Columns, by table.
Columns = Mapping[str, Sequence[str]]
#: The columns that the adversary exchanges, by table; the rows of capture 2 have the other values.
COLUMNS: Columns = {
    "captures": ("document", "provenance", "identity"), "repros": ("text", "document", "origin"),
    "reductions": ("best", "origin"), "steps": ("document", "origin"),
}  # fmt: skip
_TABLES = re.compile(rf"\b({'|'.join(COLUMNS)}|documents)\b")
_KEY = {"captures": "id", "repros": "capture", "reductions": "id", "steps": "reduction"}


@dataclass
class Adversary:
    """Exchanges the values of rows 1 and 2 over a connection of its own, and never waits for a lock.

    ``columns`` limits what it exchanges: the tags of this user may stay in their row.
    """

    place: str
    columns: Columns
    done: bool = False

    def __post_init__(self) -> None:
        rows = self._ask(*[f"SELECT {_KEY[t]}, {', '.join(c)} FROM {t} ORDER BY 1" for t, c in self.columns.items()])
        self._first = {table: found[0][1:] for table, found in zip(self.columns, rows, strict=True)}
        self._second = {table: found[1][1:] for table, found in zip(self.columns, rows, strict=True)}

    def statements(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the statements that put foreign material into the rows of the victim."""
        mark = "?" if "://" not in self.place else "%s"
        found: list[tuple[str, tuple[Any, ...]]] = []
        for table, columns in self.columns.items():
            key = _KEY[table]
            if "identity" in columns:
                found.append((f"UPDATE {table} SET identity = {mark} WHERE {key} = 2", ("0" * 64,)))
            sets = ", ".join(f"{name} = {mark}" for name in columns)
            found.append((f"UPDATE {table} SET {sets} WHERE {key} = 1", tuple(self._second[table])))
        return found

    def exchange(self) -> None:
        """Do it, unless it is done or another transaction is in the way."""
        if self.done:
            return
        with suppress(sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
            self._do(self.statements())
            self.done = True

    def restore(self) -> None:
        """Make the rows as they were, unless they are or another transaction is in the way."""
        if not self.done:
            return
        mark = "?" if "://" not in self.place else "%s"
        found: list[tuple[str, tuple[Any, ...]]] = []
        for table, columns in self.columns.items():
            sets = ", ".join(f"{name} = {mark}" for name in columns)
            for number, values in ((1, self._first[table]), (2, self._second[table])):
                found.append((f"UPDATE {table} SET {sets} WHERE {_KEY[table]} = {number}", tuple(values)))
        with suppress(sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
            self._do(found)
            self.done = False

    def _do(self, statements: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        if "://" not in self.place:
            with sqlite3.connect(self.place, timeout=0, isolation_level=None) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for text, values in statements:
                    connection.execute(text, values)
                connection.execute("COMMIT")
            connection.close()
            return
        with self.connected() as server:
            server.execute("SET lock_timeout = '20ms'")
            for text, values in statements:
                server.execute(text, values)

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Open one transaction on the server."""
        with psycopg.connect(make_url(self.place).set(drivername="postgresql").render_as_string()) as server:
            yield server

    def _ask(self, *statements: str) -> list[list[Any]]:
        if "://" not in self.place:
            with sqlite3.connect(self.place) as connection:
                found = [connection.execute(text).fetchall() for text in statements]
            connection.close()
            return found
        with self.connected() as server:
            return [server.execute(text).fetchall() for text in statements]


@dataclass
class Ran:
    """The backends, imports and texts that would have reached a process."""

    seen: list[str] = field(default_factory=list)

    @property
    def evil(self) -> bool:
        return any(EVIL in text for text in self.seen)


@contextmanager
def recorded(monkeypatch: Any) -> Iterator[Ran]:
    """No process is started inside the block; what it would have run is written down."""
    ran = Ran()

    def pool(self: Pool, backend: Any, imports: Any = (), **rest: Any) -> None:
        ran.seen.append(f"{backend} {imports}")
        raise SandboxError("not started")

    def run(self: Processes, script: Script, *, plain: bool, forked: bool = False) -> EndedRun:
        ran.seen.append(f"{script.text} {script.search_path}")
        return EndedRun(1, 0.1, "RuntimeError: no kernel")

    def prepare(self: Processes, script: Script) -> None:
        ran.seen.append(f"{script.text} {script.search_path}")

    with monkeypatch.context() as patched:
        patched.setattr(Pool, "__init__", pool)
        patched.setattr(Processes, "run", run)
        patched.setattr(Processes, "prepare", prepare)
        yield ran


def tables_read(statements: Sequence[str]) -> set[str]:
    """Return the tables that the queries among ``statements`` name."""
    return {name for text in statements if text.startswith("SELECT") for name in _TABLES.findall(text)}


@contextmanager
def between(at: int, act: Callable[[], None]) -> Iterator[list[str]]:
    """Call ``act`` before each statement from number ``at`` on that any index sends inside the block, and that names a
    table of which something is exchanged. Yields the list of these statements."""
    sent: list[str] = []

    def before(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if _TABLES.search(statement):
            sent.append(statement)
            if len(sent) > at:
                act()

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", before)
