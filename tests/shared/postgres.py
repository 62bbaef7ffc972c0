"""A PostgreSQL server of the test session's own, on a Unix socket in a temporary directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

#: Where Debian's packages put the server, which is not on ``PATH`` there.
DEBIAN = Path("/usr/lib/postgresql")
#: ``initdb`` and the server refuse to run as root.
UNPRIVILEGED = "nobody" if os.geteuid() == 0 else None


def program(name: str) -> str | None:
    newest_first = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), reverse=True)
    return next(map(str, newest_first), None) or shutil.which(name)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database on a server that ends with the session. Skips where PostgreSQL is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, control = program("initdb"), program("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("PostgreSQL is not installed")
    # pytest's own temporary directories are closed to other users, and too long for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="fxm", dir="/tmp") as folder:
        if UNPRIVILEGED is not None:
            shutil.chown(folder, UNPRIVILEGED)
        data = f"{folder}/data"

        def run(*command: str) -> None:
            subprocess.run(
                command, cwd=folder, user=UNPRIVILEGED, check=True, stdout=subprocess.DEVNULL, timeout=120,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            )  # fmt: skip

        run(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
        run(control, "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
        finally:
            run(control, "-D", data, "-m", "immediate", "stop")


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
