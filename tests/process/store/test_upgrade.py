"""A file of an older schema, written by code of its time, is read after an upgrade.

Git commits 0a2aa78, f0017db and 8c5bea8 wrote them; those of 0006 to 0010 are the first one, upgraded by 9558f4d,
44aac9b, a941a4b, 9d3d5e5 and e4fe7a7.
"""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from index_tasks import boom

from fxminify.cli import main
from fxminify.minifier.oracle import ablation, first_node
from fxminify.minifier.reporting import explanation, illustrations, script_header
from fxminify.store.index import BugStatus, Index, RetestResult, State, StoreError, TaskState, upgrade
from fxminify.store.index.upgrade import BACKUP

#: The file of the first edition.
FIRST = "0003"


def old(schema: str, folder: Path) -> str:
    return str(shutil.copy(Path(__file__).with_name(f"schema_{schema}.sqlite"), folder / "repro.db"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return old(FIRST, tmp_path)


@pytest.mark.parametrize(
    "look",
    [Index.check, Index.open, lambda name: Index.open(name, readonly=True), lambda n: Index.open(n, create=True)],
)
def test_without_it_an_old_file_is_refused_and_left_alone(path: str, look: Callable[[str], object]) -> None:
    before = Path(path).read_bytes()
    with pytest.raises(StoreError, match=rf"older fxminify \(schema 0003\): `minify upgrade {path}`"):
        look(path)
    assert Path(path).read_bytes() == before
    assert os.listdir(os.path.dirname(path)) == ["repro.db"]


@pytest.mark.parametrize("schema", [FIRST, "0004", "0005", "0006", "0007", "0008", "0009", "0010"])
def test_everything_in_it_is_read(tmp_path: Path, schema: str) -> None:
    path = old(schema, tmp_path)
    backup = Path(f"{path}{BACKUP}{schema}")
    assert upgrade.upgrade(path) == backup
    assert backup.stat().st_size > 0
    assert upgrade.upgrade(path) is None
    with Index.open(path) as index:
        first, second, third = index.captures.find()
        assert (first.state, second.state, third.state) == (State.VERIFIED, State.PENDING, State.UNSUPPORTED)
        assert (second.occurrences, second.parent, third.reason) == (4, 1, "node foo has no name")
        assert first.failure is not None
        kept = index.captures.signature(1)
        assert kept is not None
        assert (kept.version, kept.digest == first.signature) == (1, True)
        case = index.captures.case(1)
        assert [node.name for node in case.graph.compute] == ["relu", "sin", "cos"]
        assert list(dict(index.blobs.view(case.storages)).values()) == [bytes(range(64))]
        (step,) = index.reductions.steps(1)
        assert (step.pass_name, step.difference, step.kept) == ("nodes", "- relu\n- cos", True)
        assert index.verdicts.find(1)["a"].outcome == "same"
        reduced = index.stored_step(1, 1)
        assert reduced is not None
        assert index.best(first) == reduced.case.case
        script = index.repros.get(1)
        assert script is not None
        assert (script.text, script.verified, script.runs) == ("raise SystemExit(1)\n", 3, 3)
        assert index.repros.get(1, "pytest") is not None
        assert index.repros.get(1, "ablation") is None
        (retest,) = index.retests.find()
        assert (retest.result, retest.message) == (RetestResult.CHANGED, "KeyError: 1")
        assert first_node.stored(index, 2) == {"node": "sin", "position": 2, "of": 3, "class": "value", "error": 1.5}
        assert [item.name for item in illustrations.stored(index, 1).items] == ["partition 0"]
        found, layers = explanation.stored(index, 1), ablation.stored(index, 1)
        assert found is not None
        assert found.asked == 3
        assert layers is not None
        assert layers.enters == "Dynamo"
        header = script_header.stored(index, index.captures.get(1))
        assert header is not None
        assert header.runs == "3 of 3"
        index.captures.set_state(2, State.BLOCKED)
        bugs = index.bugs.page()
        assert [(bug.ids, bug.captures, bug.occurrences) for bug in bugs] == [((1,), 1, 1), ((2,), 1, 4), ((3,), 1, 1)]
        assert [(seen.day, seen.versions, seen.count) for seen in index.bugs.sightings(2)] == [("2026-11-22", {}, 4)]
        assert index.leases.take(1)
        assert index.tasks.page() == []
        index.captures.set_state(2, State.PENDING)
        assert index.tasks.fill() == 1
        assert [(task.capture, task.state) for task in index.tasks.page()] == [(2, TaskState.QUEUED)]
        assert index.installations.announce({"inductor": {"torch": "2.99"}}) == 1
        assert index.triage.retested(1, {"torch": "2.99"}, fixed=True) is BugStatus.FIXED
        assert index.triage.label(1, add=["p1"]) == index.bugs.get(1).labels == ("p1",)


def die(*args: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(code: str, path: str) -> subprocess.CompletedProcess[str]:
    code = f"import test_upgrade; from fxminify.store.index import upgrade, sqlite\n{code}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("moment", ["upgrade.sqlite.back_up", "upgrade._apply", "upgrade.sqlite.check_schema"])
def test_a_killed_process_leaves_the_old_file(path: str, moment: str) -> None:
    done = run(f"import sys; {moment} = test_upgrade.die; upgrade.upgrade(sys.argv[1])", path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(StoreError, match="minify upgrade"):
        Index.open(path)
    upgrade.upgrade(path)
    with Index.open(path) as index:
        assert len(index.captures.find()) == 3


@pytest.mark.parametrize("fails", ["the copy", "the upgrade itself"])
def test_a_full_disk_leaves_the_old_file(path: str, fails: str) -> None:
    for statement in ("PRAGMA journal_mode=WAL", "CREATE TABLE t (x)", "DROP TABLE t"):
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
    copying = "upgrade.sqlite.back_up = lambda *args: None;" if fails != "the copy" else ""
    done = run(f"import sys; {copying} test_upgrade.fill(8 << 10); upgrade.upgrade(sys.argv[1])", path)
    assert done.returncode == 1
    assert "StoreError" in done.stderr
    assert [n for n in os.listdir(os.path.dirname(path)) if n.endswith(".tmp")] == []
    with pytest.raises(StoreError, match="minify upgrade"):
        Index.open(path)
    upgrade.upgrade(path)
    with Index.open(path) as index:
        assert len(index.captures.find()) == 3


def fill(limit: int) -> None:
    """No file may grow beyond ``limit`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (x)",
        "CREATE VIEW artifacts AS SELECT 1 AS capture",
        "CREATE TRIGGER t AFTER DELETE ON repros BEGIN DELETE FROM captures; END",
        "ALTER TABLE captures ADD COLUMN more",
        "UPDATE alembic_version SET version_num = '0002'",
    ],
)
def test_what_the_first_edition_never_wrote_is_not_upgraded(path: str, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreError):
        upgrade.upgrade(path)
    assert Path(path).read_bytes() == before


def test_the_verb_says_where_the_old_file_is(path: str) -> None:
    runner = CliRunner()
    shown = runner.invoke(main, ["upgrade", path])
    assert (shown.exit_code, shown.output) == (0, f"It is up to date now; the old file is {path}{BACKUP}{FIRST}.\n")
    assert runner.invoke(main, ["upgrade", path]).output == "It is up to date.\n"
    assert runner.invoke(main, ["upgrade", path, "--json"]).output == '{\n  "backup": null\n}\n'
    missing = runner.invoke(main, ["upgrade", path + "x"])
    assert missing.exit_code == 2
    assert "does not exist" in missing.output


def test_artifacts_are_kept_by_kind(path: str) -> None:
    upgrade.upgrade(path)
    with Index.open(path) as index:
        index.artifacts.save(2, "ablation", {"rows": (1, 2.5), "text": boom().kind})
        index.artifacts.save(2, "ablation", [float("inf")])
        assert index.artifacts.get(2, "ablation") == ["inf"]
        assert index.artifacts.get(2, "explanation") is None
        with pytest.raises(StoreError, match="has no capture 9"):
            index.artifacts.save(9, "ablation", {})
