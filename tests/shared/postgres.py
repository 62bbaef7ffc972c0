"""A PostgreSQL server of the test session's own, on a Unix socket in a temporary directory."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from fxminify.benchmarks import postgres_server
from fxminify.benchmarks.postgres_server import UNPRIVILEGED, PostgresMissing, PostgresServer

#: The port of the pooler, which is part of the name of its socket.
PORT = 6432


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A new server. Skips where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        with postgres_server.running() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database on a server that ends with the session."""
    with running() as server:
        yield server.url


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server of this test alone, which it may kill."""
    with running() as server:
        yield server


@pytest.fixture
def pooled(url: str) -> Iterator[str]:
    """The URL of the same database behind a PgBouncer, which gives each transaction one of two connections."""
    bouncer = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if bouncer is None:
        pytest.skip("PgBouncer is not installed")
    with tempfile.TemporaryDirectory(prefix="fxm", dir="/tmp") as folder:
        settings = {
            "unix_socket_dir": folder, "listen_port": PORT, "pool_mode": "transaction", "default_pool_size": 2,
            "auth_type": "any", "logfile": f"{folder}/log", "admin_users": "postgres",
        }  # fmt: skip
        host = make_url(url).query["host"]
        lines = ["[databases]", f"postgres = host={host} user=postgres", "[pgbouncer]"]
        Path(folder, "ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]))
        if UNPRIVILEGED is not None:
            shutil.chown(folder, UNPRIVILEGED)
        with subprocess.Popen([bouncer, "-q", f"{folder}/ini"], user=UNPRIVILEGED, cwd=folder) as process:
            pooled = f"postgresql+psycopg://postgres@/postgres?host={folder}&port={PORT}"
            try:
                while not Path(folder, f".s.PGSQL.{PORT}").exists():
                    assert process.poll() is None, "PgBouncer ended at once"
                    time.sleep(0.02)
                yield pooled
            finally:
                process.terminate()


@pytest.fixture(params=["file", pytest.param("url", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the place of a new index: in a file, and in an empty database. The user's state is a folder of the
    test.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(tmp_path / "repro.db") if request.param == "file" else str(request.getfixturevalue("url"))


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """The URL of an empty database."""
    engine = create_engine(server)

    def empty() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")

    empty()
    yield server
    empty()
    engine.dispose()
