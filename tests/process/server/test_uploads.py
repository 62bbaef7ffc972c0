"""What is sent to `minify serve`: it is stored once, and what fxminify would not send leaves no trace."""

from __future__ import annotations

import errno
import gzip
import hashlib
import itertools
import json
import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from indexes import chain, failing
from serving import ON_BOTH, OPTIONS, Served, body_of, serving, with_storage

from fxminify.service.http import intake
from fxminify.service.http.service import UPLOADS
from fxminify.store.document.case import to_json
from fxminify.store.errors import StoreError
from fxminify.store.failure import Failure
from fxminify.store.index import Index, State, TokenScope
from fxminify.store.index import signing as signatures
from fxminify.store.index.documents import digest, pack
from fxminify.store.index.trust import is_ours, maker, origin_tag
from fxminify.store.recording import backend_of, identity_of, shape_of
from fxminify.store.signature import signature

SIN = chain(["sin"])
BOOM = failing("no sin")
IDENTITY = identity_of(backend_of(SIN, {}), shape_of(SIN, "", ""), signature(BOOM).digest)


def rows(index: Index) -> dict[str, int]:
    """How many rows each table has."""
    with index.database.reading() as session:
        connection = session.connection()
        return {
            table: connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
            for table in ("bugs", "captures", "documents", "blobs", "sightings", "tasks", "uploads", "events")
        }


def test_a_capture_arrives_with_its_case_and_its_values(served: Served, tmp_path: Path) -> None:
    case, blobs = with_storage(SIN, bytes(range(256)) * 16)
    answer = served.upload(body_of(tmp_path, case, BOOM, blobs=blobs))
    assert (answer.status, answer.json) == (201, {"capture": 1, "bug": 1, "occurrences": 1})
    assert served.index.captures.case(1) == case
    assert dict(served.index.blobs.view(case.storages)) == blobs
    info = served.index.captures.get(1)
    assert (info.failure, info.state, info.provenance["program"]) == (BOOM, State.PENDING, "train.py")
    again = served.upload(gzip.compress(body_of(tmp_path, case, BOOM, blobs=blobs)), Content_Encoding="gzip")
    assert (again.status, again.json) == (200, {"capture": 1, "bug": 1, "occurrences": 2})
    assert served.left() == []


def test_a_graph_that_could_not_be_stored_arrives_with_the_reason(served: Served, tmp_path: Path) -> None:
    served.upload(body_of(tmp_path, None, BOOM, reason="no name", graph_text="f(x)"))
    served.upload(body_of(tmp_path, SIN, BOOM, reason="it died outside"))
    first, second = served.index.captures.find()
    assert (first.state, first.reason, first.graph_text, first.backend) == (
        State.UNSUPPORTED, "no name", "f(x)", "planted",
    )  # fmt: skip
    assert (second.state, second.reason) == (State.BLOCKED, "it died outside")


def test_what_is_sent_twice_under_one_key_counts_once(served: Served, tmp_path: Path) -> None:
    body = body_of(tmp_path, SIN, BOOM)
    before = [served.upload(body, "key-of-one").json for _ in range(3)]
    assert before == [{"capture": 1, "bug": 1, "occurrences": 1}] * 3
    long = served.upload(b" " * (1 << 20), "key-of-one", Fxminify_Digest=digest(body))  # it is not read to its end
    assert (long.status, long.json) == (201, before[0])
    assert served.upload(body, "key-of-two").json["occurrences"] == 2
    assert rows(served.index)["uploads"] == 2


def test_something_else_under_a_used_key_is_a_conflict(served: Served, tmp_path: Path) -> None:
    body, other = body_of(tmp_path, SIN, BOOM), body_of(tmp_path, chain(["cos"]), failing("no cos"))
    assert served.upload(body, "key-of-one").status == 201
    sentence = "something else was sent under this Idempotency-Key before: send it under a new one"
    for sent, headers in (
        (other, {}), (gzip.compress(other), {"Content_Encoding": "gzip"}), (body + b"\0", {}),
        (b" " * (1 << 20), {"Fxminify_Digest": "0" * 64}),
    ):  # fmt: skip
        answer = served.upload(sent, "key-of-one", **headers)
        expected = (422,) if sent == body + b"\0" else (409,)
        assert (answer.status, *([answer.detail] if answer.status == 409 else [])) == (
            *expected, *([sentence] if expected == (409,) else []),
        )  # fmt: skip
    assert served.upload(body, "key-of-one").status == 201
    assert rows(served.index)["captures"] == 1
    assert [row.occurrences for row in served.index.captures.find()] == [1]
    seen = {"key": "key-of-many", "identity": IDENTITY, "times": 2, "torch": "2.13.0", "python": "3.11"}
    assert served.post("/captures/known", [seen]).status == 200
    assert served.post("/captures/known", [{**seen, "identity": "f" * 64}]).status == 409
    assert served.upload(other, "key-of-many").status == 409
    assert served.index.captures.get(1).occurrences == 3
    wrong = served.upload(body, "key-of-more", Fxminify_Digest="0" * 64)
    assert (wrong.status, wrong.detail) == (400, "the upload has another digest than its sender says")
    assert served.left() == []


def test_of_two_bodies_under_one_key_at_the_same_time_one_is_stored(served: Served, tmp_path: Path) -> None:
    bodies = [body_of(tmp_path, chain([name]), failing(f"no {name}")) for name in ("sin", "cos", "tan")]
    with ThreadPoolExecutor(3) as together:
        found = sorted(
            answer.status for answer in together.map(lambda body: served.upload(body, "the-one-key"), bodies)
        )
    assert found == [201, 409, 409]
    assert rows(served.index)["captures"] == 1


@ON_BOTH
def test_what_is_sent_twice_at_the_same_time_counts_once(served: Served, tmp_path: Path) -> None:
    bodies = [body_of(tmp_path, SIN, BOOM), body_of(tmp_path, chain(["cos"]), failing("no cos"))]
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda n=number: statuses.append(served.upload(bodies[n % 2], f"the-key-{n % 2}").status)
        )
        for number in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {201}
    assert [row.occurrences for row in served.index.captures.find()] == [1, 1]
    assert sum(seen.count for bug in (1, 2) for seen in served.index.bugs.sightings(bug)) == 2


def test_known_captures_are_counted_without_their_body(served: Served, tmp_path: Path) -> None:
    seen = {"key": "again-and-again", "identity": IDENTITY, "times": 41, "torch": "2.14.0", "python": "3.12.1"}
    assert served.post("/captures/known", [seen]).json == [{"key": "again-and-again", "capture": None}]
    assert rows(served.index)["uploads"] == 0
    served.upload(body_of(tmp_path, SIN, BOOM))
    for _ in range(2):
        assert served.post("/captures/known", [seen]).json == [{"key": "again-and-again", "capture": 1}]
    assert served.index.captures.get(1).occurrences == 42
    assert {(s.versions["torch"], s.count) for s in served.index.bugs.sightings(1)} == {("2.13.0", 1), ("2.14.0", 41)}


def test_keys_are_forgotten_in_the_end(served: Served, tmp_path: Path) -> None:
    served.upload(body_of(tmp_path, SIN, BOOM), "key-of-one")
    served.index.uploads.forget()
    assert served.index.uploads.find("key-of-one") is not None
    with served.index.database.writing() as session:
        session.connection().exec_driver_sql("UPDATE uploads SET day = '2020-01-01'")
    served.index.uploads.forget()
    assert served.index.uploads.find("key-of-one") is None


# What means harm.


def entries(**content: bytes) -> bytes:
    """A safetensors file with these entries of bytes."""
    begin, header = 0, {}
    for name, data in content.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(content.values())


def document(**changes: Any) -> dict[str, Any]:
    good = {
        "format": 1, "case": to_json(SIN), "provenance": {}, "graph_text": "", "reason": "", "origin": "", "maker": "",
        "failure": {"kind": "compile_error", "phase": "compile", "type": "RuntimeError", "message": "no sin"},
    }  # fmt: skip
    return {**good, **changes}


def sent(**changes: Any) -> bytes:
    return entries(document=json.dumps(document(**changes)).encode())


STORED, _BLOBS = with_storage(SIN, bytes(64))
KEY = next(iter(STORED.storages))
NESTED: Any = {}
for _ in range(40):
    NESTED = {"x": NESTED}
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no header": b"\xff" * 7,
    "a header of many bytes": struct.pack("<Q", 1 << 62) + b"{}",
    "a header that is no JSON": struct.pack("<Q", 4) + b"nope",
    "a header with a hole": struct.pack("<Q", 62)
    + b'{"document":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}}  ' [:62]
    + bytes(13),
    "a petabyte": struct.pack("<Q", 77)
    + b'{"document":{"dtype":"U8","shape":[1125899906842624],"data_offsets":[0,4]}}  '
    + bytes(4),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "no document": entries(**{"a" * 64: b"x"}),
    "an entry of another name": entries(document=json.dumps(document()).encode(), more=b"x"),
    "a path as a name": entries(document=json.dumps(document()).encode(), **{"../../etc/passwd": b"x"}),
    "a storage too many": entries(document=json.dumps(document()).encode(), **{hashlib.sha256(b"x").hexdigest(): b"x"}),
    "a storage too few": sent(case=to_json(STORED)),
    "a storage of another content": entries(
        document=json.dumps(document(case=to_json(STORED))).encode(), **{KEY: bytes(63) + b"x"}
    ),
    "a storage that is too short": entries(
        document=json.dumps(document(case={**to_json(STORED), "tensors": [
            {**to_json(STORED)["tensors"][0], "storage": hashlib.sha256(b"abc").hexdigest()}
        ]})).encode(),
        **{hashlib.sha256(b"abc").hexdigest(): b"abc"},
    ),
    "no JSON": entries(document=b"{nope"),
    "no object": entries(document=b"[]"),
    "nested JSON": entries(document=b"[" * 100_000),
    "a key twice": entries(document=b'{"format": 1, "format": 1}'),
    "not a number": entries(document=json.dumps(document(provenance={"x": float("nan")})).encode()),
    "another version": sent(format=2),
    "a field too many": entries(document=json.dumps({**document(), "more": 1}).encode()),
    "code instead of a target": sent(case={**to_json(SIN), "backend": {"name": "x", "module": "os; print(1)"}}),
    "a failure of no kind": sent(failure={"kind": "odd", "phase": "compile"}),
    "a failure that is a list": sent(failure=[]),
    "nodes that are no names": sent(failure={**document()["failure"], "detail": {"nodes": {"a": 5}}}),
    "nested details": sent(failure={**document()["failure"], "detail": NESTED}),
    "nested provenance": sent(provenance=NESTED),
    "provenance that is a text": sent(provenance="train.py"),
    "a reason that is a number": sent(reason=5),
    "neither case nor reason": sent(case=None),
}  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_fxminify_does_not_send_leaves_no_trace(served: Served, body: bytes) -> None:
    before = rows(served.index)
    for sent, headers in ((body, {}), (gzip.compress(body), {"Content_Encoding": "gzip"})):
        answer = served.upload(sent, **headers)
        assert answer.status == 422
        assert "\n" not in answer.detail
        assert 10 < len(answer.detail) <= 500
    assert (rows(served.index), served.left()) == (before, [])
    assert served.get("/bugs").status == 200


def test_what_it_sends_is_taken(served: Served) -> None:
    """The bodies above are refused for what is wrong with them."""
    assert served.upload(sent()).status == 201


def bomb() -> Iterator[bytes]:
    """100 MB of zeros in 100 kB."""
    packer = zlib.compressobj(9, wbits=31)
    for _ in range(100):
        if data := packer.compress(bytes(1 << 20)):
            yield data
    yield packer.flush()


@pytest.fixture
def narrow(place: str, tmp_path: Path) -> Iterator[Served]:
    """A server that takes uploads of a megabyte."""
    with serving(place, tmp_path / "uploads", replace(OPTIONS, max_upload=1 << 20)) as served:
        yield served


@pytest.mark.parametrize(
    ("make", "headers", "status", "says"),
    [
        (lambda: itertools.repeat(bytes(1 << 16), 1600), {}, 413, "larger than 1,048,576 bytes"),
        (lambda: b"x", {"Content_Length": str(1 << 40)}, 413, "larger than 1,048,576 bytes"),
        (bomb, {"Content_Encoding": "gzip"}, 413, "larger than 1,048,576 bytes"),
        (lambda: b"no gzip", {"Content_Encoding": "gzip"}, 400, "not compressed with gzip"),
        (lambda: gzip.compress(bytes(9999))[:-9], {"Content_Encoding": "gzip"}, 400, "cut short"),
        (lambda: gzip.compress(b"a") + b"b", {"Content_Encoding": "gzip"}, 400, "more follows"),
        (lambda: b"x", {"Content_Encoding": "br"}, 415, "compressed with gzip"),
        (lambda: b"x", {"Idempotency_Key": "short"}, 422, "Idempotency-Key"),
        (lambda: b"x", {"Idempotency_Key": "../../etc/passwd"}, 422, "Idempotency-Key"),
    ],
    ids=["no length", "a length", "a bomb", "no gzip", "half", "more", "brotli", "a short key", "a path as key"],
)
def test_a_body_that_is_no_upload_is_refused_while_it_is_read(
    narrow: Served, make: Callable[[], Any], headers: dict[str, str], status: int, says: str
) -> None:
    given = {"Idempotency_Key": "a-good-key", **headers}
    answer = narrow.post("/captures", make(), **given)
    assert (answer.status, says in answer.detail) == (status, True), answer.body
    assert (rows(narrow.index)["captures"], narrow.left()) == (0, [])


def test_other_bodies_have_a_limit_of_their_own(served: Served) -> None:
    long = [{"key": "a" * 8, "identity": IDENTITY, "times": 1}]
    assert served.post("/captures/known", long * 200).status == 200
    assert served.post("/captures/known", long * 201).status == 422
    for body in (b" " * (2 << 20), itertools.repeat(b" " * 65536, 200)):
        answer = served.post("/captures/known", body, Content_Type="application/json")
        assert answer.status == 413
        assert "1,048,576" in answer.detail


def test_a_sender_that_stops_in_the_middle_leaves_nothing(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "SLOWEST", 0.5)
    body = body_of(tmp_path, SIN, BOOM)
    ended = threading.Event()

    def halting() -> Iterator[bytes]:
        yield body[:100]
        ended.wait(20)

    thread = threading.Thread(target=lambda: answers.append(served.upload(halting())))
    answers: list[Any] = []
    thread.start()
    while not served.left():
        assert thread.is_alive()
    while served.left():
        assert thread.is_alive()
    ended.set()
    thread.join()
    assert rows(served.index)["captures"] == 0


def test_too_many_uploads_at_a_time_are_told_to_come_again(served: Served, tmp_path: Path) -> None:
    for _ in range(UPLOADS):
        served.service.uploads.acquire()
    answer = served.upload(body_of(tmp_path, SIN, BOOM))
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    served.service.uploads.release()
    assert served.upload(body_of(tmp_path, SIN, BOOM)).status == 201


@pytest.mark.parametrize("moment", ["made", "written"])
def test_without_space_for_it_an_upload_is_told_to_come_again(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    make = tempfile.NamedTemporaryFile

    def fail(*given: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(**given: Any) -> Any:
        file: Any = make(**given)
        file.write = fail
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fail if moment == "made" else full)
    answer = served.upload(body_of(tmp_path, SIN, BOOM))
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert "no space is left" in answer.detail
    assert str(served.folder) not in answer.detail
    assert served.get("/status").json["state"] == "full"
    assert served.left() == []
    monkeypatch.setattr(served.service.disk, "_full_until", 0.0)  # a while later
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", make)
    assert served.upload(body_of(tmp_path, SIN, BOOM)).status == 201


# Trust.


def test_what_comes_from_the_own_user_is_theirs_behind_a_server_as_well(served: Served, tmp_path: Path) -> None:
    tag = origin_tag(pack(SIN)[0], IDENTITY)
    served.upload(body_of(tmp_path, SIN, BOOM, origin=tag, maker=maker()))
    assert served.index.stored(1).ours
    assert f"maker={maker()}" in served.index.tasks.get(1).needs.split()


@pytest.mark.parametrize("lie", [{"origin": "0" * 64}, {"provenance": {"origin": "x", "maker": "y"}}, {"maker": "a b"}])
def test_what_only_says_so_is_not(served: Served, tmp_path: Path, lie: dict[str, Any]) -> None:
    served.upload(body_of(tmp_path, SIN, BOOM, **{"maker": maker(create=True), **lie}))
    assert not served.index.stored(1).ours


def test_a_token_may_have_what_it_sends_run_by_those_who_know_the_key(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "_accepted", set())
    _, text = served.index.tokens.new("ci", [TokenScope.SUBMIT, TokenScope.RUN])
    trusted = replace(served, token=text)
    assert trusted.upload(body_of(tmp_path, SIN, BOOM)).status == 201
    public = replace(served).get("/status").json["key"]
    assert f"signer={public}" in served.index.tasks.get(1).needs.split()
    tag = served.index.captures.get(1).provenance["origin"]
    document = pack(SIN)[0]
    assert not served.index.stored(1).ours
    signatures.accept(["0" * 63 + "1"])
    assert not served.index.stored(1).ours
    signatures.accept([public])
    assert served.index.stored(1).ours
    assert is_ours(document, IDENTITY, tag)
    assert not is_ours("0" * 64, IDENTITY, tag)
    assert not is_ours(document, "0" * 64, tag)
    assert not is_ours(document, IDENTITY, tag[:-1] + ("0" if tag[-1] != "0" else "1"))
    with pytest.raises(StoreError, match="is no public key"):
        signatures.accept(["nope"])


def test_a_failure_as_long_as_it_likes_is_stored(served: Served, tmp_path: Path) -> None:
    """Text of every kind, as a database refuses it."""
    odd = Failure(BOOM.kind, BOOM.phase, "E", "\0 \ud800 \u202e" + "x" * (1 << 20))
    assert served.upload(body_of(tmp_path, SIN, odd)).status == 201
    assert served.get("/bugs/1").status == 200
