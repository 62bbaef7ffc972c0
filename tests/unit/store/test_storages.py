"""Storages are read and written piece by piece: no model's weights are twice in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from index_tasks import small_case

from fxminify.backends.capture.journal import Journal, JournalBlobs
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.minifier.tracing.content_address import content_addressed
from fxminify.store.document import storages
from fxminify.store.document.storages import PIECE, Joined, Piece, StorageReader
from fxminify.store.errors import StoreError
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index
from fxminify.store.index.documents import digest
from fxminify.store.recording import Recording
from fxminify.store.signature import signature
from fxminify.store.spool import upload

FAILURE = Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, "RuntimeError", "no kernel")


class InPieces(StorageReader):
    """Storages that are never read as a whole. ``pieces_read`` counts."""

    def __init__(self, data: dict[str, bytes]) -> None:
        self.data = data
        self.pieces_read = 0

    def size(self, key: str) -> int:
        return len(self.data[key])

    def pieces(self, key: str) -> Iterator[Piece]:
        for part in storages.pieces(self.data, key):
            self.pieces_read += 1
            yield part

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __getitem__(self, key: str) -> bytes:
        raise AssertionError("read as a whole")


@pytest.fixture
def large() -> InPieces:
    data = os.urandom(2 * PIECE + 1024)
    return InPieces({digest(data): data})


def add(index: Index, blobs: StorageReader) -> int:
    (key,) = blobs
    case, _ = small_case(blobs.size(key) // 4)
    (spec,) = case.tensors
    case = replace(case, tensors=(replace(spec, storage=key),))
    return index.captures.add(case=case, blobs=blobs, failure=FAILURE, signature=signature(FAILURE), provenance={})


def test_any_mapping_is_read_in_pieces() -> None:
    plain = {"a": bytes(PIECE + 1), "b": b""}
    assert [len(part) for part in storages.pieces(plain, "a")] == [PIECE, 1]
    assert list(storages.pieces(plain, "b")) == []
    assert (storages.size(plain, "a"), storages.size(InPieces(plain), "b")) == (PIECE + 1, 0)
    joined = Joined({"a": b"first"}, InPieces(plain))
    assert sorted(joined) == ["a", "b"]
    assert (joined["a"], joined.size("a"), joined["b"], len(joined)) == (b"first", 5, b"", 2)
    assert ("a" in joined, "c" in joined) == (True, False)
    with pytest.raises(KeyError):
        joined["c"]


def test_a_large_storage_is_stored_once_and_read_in_pieces(path: str, large: InPieces) -> None:
    (key,) = large
    with Index.open(path, create=True) as index:
        add(index, large)
        first = large.pieces_read
        assert first == 1 + 3  # a sample, and all of it while it is hashed and written
        index.captures.add(
            case=replace(index.captures.case(1), backward=True), blobs=large, failure=FAILURE,
            signature=signature(FAILURE), provenance={},
        )  # fmt: skip
        assert large.pieces_read == first
        view = index.blobs.view([key])
        assert (view.size(key), [len(part) for part in view.pieces(key)]) == (2 * PIECE + 1024, [PIECE, PIECE, 1024])
        assert view[key] == large.data[key]
        file = Path(f"{path}.blobs", key[:2], key)
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(StoreError, match="does not match its digest"):
            list(view.pieces(key))
        file.write_bytes(b"short")
        with pytest.raises(StoreError, match="not as long as declared"):
            list(view.pieces(key))


def test_a_large_storage_of_zeros_becomes_a_row(path: str) -> None:
    data = bytes(2 * PIECE + 1024)
    with Index.open(path, create=True) as index:
        add(index, InPieces({digest(data): data}))
        assert index.blobs.view([digest(data)])[digest(data)] == data
    assert not [p for p in Path(f"{path}.blobs").rglob("*") if p.is_file()]


def test_a_storage_that_changes_while_it_is_written_is_refused(path: str, large: InPieces) -> None:
    (key,) = large
    large.data[key] = large.data[key][:-1] + bytes([large.data[key][-1] ^ 1])
    with Index.open(path, create=True) as index:
        with pytest.raises(ValueError, match="not named by the sha256"):
            add(index, large)
        assert list(index.captures.find()) == []
    assert not [p for p in Path(f"{path}.blobs").rglob("*") if p.is_file()]


def test_scratch_takes_storages_in_pieces(tmp_path: Path, large: InPieces) -> None:
    (key,) = large
    scratch = Scratch.create()
    try:
        scratch.put(large)
        assert (scratch.size(key), scratch[key]) == (large.size(key), large.data[key])
        assert scratch.file(key).read_bytes() == large.data[key]
        scratch.put(large)
        assert large.pieces_read == 3
        with pytest.raises(KeyError):
            scratch.size("unknown")

        class Broken(InPieces):
            def pieces(self, key: str) -> Iterator[Piece]:
                yield b"some"
                raise OSError("no space left")

        with pytest.raises(OSError, match="no space"):
            scratch.put(Broken({"b": b""}))
        assert "b" not in scratch
        assert len(list((scratch.root / "blobs").iterdir())) == 1
    finally:
        scratch.remove()


def test_uploads_are_written_in_pieces(tmp_path: Path, large: InPieces) -> None:
    (key,) = large
    case, _ = small_case(large.size(key) // 4)
    case = replace(case, tensors=(replace(case.tensors[0], storage=key),))
    met = Recording(case=case, blobs=large, failure=FAILURE, provenance={"torch": "2"}, graph_text="", reason="")
    upload.write(upload.Upload(met), tmp_path / "up")
    read = upload.read(tmp_path / "up").met
    assert (read.case, read.blobs[key]) == (case, large.data[key])
    assert upload.versions(tmp_path / "up") == {"torch": "2"}


def test_a_journal_writes_a_storage_once(tmp_path: Path, large: InPieces) -> None:
    (key,) = large
    (tmp_path / "blobs").mkdir()
    journal = Journal(str(tmp_path))
    for graph in (1, 1, 2):
        journal.put(graph, {}, large)
    assert large.pieces_read == 3
    found = JournalBlobs(tmp_path)
    assert (list(found), found.size(key), found[key]) == ([key], large.size(key), large.data[key])
    with pytest.raises(KeyError):
        found["unknown"]


def test_content_addresses_are_made_in_pieces(large: InPieces) -> None:
    (key,) = large
    case, _ = small_case(large.size(key) // 4)
    spec = case.tensors[0]
    twice = InPieces({"relu@0": large.data[key], "sin@0": large.data[key]})
    case = replace(case, tensors=(replace(spec, storage="relu@0"), replace(spec, storage="sin@0")))
    addressed, found = content_addressed(case, twice)
    names = [t.storage for t in addressed.tensors]
    assert names[0] == key
    assert sorted(found) == sorted(filter(None, names))
    assert found.size(str(names[1])) == large.size(key) + 64
    for name in found:
        assert digest(b"".join(found.pieces(name))) == name
