"""The index as its users see it: captures, occurrences, reductions, scripts."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from index_tasks import add, boom, small_case
from sqlalchemy import create_engine

from fxminify.store.document.case import Node
from fxminify.store.errors import without_password
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, State, StoreError
from fxminify.store.index.changes import Changes
from fxminify.store.index.tables import SCHEMA, Base
from fxminify.store.signature import signature


def test_a_capture_comes_back_whole(path: str) -> None:
    case, blobs = small_case(content=bytes(range(16)))
    failure = Failure(
        FailureKind.RUNTIME_ERROR, Phase.FORWARD, "ValueError", "no\nmore", causes=(("KeyError", "x"),), signal=6
    )
    with Index.open(path, create=True) as index:
        id = add(index, case, blobs, failure=failure, signature=signature(failure), provenance={"argv": ["a", "b"]})
    with Index.open(path, readonly=True) as index:
        info = index.captures.get(id)
        assert index.captures.case(id) == case
        assert dict(index.blobs.view(case.storages)) == blobs
        assert index.captures.get(id).failure == failure
        assert index.captures.signature(id) == signature(failure)
    assert (info.id, info.parent, info.state, info.occurrences) == (1, None, State.PENDING, 1)
    assert (info.kind, info.phase, info.backend) == ("runtime_error", "forward", "inductor")
    assert (info.nodes_before, info.inputs_before, info.nodes_after, info.verified) == (1, 1, None, 0)
    assert (info.headline, info.provenance) == ("ValueError: no: x", {"argv": ["a", "b"]})
    assert info.signature == signature(failure).digest


def test_a_closed_file_is_one_file(path: str) -> None:
    with Index.open(path, create=True) as index:
        add(index, *small_case())
    assert os.listdir(Path(path).parent) == ["repro.db"]


def test_the_same_failure_again_is_counted_and_the_first_case_kept(index: Index) -> None:
    first, blobs = small_case(content=bytes(16))
    assert add(index, first, blobs) == 1
    other_values, other_blobs = small_case(content=b"\1" * 16)
    moved = replace(
        other_values, graph=replace(first.graph, nodes=tuple(replace(n, meta={}) for n in first.graph.nodes))
    )
    assert add(index, moved, other_blobs) == 1
    assert index.captures.get(1).occurrences == 2
    assert index.captures.case(1) == first
    with pytest.raises(StoreError, match="has no storage"):
        index.blobs.view(moved.storages)[next(iter(moved.storages))]


@pytest.mark.parametrize("what", ["backend", "graph", "shape", "signature"])
def test_another_failure_is_another_capture(index: Index, what: str) -> None:
    case, blobs = small_case()
    assert add(index, case, blobs) == 1
    if what == "backend":
        assert add(index, *small_case(backend="onnxrt")) == 2
    elif what == "graph":
        node = Node("extra", "call_function", {"fn": "torch.relu"}, ({"ref": "relu"},))
        nodes = (*case.graph.nodes[:-1], node, case.graph.nodes[-1])
        assert add(index, replace(case, graph=replace(case.graph, nodes=nodes)), blobs) == 2
    elif what == "shape":
        assert add(index, *small_case(5)) == 2
    else:
        assert add(index, case, blobs, "another thing") == 2
    assert [c.occurrences for c in index.captures.find()] == [1, 1]


def test_where_a_backend_was_found_does_not_make_it_another(index: Index) -> None:
    case, blobs = small_case()
    for place in ("/home/a", "/home/b"):
        assert add(index, replace(case, backend={"name": "mine", "search_path": [place]}), blobs) == 1


def test_a_graph_that_cannot_be_stored_is_a_capture_with_the_reason(index: Index) -> None:
    nothing: Any = None
    more: dict[str, Any] = {
        "provenance": {"backend": "inductor"},
        "graph_text": "def forward(self): ...",
        "reason": "node 'f': no name",
    }
    assert add(index, nothing, {}, **more) == 1
    assert add(index, nothing, {}, **more) == 1
    info = index.captures.get(1)
    assert (info.state, info.reason, info.backend) == (State.UNSUPPORTED, "node 'f': no name", "inductor")
    assert (info.nodes_before, info.occurrences, info.graph_text) == (None, 2, "def forward(self): ...")
    with pytest.raises(StoreError, match="node 'f': no name"):
        index.captures.case(1)


def test_a_child_names_its_parent(index: Index) -> None:
    add(index, *small_case())
    assert index.captures.get(add(index, *small_case(), "second bug", parent=1)).parent == 1
    with pytest.raises(StoreError, match=r"has no capture 7: `minify list .*repro\.db`"):
        add(index, *small_case(), "third bug", parent=7)
    assert len(index.captures.find()) == 2


def test_captures_by_id_and_state(index: Index) -> None:
    for width in (1, 2, 3):
        add(index, *small_case(width))
    index.captures.set_state(2, State.BLOCKED, "install foo")
    assert [c.id for c in index.captures.find()] == [1, 2, 3]
    assert [c.id for c in index.captures.find([3, 1])] == [1, 3]
    assert [c.id for c in index.captures.find(states=[State.PENDING])] == [1, 3]
    assert [(c.id, c.reason) for c in index.captures.find(states=[State.BLOCKED])] == [(2, "install foo")]
    for unknown in (4, -1, 10**30):
        with pytest.raises(StoreError, match=f"has no capture {unknown}:"):
            index.captures.find([1, unknown])


def test_text_that_databases_refuse_is_escaped(index: Index) -> None:
    failure = replace(boom("bad \udc80\0 text"), detail={"error": float("nan"), "of": {1, 2}})
    add(index, *small_case(), failure=failure, signature=signature(failure))
    info = index.captures.get(1)
    assert info.headline == "RuntimeError: bad \\udc80\\x00 text"
    assert info.failure is not None
    assert info.failure.message == "bad \udc80\0 text"
    assert info.failure.detail == {"error": "nan", "of": [1, 2]}


def test_a_case_that_contradicts_its_blobs_is_refused(index: Index) -> None:
    case, blobs = small_case()
    with pytest.raises(ValueError, match="did not come with it"):
        add(index, case, {})
    with pytest.raises(ValueError, match="sha256 of its bytes"):
        add(index, case, dict.fromkeys(blobs, b"x"))
    assert index.captures.find() == []


def test_large_storages_lie_beside_the_file(path: str) -> None:
    data = os.urandom(4096)
    key = hashlib.sha256(data).hexdigest()
    with Index.open(path, create=True, inline_limit=1000) as index:
        add(index, *small_case(1024, data))
        assert index.blobs.view([key])[key] == data
    file = Path(f"{path}.blobs", key[:2], key)
    assert file.read_bytes() == data
    assert [p.name for p in file.parent.iterdir()] == [key]


def test_storages_that_shrink_are_compressed(path: str) -> None:
    with Index.open(path, create=True) as index:
        add(index, *small_case(1 << 20))
    assert os.path.getsize(path) < 400_000


def test_a_reduction_is_resumed_with_the_same_configuration_only(index: Index) -> None:
    add(index, *small_case())
    first = index.reductions.begin(1, {"match": "exact", "seed": 0})
    index.verdicts.asked(first.id, "a", "nodes")
    again = index.reductions.begin(1, {"seed": 0, "match": "exact"})
    assert (again.id, first.resumed, again.resumed) == (first.id, False, True)
    other = index.reductions.begin(1, {"match": "any"})
    assert (other.id, other.resumed) == (first.id + 1, False)
    index.reductions.finish(first.id, queries=3, nodes_before=9, nodes_after=2, seconds=1.5)
    assert index.reductions.begin(1, {"match": "exact", "seed": 0}).id == other.id + 1
    with pytest.raises(StoreError, match="has no capture 2:"):
        index.reductions.begin(2, {})


def test_only_answered_questions_are_verdicts(index: Index) -> None:
    add(index, *small_case())
    id = index.reductions.begin(1, {}).id
    index.verdicts.asked(id, "a", "nodes")
    index.verdicts.asked(id, "b", "inputs")
    assert index.verdicts.find(id) == {}
    index.verdicts.answered(id, "a", "other", "v1:abc", 0.25, "why")
    index.verdicts.asked(id, "a", "nodes")
    (verdict,) = index.verdicts.find(id).values()
    assert (verdict.key, verdict.pass_name, verdict.outcome, verdict.signature) == ("a", "nodes", "other", "v1:abc")
    assert (verdict.seconds, verdict.detail, verdict.asks) == (0.25, "why", 2)
    with pytest.raises(ValueError, match="never asked"):
        index.verdicts.answered(id, "c", "pass", None, 0.0, "")
    with pytest.raises(StoreError, match="has no reduction 9:"):
        index.verdicts.asked(9, "a", "nodes")


@pytest.mark.parametrize("inline_limit", [1 << 20, 10])
def test_the_best_case_replaces_the_one_before_it_and_its_storages(path: str, inline_limit: int) -> None:
    with Index.open(path, create=True, inline_limit=inline_limit) as index:
        start, start_blobs = small_case(64, os.urandom(256))
        add(index, start, start_blobs)
        reduction = index.reductions.begin(1, {})
        assert index.best(reduction) is None
        index.reductions.accept(reduction.id, start, start_blobs)
        middle, middle_blobs = small_case(32, os.urandom(128))
        last, last_blobs = small_case(16, os.urandom(64))
        index.reductions.accept(reduction.id, middle, middle_blobs)
        index.reductions.accept(reduction.id, last, last_blobs)
        assert index.best(reduction) == index.best(index.captures.get(1)) == last
        assert index.captures.case(1) == start
        assert dict(index.blobs.view(start.storages | last.storages)) == start_blobs | last_blobs
        with pytest.raises(StoreError, match="has no storage"):
            index.blobs.view(middle.storages)[next(iter(middle.storages))]
    beside = {p.name for p in Path(f"{path}.blobs").rglob("*") if p.is_file()}
    assert beside == (start.storages | last.storages if inline_limit == 10 else set())


def test_a_listing_shows_the_last_finished_reduction_and_the_script(index: Index) -> None:
    add(index, *small_case())
    done = index.reductions.begin(1, {"run": 1})
    index.reductions.accept(done.id, *small_case(1))
    index.reductions.finish(done.id, queries=17, nodes_before=1, nodes_after=1, seconds=2.0)
    index.reductions.accept(index.reductions.begin(1, {"run": 2}).id, *small_case(2))
    index.repros.save(1, "script", "raise 1", verified=1, runs=3, log="")
    index.repros.save(1, "script", "raise 2", verified=3, runs=3, log="ok")
    index.repros.save(1, "pytest", "def test(): ...", verified=0, runs=0, log="")
    info = index.captures.get(1)
    assert (info.queries, info.nodes_after, info.inputs_after, info.verified, info.runs) == (17, 1, 1, 3, 3)
    script = index.repros.get(1, "script")
    assert script is not None
    assert (script.text, script.verified, script.log) == ("raise 2", 3, "ok")
    assert index.repros.get(1, "issue") is None
    assert index.best(info) == small_case(1)[0]


def test_scripts_that_are_forgotten_leave_nothing(index: Index) -> None:
    start, blobs = small_case()
    add(index, start, blobs)
    smaller, values = small_case(1)
    index.repros.save(1, "script", "raise 1", verified=1, runs=1, log="", case=smaller, blobs=values)
    index.repros.save(1, "pytest", "def test(): ...", verified=0, runs=0, log="")
    index.repros.forget(1)
    assert (index.repros.get(1, "script"), index.repros.get(1, "pytest")) == (None, None)
    assert index.best(index.captures.get(1)) is None
    assert index.captures.case(1) == start
    for gone in smaller.storages - start.storages:
        with pytest.raises(StoreError, match="has no storage"):
            index.blobs.view({gone})[gone]


def test_reading_refuses_to_write(path: str) -> None:
    Index.open(path, create=True).close()
    with Index.open(path, readonly=True) as index, pytest.raises(StoreError, match="opened for reading only"):
        index.captures.set_state(1, State.PENDING)


def test_the_migrations_make_what_the_models_say(path: str) -> None:
    Index.open(path, create=True).close()
    with create_engine(f"sqlite:///{path}").connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == SCHEMA


def test_nothing_but_the_one_place_needs_sqlite(path: str) -> None:
    from sqlalchemy.engine import make_url

    from fxminify.store.index.database import open_server

    with Index(open_server(make_url(f"sqlite:///{path}"), create=True, readonly=False)) as index:
        case, blobs = small_case(1024, os.urandom(4096))
        assert [add(index, case, blobs) for _ in range(2)] == [1, 1]
        reduction = index.reductions.begin(1, {})
        index.verdicts.asked(reduction.id, "a", "nodes")
        index.reductions.accept(reduction.id, *small_case(1))
        assert dict(index.blobs.view(case.storages)) == blobs
        assert index.captures.find()[0].occurrences == 2


@pytest.mark.parametrize("url", ["nosuch://user:secret@host/db", "postgresql+nosuch://user:secret@host/db"])
def test_a_url_that_cannot_be_opened_is_named_without_its_password(url: str) -> None:
    with pytest.raises(StoreError) as error:
        Index.open(url)
    assert "host/db" in str(error.value)
    assert "secret" not in str(error.value)


def test_where_the_driver_is_missing_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        StoreError, match=r"^postgresql\+psycopg://user@host/db cannot be opened here .*psycopg"
    ) as error:
        Index.open("postgresql+psycopg://user@host/db")
    assert str(error.value).endswith(": pip install 'fxminify[postgres]'")


@pytest.mark.parametrize(
    "given", ["postgresql+psycopg://user:se:cr/et@host:5432/db", "postgresql://user@host/db", "a:b@c.db"]
)
def test_no_hint_shows_a_password(given: str) -> None:
    assert without_password(given) == given.replace("se:cr/et", "***")


@pytest.mark.process
def test_the_index_needs_no_torch() -> None:
    code = "import sys, fxminify.store.index; assert 'torch' not in sys.modules and 'alembic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_aliasing_is_another_graph(index: Index) -> None:
    case, blobs = small_case(content=bytes(16))
    other, other_blobs = small_case(content=b"\1" * 16)
    (spec,), (other_spec,) = case.tensors, other.tensors
    assert add(index, replace(case, tensors=(spec, spec)), blobs) == 1
    assert add(index, replace(case, tensors=(spec, other_spec)), blobs | other_blobs) == 2
    assert add(index, replace(case, tensors=(other_spec, spec)), blobs | other_blobs) == 2


def test_an_accepted_case_may_come_from_the_index_itself(path: str) -> None:
    """The new best case may share storages with the old one, read lazily while it replaces it."""
    with Index.open(path, create=True, inline_limit=10) as index:
        add(index, *small_case(8, os.urandom(32)))
        reduction = index.reductions.begin(1, {})
        case, blobs = small_case(4, os.urandom(16))
        index.reductions.accept(reduction.id, case, blobs)
        smaller = replace(case, graph=replace(case.graph, training=True))
        index.reductions.accept(reduction.id, smaller, index.blobs.view(case.storages))
        assert dict(index.blobs.view(smaller.storages)) == blobs


def test_a_listing_can_be_narrowed_and_read_by_pages(index: Index) -> None:
    case, blobs = small_case()
    ids = [add(index, case, blobs, f"no {letter}") for letter in "abcde"]
    index.captures.set_state(ids[1], State.VERIFIED)
    digests = [row.signature for row in index.captures.find()]

    def found(*args: Any, **narrowed: Any) -> list[int]:
        return [row.id for row in index.captures.find(*args, **narrowed)]

    assert found() == ids
    assert found(states=[State.VERIFIED]) == ids[1:2]
    assert found(ids[:2], [State.PENDING]) == ids[:1]
    assert found(signatures=[digests[2], digests[4], "0" * 32]) == [ids[2], ids[4]]
    assert found(backend="inductor") == ids
    assert found(backend="eager") == []
    assert [found(limit=2), found(after=ids[1], limit=2), found(after=ids[4], limit=2)] == [ids[:2], ids[2:4], []]
    assert found(limit=0) == []
    assert index.captures.known([digests[0], "0" * 32]) == {digests[0]}


def test_what_was_seen_since_is_what_changed(path: str) -> None:
    changes = Changes(path)
    assert (changes.ids(), changes.rows()) == ([], [])
    case, blobs = small_case()
    with Index.open(path, create=True) as index:
        first = add(index, case, blobs, "no a")
        assert [changes.is_new(row) for row in changes.rows()] == [True]
        later = Changes(path)
        second = add(index, case, blobs, "no b")
        assert add(index, case, blobs, "no a") == first
        assert index.captures.seen_since("2000-01-01") == {first: 2, second: 1}
        assert index.captures.seen_since("3000-01-01") == {}
    assert later.ids() == [first, second]
    assert [later.is_new(row) for row in later.rows()] == [False, True]
