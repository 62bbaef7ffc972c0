"""An index of an older schema is brought up to date, and stays as it was where that fails.

There is one schema so far. `next_schema` is the version that comes after it.
"""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import next_schema
import pytest
from click.testing import CliRunner
from index_tasks import boom
from indexes import add, chain, failing

from fxminify.cli import main
from fxminify.store.index import Index, StoreError, upgrade
from fxminify.store.index.tables import FIRST, SCHEMA
from fxminify.store.index.upgrade import BACKUP


@pytest.fixture
def path(tmp_path: Path) -> str:
    """An index with two captures, which this version wrote."""
    made = tmp_path / "index" / "repro.db"
    made.parent.mkdir()
    with Index.open(str(made), create=True) as index:
        add(index, chain(["sin"]), failing("no sin"))
        add(index, chain(["cos"]), failing("no cos"))
    return str(made)


@pytest.fixture
def later(path: str, tmp_path: Path) -> Iterator[str]:
    """That index, in the process of the next version."""
    with ExitStack() as stack:
        for one in next_schema.patches(tmp_path):
            stack.enter_context(one)
        yield path


@pytest.mark.parametrize(
    "look",
    [Index.check, Index.open, lambda name: Index.open(name, readonly=True), lambda n: Index.open(n, create=True)],
)
def test_without_it_an_old_file_is_refused_and_left_alone(later: str, look: Callable[[str], object]) -> None:
    before = Path(later).read_bytes()
    with pytest.raises(StoreError, match=rf"older fxminify \(schema {SCHEMA}\): `minify upgrade {later}`"):
        look(later)
    assert Path(later).read_bytes() == before
    assert os.listdir(os.path.dirname(later)) == ["repro.db"]


def test_everything_in_it_is_read_and_the_copy_is_what_it_was(path: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for one in next_schema.patches(tmp_path):
            stack.enter_context(one)
        backup = Path(f"{path}{BACKUP}{SCHEMA}")
        assert upgrade.upgrade(path) == backup
        assert upgrade.upgrade(path) is None
        with Index.open(path) as index:
            rows = index.captures.find()
            assert [row.headline for row in rows] == ["RuntimeError: no sin", "RuntimeError: no cos"]
            assert [row.reason for row in rows] == [next_schema.REASON] * 2
            assert index.captures.case(2).graph.compute[0].name == "cos_0"
            index.tasks.fill()
    with Index.open(str(backup)) as index:
        assert [row.reason for row in index.captures.find()] == ["", ""]
    with pytest.raises(StoreError, match=rf"newer fxminify \(schema '{next_schema.NEXT}', this one knows {SCHEMA}\)"):
        Index.open(path)


def test_an_index_of_a_development_version_is_refused(path: str) -> None:
    old = f"{int(FIRST) - 1:04d}"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE alembic_version SET version_num = ?", [old])
    connection.close()
    before = Path(path).read_bytes()
    for attempt in (Index.check, Index.open, upgrade.upgrade):
        with pytest.raises(StoreError, match=f"has schema {old}, which only development versions wrote: capture the"):
            attempt(path)
    assert Path(path).read_bytes() == before


def die(*args: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(code: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of the next version."""
    head = "import next_schema, pathlib, sys, test_upgrade; from fxminify.store.index import upgrade, sqlite"
    code = f"{head}\nnext_schema.become(pathlib.Path(sys.argv[1]).parents[1])\n{code}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("moment", ["upgrade.sqlite.back_up", "upgrade._apply", "upgrade.sqlite.check_schema"])
def test_a_killed_process_leaves_the_old_file(later: str, moment: str) -> None:
    done = run(f"{moment} = test_upgrade.die; upgrade.upgrade(sys.argv[1])", later)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(StoreError, match="minify upgrade"):
        Index.open(later)
    upgrade.upgrade(later)
    with Index.open(later) as index:
        assert len(index.captures.find()) == 2


@pytest.mark.parametrize("fails", ["the copy", "the upgrade itself"])
def test_a_full_disk_leaves_the_old_file(later: str, fails: str) -> None:
    for statement in ("PRAGMA journal_mode=WAL", "CREATE TABLE t (x)", "DROP TABLE t"):
        connection = sqlite3.connect(later)
        connection.execute(statement)
        connection.close()
    copying = "upgrade.sqlite.back_up = lambda *args: None; " if fails != "the copy" else ""
    done = run(f"{copying}test_upgrade.fill(8 << 10); upgrade.upgrade(sys.argv[1])", later)
    assert done.returncode == 1
    assert "StoreError" in done.stderr, done.stderr
    assert [n for n in os.listdir(os.path.dirname(later)) if n.endswith(".tmp")] == []
    with pytest.raises(StoreError, match="minify upgrade"):
        Index.open(later)
    upgrade.upgrade(later)
    with Index.open(later) as index:
        assert len(index.captures.find()) == 2


def fill(limit: int) -> None:
    """No file may grow beyond ``limit`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT 1 AS capture",
        "CREATE TRIGGER t AFTER DELETE ON repros BEGIN DELETE FROM captures; END",
        "ALTER TABLE captures ADD COLUMN more",
    ],
)
def test_what_no_version_wrote_is_not_upgraded(later: str, statement: str) -> None:
    connection = sqlite3.connect(later, isolation_level=None)
    connection.execute(statement)
    connection.close()
    before = Path(later).read_bytes()
    with pytest.raises(StoreError):
        upgrade.upgrade(later)
    assert Path(later).read_bytes() == before


def test_the_verb_says_where_the_old_file_is(later: str) -> None:
    runner = CliRunner()
    shown = runner.invoke(main, ["upgrade", later])
    assert (shown.exit_code, shown.output) == (0, f"It is up to date now; the old file is {later}{BACKUP}{SCHEMA}.\n")
    assert runner.invoke(main, ["upgrade", later]).output == "It is up to date.\n"
    assert runner.invoke(main, ["upgrade", later, "--json"]).output == '{\n  "backup": null\n}\n'
    missing = runner.invoke(main, ["upgrade", later + "x"])
    assert missing.exit_code == 2
    assert "does not exist" in missing.output


def test_artifacts_are_kept_by_kind(path: str) -> None:
    with Index.open(path) as index:
        index.artifacts.save(2, "ablation", {"rows": (1, 2.5), "text": boom().kind})
        index.artifacts.save(2, "ablation", [float("inf")])
        assert index.artifacts.get(2, "ablation") == ["inf"]
        assert index.artifacts.get(2, "explanation") is None
        with pytest.raises(StoreError, match="has no capture 9"):
            index.artifacts.save(9, "ablation", {})
