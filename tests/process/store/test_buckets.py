"""Large storages of a server's index are objects in a bucket, on a server that answers as S3 does."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_tasks import add, small_case
from sqlalchemy import select

from fxminify.store.errors import StoreError
from fxminify.store.index import Index, buckets
from fxminify.store.index.blobs import BUCKET_LIMIT
from fxminify.store.index.tables import BlobRow

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with the bucket ``failures``."""
    code = (
        "import sys; from moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False); server.start()\n"
        "print(server.get_host_and_port()[1], flush=True); sys.stdin.read(); server.stop()"
    )
    log = (tmp_path_factory.mktemp("s3") / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.communicate()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    import s3fs

    settings = {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1", "FXMINIFY_BLOBS": "s3://failures/x/"}.items():
        monkeypatch.setenv(name, value)
    buckets.bucket.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("failures", exist_ok=True)
    return "s3://failures/x"


def places(index: Index) -> list[tuple[str | None, bool]]:
    with index.database.reading() as session:
        rows = session.scalars(select(BlobRow).order_by(BlobRow.size))
        return [(row.place, row.data is None) for row in rows]


def test_large_storages_are_objects_and_small_ones_rows(url: str, bucket: str) -> None:
    large = small_case(1 << 18, os.urandom(1 << 20))
    with Index.open(url, create=True) as index:
        add(index, *small_case(4, os.urandom(16)), text="small")
        id = add(index, *large, text="large")
        add(index, *large, text="large again")
        assert places(index) == [(None, False), (bucket, True)]
        index.blobs.sweep(large[1])  # another process may be about to name it
    with Index.open(url, readonly=True) as index:
        assert dict(index.blobs.view(index.captures.case(id).storages)) == large[1]


def test_a_directory_serves_as_well(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXMINIFY_BLOBS", f"file://{tmp_path}/shared")
    case, blobs = small_case(1 << 18, os.urandom(1 << 20))
    with Index.open(url, create=True) as index:
        add(index, case, blobs)
        assert places(index) == [(f"file://{tmp_path}/shared", True)]
        assert dict(index.blobs.view(case.storages)) == blobs
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.relative_to(tmp_path).parts == ("shared", file.name[:2], file.name)


def test_without_a_bucket_they_are_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FXMINIFY_BLOBS", raising=False)
    with Index.open(url, create=True) as index:
        add(index, *small_case(1 << 18, os.urandom(1 << 20)))
        assert places(index) == [(None, False)]


def test_a_missing_or_changed_object_is_named(url: str, bucket: str) -> None:
    import s3fs

    case, blobs = small_case(1 << 18, os.urandom(1 << 20))
    (key,) = blobs
    path = f"failures/x/{key[:2]}/{key}"
    files = s3fs.S3FileSystem()
    with Index.open(url, create=True) as index:
        add(index, case, blobs)
        for content, message in (
            (b"short", "not as long as declared"),
            (blobs[key] + b"x", "not as long as declared"),
            (bytes(len(blobs[key])), "does not match its digest"),
        ):
            files.pipe_file(path, content)
            with pytest.raises(StoreError, match=message):
                index.blobs.read(key)
        files.rm(path)
        with pytest.raises(StoreError, match=f"{bucket} has no object {key[:12]}"):
            index.blobs.read(key)


def test_a_bucket_that_cannot_be_used_stores_nothing_half(
    url: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("s3://no-such-bucket-here/x", "nonsense://x"):
        monkeypatch.setenv("FXMINIFY_BLOBS", wrong)
        with Index.open(url, create=True) as index:
            with pytest.raises(StoreError, match=rf"{wrong} cannot be used .*: check FXMINIFY_BLOBS"):
                add(index, *small_case(1 << 18, os.urandom(BUCKET_LIMIT * 2)))
            assert (index.captures.find(), places(index)) == ([], [])


def test_a_file_from_elsewhere_names_no_address(tmp_path: Path) -> None:
    path = str(tmp_path / "repro.db")
    case, blobs = small_case(1 << 18, os.urandom(1 << 20))
    with Index.open(path, create=True) as index:
        add(index, case, blobs)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE blobs SET data = NULL, place = 's3://evil/x'")
    connection.close()
    with Index.open(path, readonly=True) as index, pytest.raises(StoreError, match="at an address"):
        index.blobs.read(next(iter(blobs)))
