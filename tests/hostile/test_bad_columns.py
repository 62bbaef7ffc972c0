"""Every column of every table gets values that fxminify never writes there: each verb and page says so in a sentence.

The columns are those of SQLAlchemy's metadata, so that a new table is covered by itself. `tests/unit/cli/test_bad_rows`
has documents that look like ours and cannot be read.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import indexes
import pytest
from desks import Desk
from fastapi.routing import APIRoute
from serving import Served, serving
from sqlalchemy import Column, Table

from fxminify.service.http.pages import pages
from fxminify.service.http.routes import probes, router
from fxminify.store.index import Index, TokenScope
from fxminify.store.index.tables import Base

#: What a value becomes, as SQL.
BAD = {
    "bytes": "x'00ff'",
    "text": "'odd'",
    "text that is no UTF-8": "CAST(x'ff41' AS TEXT)",
    "no text": "''",
    "JSON that nests too deeply": f"'{'[' * 20_000}'",
    "a negative number": "-1",
    "the largest number": "9223372036854775807",
    "a number of another kind": "1e308",
    "nothing": "NULL",
}
VERBS: tuple[tuple[str, ...], ...] = (
    ("list", "DB"), ("list", "DB", "--each"), ("list", "DB", "--json"), ("show", "DB", "1"),
    ("show", "DB", "1", "--json"),
    ("history", "DB", "1"), ("repro", "DB", "1", "--format", "issue", "--force"), ("verify", "DB"), ("retest", "DB"),
    ("retest", "DB", "--matrix"), ("run", "DB"), ("ablate", "DB", "1"), ("explain", "DB", "1"), ("tasks", "DB"),
    ("tasks", "DB", "--json"), ("tasks", "DB", "--cancel", "1"), ("tasks", "DB", "--retry", "1"), ("tokens", "DB"),
    ("tokens", "DB", "--new", "a", "--scope", "read"), ("tokens", "DB", "--revoke", "1"), ("notify", "DB"),
    ("notify", "DB", "--send", "notify.toml"), ("work", "DB", "--until-empty", "--drivers", "1"),
    ("report", "DB", "-o", "page.html", "--force"), ("export", "DB", "-o", "share.db", "--force"),
    ("copy", "DB", "copy.db"), ("gc", "DB", "--dry-run", "--unverified", "0"), ("gc", "DB", "--values"),
    ("gc", "DB", "--unverified", "0", "--fixed", "0"),
)  # fmt: skip
#: The verbs that start processes where a capture may be run are tried in the long run only.
QUICK = [verb for verb in VERBS if verb[0] not in ("work", "run", "retest", "verify", "explain", "ablate", "notify")]
PAGES = sorted(
    route.path.replace("{id}", "1")
    for group in (pages, router, probes)
    for route in group.routes
    if isinstance(route, APIRoute) and "GET" in (route.methods or ())
)
CHANGES = (
    ("tasks/1/cancel", None), ("tasks/1/retry", None), ("bugs/1/reduce", None), ("bugs/1/retest", None),
    ("bugs/1/status", {"status": "ignored"}), ("bugs/1/labels", {"add": ["p2"]}), ("bugs/2/merge", {"into": 1}),
)  # fmt: skip
TABLES = {table.name: table for table in Base.metadata.sorted_tables}
#: Values of columns in which any text or number would be a bad value.
VALUES = {
    "status": "ignored", "what": "new", "state": "waiting", "scopes": "read", "codec": "raw", "config": "{}",
    "result": "fixed",
    "versions": '{"torch": "2.13.0"}', "content": "{}", "can": "[]", "day": "2026-11-01", "kind": "note", "label": "p1",
    "duplicate_of": None, "until": 4e9,
}  # fmt: skip


class Trial(NamedTuple):
    table: str
    column: str
    what: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}: {self.what}"


def trials_of(table: str) -> list[Trial]:
    return [Trial(table, column.name, what) for column in TABLES[table].columns for what in BAD]


def _filler(column: Column[Any], connection: sqlite3.Connection) -> object:
    for key in column.foreign_keys:
        if column.name not in VALUES:
            row = connection.execute(f"SELECT {key.column.name} FROM {key.column.table.name}").fetchone()
            return row[0] if row else None
    if column.name in VALUES:
        return VALUES[column.name]
    if column.type.python_type in (int, float):
        return 1
    return b"1234" if column.type.python_type is bytes else "2026-11-01T00:00:00+00:00"


def _fill(table: Table, connection: sqlite3.Connection) -> None:
    """Give the table a row, if it has none."""
    if connection.execute(f"SELECT 1 FROM {table.name}").fetchone() is None:
        values = [_filler(column, connection) for column in table.columns]
        connection.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(values))})", values)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that has a row in every table."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    with pytest.MonkeyPatch.context() as patched, Index.open(str(path), create=True) as index:
        patched.setenv("XDG_STATE_HOME", str(path.parent / "state"))
        for name in ("sin", "exp"):
            indexes.minify(index, indexes.add(index, indexes.chain([name]), indexes.failing(f"no {name}")),
                           indexes.chain([name]))  # fmt: skip
        index.tokens.new("job", [TokenScope.READ])
        index.tasks.join("one", {"trust"})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in TABLES.values():
            _fill(table, connection)
    return path


@pytest.fixture
def ready(desk: Desk, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk where the file of a trial is put, with the key that made it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(whole.parent / "state"))
    (desk.path / "notify.toml").write_text('[[target]]\nname = "here"\nurl = "http://127.0.0.1:9/"\nformat = "json"\n')
    shutil.copyfile(whole, desk.db)
    return desk


def _damaged(whole: Path, db: Path, trial: Trial) -> bool:
    """Put a damaged copy in place. False if the database refuses such a value."""
    for left in db.parent.glob(f"{db.name}*"):
        left.unlink()
    shutil.copyfile(whole, db)
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        first = f"rowid = (SELECT min(rowid) FROM {trial.table})"
        try:
            connection.execute(f"UPDATE {trial.table} SET {trial.column} = {BAD[trial.what]} WHERE {first}")
        except sqlite3.IntegrityError:
            return False
    return True


def _wrong(desk: Desk, verb: Sequence[str]) -> str:
    """Return the fault in how the verb ended, or an empty text."""
    (desk.path / "copy.db").unlink(missing_ok=True)
    done = desk.invoke(*("repro.db" if word == "DB" else word for word in verb))
    said = done.stderr.splitlines()
    if not isinstance(done.exception, SystemExit | None):
        return f"{verb}: {done.exception!r}"
    if done.exit_code not in (0, 1, 2, 3) or "Traceback" in done.output + done.stderr:
        return f"{verb}: ended with {done.exit_code}: {done.output[-500:]}"
    if done.exit_code == 2 and not said[-1].startswith("Error: "):
        return f"{verb}: no sentence: {said}"
    if verb == ("list", "DB", "--each") and (done.exit_code or "no exp" not in done.stdout):
        return f"{verb}: the other row is not listed: {done.output[-500:]}"
    return ""


def _faults(desk: Desk, whole: Path, trial: Trial, verbs: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for verb in verbs:
        if not _damaged(whole, desk.db, trial):
            return
        if fault := _wrong(desk, verb):
            yield f"{trial}: {fault}"


def _answers(served: Served, trial: Trial) -> Iterator[str]:
    asked: list[tuple[str, str, dict[str, Any] | None]] = [("GET", path, None) for path in PAGES]
    asked += [("POST", f"/api/v1/{path}", body) for path, body in CHANGES]
    for method, path, body in asked:
        answer = served.ask(method, path if "/events" not in path else f"{path}?after=0&seconds=0", body)
        said = answer.body.decode("utf-8", "replace")
        if "Traceback" in said or (answer.status >= 500 and "row" not in said and "index" not in said):
            yield f"{trial}: {method} {path}: {answer.status}: {said[:300]}"


def test_a_sample(ready: Desk, whole: Path) -> None:
    draw = Random(42)
    chosen = [draw.choice(trials_of(table)) for table in TABLES]
    assert [fault for trial in chosen for fault in _faults(ready, whole, trial, draw.sample(QUICK, 1))] == []


def test_every_table_has_a_row(whole: Path) -> None:
    with closing(sqlite3.connect(whole)) as connection:
        assert [name for name in TABLES if connection.execute(f"SELECT 1 FROM {name}").fetchone() is None] == []


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_column_of(table: str, ready: Desk, whole: Path) -> None:
    """Each kind of bad value in each column, for a sample of the verbs."""
    draw = Random(table)
    found = [fault for trial in trials_of(table) for fault in _faults(ready, whole, trial, draw.sample(QUICK, 6))]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_the_server_answers_about(table: str, ready: Desk, whole: Path, tmp_path: Path) -> None:
    """Two kinds of bad values in each column: a server is started for each."""
    draw = Random(table)
    trials = [Trial(table, column.name, what) for column in TABLES[table].columns for what in draw.sample(list(BAD), 2)]
    found: list[str] = []
    for number, trial in enumerate(trials):
        if _damaged(whole, ready.db, trial):
            with serving(str(ready.db), tmp_path / f"uploads{number}") as served:
                found += _answers(served, trial)
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_verbs_that_run_something(table: str, ready: Desk, whole: Path) -> None:
    """Each column gets one bad value for one verb that starts processes, a worker among them."""
    draw = Random(table)
    found: list[str] = []
    for column in TABLES[table].columns:
        trial = Trial(table, column.name, draw.choice(list(BAD)))
        found += _faults(ready, whole, trial, [draw.choice([verb for verb in VERBS if verb not in QUICK])])
    assert found == []


@pytest.mark.slow
def test_the_verbs_are_spelled_right(ready: Desk) -> None:
    """Else each would end with a sentence about its options, whatever is in the file."""
    for verb in VERBS:
        done = ready.invoke(*("repro.db" if word == "DB" else word for word in verb))
        assert "Usage: " not in done.stderr, (verb, done.stderr)
