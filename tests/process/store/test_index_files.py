"""Every file that cannot be used is one clear sentence that names it, and is left as it was."""

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import index_tasks
import pytest
from index_tasks import add, small_case

from fxminify.store.index import Index, State, StoreError

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with two captures, one of them with a storage beside it."""
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True, inline_limit=1000) as index:
        add(index, *small_case())
        add(index, *small_case(1024, os.urandom(4096)))
    return path


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that an unprivileged user may reach, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="fxminify-test-"))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere: be nobody for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def refusal(path: str, **how: bool) -> str:
    """The sentence with which opening ``path`` is refused; the directory is unchanged."""
    before = snapshot(path)
    with pytest.raises(StoreError) as error, Index.open(path, **how) as index:
        index.captures.find()
    assert snapshot(path) == before
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


def snapshot(path: str) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path(path).parent.rglob("*") if p.is_file()}


@pytest.mark.parametrize("readonly", [True, False])
def test_missing(tmp_path: Path, readonly: bool) -> None:
    path = str(tmp_path / "my repro.db")
    assert f"`minify capture --db '{path}' SCRIPT`" in refusal(path, readonly=readonly)


def test_a_new_file_logs_nothing_into_the_handlers_of_the_program(tmp_path: Path) -> None:
    program = """
        import logging
        logging.basicConfig(level=logging.DEBUG)
        from fxminify.store.index import Index
        Index.open("repro.db", create=True).close()
        import alembic.runtime.migration
        logging.getLogger("alembic.runtime.migration").info("of the program")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == "INFO:alembic.runtime.migration:of the program\n"


def test_missing_directory(tmp_path: Path) -> None:
    assert "there is no directory" in refusal(str(tmp_path / "a" / "repro.db"), create=True)


@pytest.mark.parametrize("how", [{"readonly": True}, {"create": True}, {}])
def test_directory(tmp_path: Path, how: dict[str, bool]) -> None:
    (tmp_path / "d").mkdir()
    assert "is a directory" in refusal(str(tmp_path / "d"), **how)


@pytest.mark.parametrize("how", [{"readonly": True}, {"create": True}, {}])
@pytest.mark.parametrize(
    "content", [b"x", b"hello", b"x" * 600, b"PK\3\4" + bytes(9000), b"SQLite format 3\0" + b"x" * 50]
)
def test_foreign_file(tmp_path: Path, content: bytes, how: dict[str, bool]) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    assert "is not a file of fxminify" in refusal(str(path), **how)


@pytest.mark.parametrize("how", [{"readonly": True}, {"create": True}, {}])
@pytest.mark.parametrize("application", [0, 42])
def test_foreign_database(tmp_path: Path, how: dict[str, bool], application: int) -> None:
    path = str(tmp_path / "notes.db")
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA application_id={application}; CREATE TABLE captures (id INTEGER);")
    connection.close()
    assert "is not a file of fxminify" in refusal(path, **how)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "repro.db"
    path.touch()
    assert "is empty: `minify capture" in refusal(str(path))
    assert "is empty: `minify capture" in refusal(str(path), readonly=True)
    with Index.open(str(path), create=True) as index:
        assert index.captures.find() == []


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("keep", [150, 600, 4096, 5000, -4096, -1])
def test_truncated_file(path: str, keep: int, readonly: bool) -> None:
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:keep])
    assert "is damaged or was cut short" in refusal(path, readonly=readonly)


@pytest.mark.parametrize("readonly", [True, False])
def test_newer_schema(path: str, readonly: bool) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("UPDATE alembic_version SET version_num='0999'; CREATE TABLE later (x)")
    connection.close()
    assert "newer fxminify" in (sentence := refusal(path, readonly=readonly))
    assert "pip install -U fxminify" in sentence


def test_storage_beside_the_file_is_missing(path: str) -> None:
    shutil.rmtree(f"{path}.blobs")
    with Index.open(path, readonly=True) as index, pytest.raises(StoreError, match=r"copy that directory as well"):
        dict(index.blobs.view(index.captures.case(2).storages))


def test_side_file_that_is_a_link(path: str) -> None:
    os.symlink("/etc/passwd", f"{path}-journal")
    assert "is a symbolic link" in refusal(path)


@pytest.mark.parametrize("what", ["file", "directory", "both"])
def test_read_only(public: Path, path: str, what: str) -> None:
    copy = str(shutil.copy(path, public))
    os.chmod(copy, 0o444 if what in ("file", "both") else 0o666)
    os.chmod(public, 0o555 if what in ("directory", "both") else 0o777)
    with unprivileged():
        assert "cannot be written (read-only" in refusal(copy)
        assert "cannot be written (read-only" in refusal(copy, create=True)
        before = snapshot(copy)
        with Index.open(copy, readonly=True) as index:
            assert [c.id for c in index.captures.find()] == [1, 2]
        assert snapshot(copy) == before


def test_unreadable(public: Path, path: str) -> None:
    copy = str(shutil.copy(path, public))
    os.chmod(copy, 0)
    os.chmod(public, 0o777)
    with unprivileged():
        for how in ({"readonly": True}, {}):
            with pytest.raises(StoreError, match="may not be read by you"):
                Index.open(copy, **how)


@pytest.mark.parametrize("sides", [["-wal"], ["-wal", "-shm"]])
def test_read_only_directory_with_an_unfinished_log(public: Path, path: str, sides: list[str]) -> None:
    with Index.open(path) as index:
        add(index, *small_case(7))
        for suffix in ["", *sides]:
            shutil.copy(f"{path}{suffix}", public)
    copy = str(public / "repro.db")
    assert os.path.getsize(f"{copy}-wal") > 0
    public.chmod(0o555)
    with unprivileged():
        before = snapshot(copy)
        with Index.open(copy, readonly=True) as index:
            assert [c.id for c in index.captures.find()] == [1, 2, 3]
            assert index.captures.get(3).nodes_before == 1
        assert snapshot(copy) == before


def test_reading_leaves_nothing_behind(path: str) -> None:
    before = snapshot(path)
    with Index.open(path, readonly=True) as index:
        assert len(index.captures.find()) == 2
        assert snapshot(path) == before
    assert snapshot(path) == before


def test_reading_sees_what_a_writer_adds(path: str) -> None:
    with Index.open(path, readonly=True) as reader:
        assert len(reader.captures.find()) == 2
        with Index.open(path) as writer:
            add(writer, *small_case(9))
            assert len(reader.captures.find()) == 3
        assert len(reader.captures.find()) == 3


def test_locked(path: str) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=index_tasks.hold_lock, args=(path, ready, done))
    holder.start()
    try:
        assert ready.wait(30)
        with Index.open(path, timeout=0.1) as index:
            with pytest.raises(StoreError, match=r"repro\.db is locked by another process"):
                add(index, *small_case(8))
            assert len(index.captures.find()) == 2  # readers do not wait
    finally:
        done.set()
        holder.join()


FILL = """
import os, resource, signal, sys
sys.path.insert(0, sys.argv[2])
from index_tasks import add, small_case
from fxminify.store.index import Index, State, StoreError
index = Index.open(sys.argv[1], inline_limit=int(sys.argv[3]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    add(index, *small_case(1 << 20, os.urandom(4 << 20)))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(index.captures.find()), add(index, *small_case(77)))
"""


@pytest.mark.parametrize(("limit", "sentence"), [(1000, "no space left to write"), (8 << 20, "the disk refused to")])
def test_full_disk(path: str, limit: int, sentence: str) -> None:
    """A file size limit stands for the full disk: both make the write fail midway."""
    beside = {p.name for p in Path(f"{path}.blobs").rglob("*")}
    run = subprocess.run(
        [sys.executable, "-c", FILL, path, str(SHARED), str(limit)], capture_output=True, text=True, check=False
    )
    first, second = run.stdout.splitlines() or [run.stderr, ""]
    assert first.startswith((f"{sentence} {path}", f"{sentence} read or write {path}"))
    assert "nothing was stored half" in first
    assert second == "2 3"
    assert {p.name for p in Path(f"{path}.blobs").rglob("*") if p.is_file()} <= beside


def test_full_disk_as_sqlite_says_it(path: str) -> None:
    with Index.open(path) as index:
        with index.database.reading() as session:
            session.connection().exec_driver_sql("PRAGMA max_page_count=1")
        with pytest.raises(StoreError, match=f"no space left to write {path}: nothing was stored half"):
            add(index, *small_case(1 << 20, os.urandom(4 << 20)))
        assert len(index.captures.find()) == 2


def test_an_index_does_not_cross_a_fork(path: str) -> None:
    code = f"""
import os, sys
from fxminify.store.index import Index, State, StoreError
index = Index.open({path!r})
if os.fork() == 0:
    try:
        index.captures.find()
    except StoreError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
print(len(index.captures.find()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, count = run.stdout.splitlines()
    assert "open it again here" in said
    assert count == "2"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_is_not_written_to(tmp_path: Path, how: str) -> None:
    """SQLite would go on to write to the file that nobody sees any more."""
    path = tmp_path / "repro.db"
    with Index.open(str(path), create=True) as index:
        add(index, *small_case(1), text="no a")
        path.unlink()
        if how == "replaced":
            Index.open(str(path), create=True).close()
        for write in (
            lambda: add(index, *small_case(1), text="no b"),
            lambda: index.captures.set_state(1, State.VERIFIED),
        ):
            with pytest.raises(StoreError, match=f"{path} was {how}.* while it was in use"):
                write()
