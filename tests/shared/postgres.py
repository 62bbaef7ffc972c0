"""A PostgreSQL server of the test session's own, on a Unix socket in a temporary directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

#: Where Debian's packages put the server, which is not on ``PATH`` there.
DEBIAN = Path("/usr/lib/postgresql")
#: ``initdb`` and the server refuse to run as root.
UNPRIVILEGED = "nobody" if os.geteuid() == 0 else None

#: The port of the pooler, which is part of the name of its socket.
PORT = 6432


def program(name: str) -> str | None:
    newest_first = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), reverse=True)
    return next(map(str, newest_first), None) or shutil.which(name)


class PostgresServer:
    """A server on a Unix socket in ``folder``."""

    def __init__(self, folder: str) -> None:
        found = program("initdb"), program("pg_ctl")
        if None in found:
            pytest.skip("PostgreSQL is not installed")
        initdb, self._control = map(str, found)
        self._folder, self._data = folder, f"{folder}/data"
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        if UNPRIVILEGED is not None:
            shutil.chown(folder, UNPRIVILEGED)
        self._run(initdb, "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
        self._run(self._control, "-D", self._data, "-l", f"{self._folder}/log", "-w", "-o", options, "start")

    def kill(self) -> None:
        """End it without a word to its clients, and without what it would write at its end."""
        self._run(self._control, "-D", self._data, "-m", "immediate", "stop")

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, cwd=self._folder, user=UNPRIVILEGED, check=True, stdout=subprocess.DEVNULL, timeout=120,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        )  # fmt: skip


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A new server. Skips where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    # pytest's own temporary directories are closed to other users, and too long for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="fxm", dir="/tmp") as folder:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


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
    """Where an index is to be made: in a file, and in an empty database. The state of the user is that of the test."""
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
