"""Every route of `minify serve`: what it answers, to whom, and that it answers its description."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest
import schemathesis
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from indexes import add, chain, failing, minify
from prometheus_client.parser import text_string_to_metric_families
from reports import fitting
from schemathesis import Case as Question
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import ON_BOTH, OPTIONS, Answer, Served, body_of, serving, with_storage
from starlette.types import Message

from fxminify.service.http.app import described
from fxminify.service.http.routes import probes, router
from fxminify.service.http.service import STREAMS
from fxminify.service.http.stream import events
from fxminify.store.index import Index, State, TaskState, TokenScope
from fxminify.store.index.tables import BugRow, EventRow

#: Every route, with an id that there is.
ROUTES = sorted(
    (method, route.path.replace("{id}", "1"), tuple(map(str, route.tags)))
    for route in [*probes.routes, *router.routes]
    if isinstance(route, APIRoute)
    for method in route.methods or ()
)


def filled(index: Index) -> None:
    """Two bugs, the first of them minified."""
    first = add(index, chain(["relu", "sin"]), failing("no sin"))
    add(index, chain(["cos"]), failing("no cos"))
    minify(index, first, chain(["sin"]), script="import torch\n")


def events_of(answer: Answer) -> list[tuple[int, str, dict[str, Any]]]:
    """Number, kind and data of each event in a stream."""
    found = []
    for block in answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


def test_it_says_what_is_in_the_index(served: Served) -> None:
    filled(served.index)
    assert [bug["headline"] for bug in served.get("/bugs").json] == ["RuntimeError: no sin", "RuntimeError: no cos"]
    assert [bug["id"] for bug in served.get("/bugs?after=1&limit=1").json] == [2]
    bug = served.get("/bugs/1").json
    assert (bug["captures"], bug["nodes_after"], bug["states"]) == (1, 1, {"verified": 1})
    (seen,) = served.get("/bugs/1/sightings").json
    assert (seen["versions"], seen["count"]) == ({"python": "3.11.7", "torch": "2.13.0"}, 1)
    assert [row["state"] for row in served.get("/captures").json] == ["verified", "pending"]
    pending = fitting(served.get("/captures/2").json)
    assert (pending["failure"]["message"], pending["minimal"], pending["absent"]["story"]) == (
        "no cos", None, "it was not minified",
    )  # fmt: skip
    assert fitting(served.get("/captures/1").json)["minimal"]["nodes"] == 1
    script = served.get("/bugs/1/script")
    assert (script.body, script.headers["content-type"]) == (b"import torch\n", "text/plain; charset=utf-8")
    assert "torch.sin" in served.get("/bugs/1/script?format=issue").body.decode()
    assert (served.get("/bugs/2/script").status, served.get("/bugs/2/script").detail) == (
        404, "bug 2 has no verified script yet",
    )  # fmt: skip
    assert served.get("/bugs/1/script?format=x").status == 409
    assert served.get("/workers").json == []


def test_a_script_that_needs_a_file_comes_with_it(served: Served) -> None:
    filled(served.index)
    case, blobs = with_storage(chain(["sin"]), numpy.random.default_rng(1).random(1 << 14, "f4").tobytes())
    served.index.repros.save(1, "script", 'load_file("repro.safetensors")\n', verified=1, runs=1, log="", case=case,
                             blobs=blobs)  # fmt: skip
    answer = served.get("/bugs/1/script")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["repro.py", "repro.safetensors"]


def test_tasks_are_listed_cancelled_and_queued_again(served: Served) -> None:
    filled(served.index)
    found = [(task["kind"], task["state"]) for task in served.get("/tasks?state=queued").json]
    assert found == [("minify", "queued"), ("minify", "queued"), ("ablate", "queued")]
    assert served.post("/tasks/2/cancel").json == {"task": 2, "state": "cancelled"}
    assert served.index.tasks.get(2).state is TaskState.CANCELLED
    assert (served.post("/tasks/2/cancel").status, served.post("/tasks/2/cancel").detail) == (
        409, "task 2 of the index is cancelled: there is nothing to cancel",
    )  # fmt: skip
    assert served.post("/tasks/2/retry").json == {"task": 2, "state": "queued"}
    served.post("/tasks/1/cancel")
    assert served.post("/bugs/1/reduce").json == {"task": 4, "state": "queued"}
    assert served.index.tasks.get(4).config == {"again": True}
    assert served.post("/bugs/1/retest").json == {"task": 5, "state": "queued"}
    assert (served.index.tasks.get(5).kind, "torch=" in served.index.tasks.get(5).needs) == ("retest", False)
    assert served.post("/bugs/1/retest").status == 409
    assert served.post("/bugs/2/retest").detail == "bug 2 has no verified script yet"
    assert (served.post("/bugs/1/reduce").status, served.get("/bugs/7").status) == (409, 404)
    assert served.get("/bugs/7").detail == "there is no bug 7"
    assert served.post("/tasks/9/retry").detail == "there is no task 9"


@ON_BOTH
def test_bugs_are_ignored_merged_and_split(served: Served) -> None:
    filled(served.index)
    ignored = served.post("/bugs/2/status", {"status": "ignored", "more": 3}).json
    assert (ignored["id"], ignored["status"]) == (2, "ignored")
    assert [bug["id"] for bug in served.get("/bugs?status=ignored").json] == [2]
    assert served.post("/bugs/2/status", {"status": "open"}).json["status"] == "open"
    moved = {"bug": 2, "into": 1, "captures": 1, "occurrences": 1}
    assert served.post("/bugs/2/merge", {"into": 1, "preview": True}).json == moved
    assert [bug["id"] for bug in served.get("/bugs").json] == [1, 2]
    assert served.post("/bugs/2/merge", {"into": 1}).json == moved
    (bug,) = served.get("/bugs").json
    assert (bug["ids"], bug["merged"]) == ([1, 2], [2])
    assert served.get("/bugs/2").json["duplicate_of"] == 1
    assert [served.post(f"/bugs/2/{what}", body).status for what, body in [
        ("merge", {"into": 1}), ("reduce", None), ("status", {"status": "obsolete"}), ("split", {"bug": 1}),
    ]] == [409] * 4  # fmt: skip
    assert served.post("/bugs/2/status", {"status": "duplicate"}).status == 422
    assert served.post("/bugs/1/split", {"bug": 3}).detail == "bug 3 is no duplicate of bug 1"
    assert served.post("/bugs/1/split", {"bug": 2}).json == moved | {"into": 2}
    assert [bug["id"] for bug in served.get("/bugs").json] == [1, 2]
    told = [data["text"] for _, kind, data in events_of(served.get("/events?after=0&seconds=0")) if kind == "bug"]
    assert told == ["ignored until it occurs 3 more times", "open", "merged into bug 1", "split from bug 1"]


@ON_BOTH
def test_bugs_are_labelled_and_found_by_their_labels(served: Served) -> None:
    filled(served.index)
    assert served.get("/bugs/1").json["labels"] == []
    asked = {"add": ["P1", "needs-owner"], "remove": ["new"]}
    assert served.post("/bugs/2/labels", asked).json["labels"] == ["needs-owner", "p1"]
    assert served.post("/bugs/1/labels", {"add": ["p1"]}).json["labels"] == ["p1"]
    found = {
        query: [(bug["id"], bug["labels"]) for bug in served.get(f"/bugs?{query}").json]
        for query in ("label=p1&limit=1", "label=p1&after=1", "label=P1&label=needs-owner", "label=p", "label=%00")
    }
    both = (2, ["needs-owner", "p1"])
    assert list(found.values()) == [[(1, ["p1"])], [both], [both], [], []]
    assert served.post("/bugs/2/labels", {"remove": ["p1", "x"]}).json["labels"] == ["needs-owner"]
    wrong = served.post("/bugs/2/labels", {"add": ["two words"]})
    assert (wrong.status, wrong.detail) == (
        422,
        "a label has 1 to 50 characters, letters a to z, digits and . _ : / + -, and begins with a letter or a digit: "
        "'two words' is none",
    )
    assert served.post("/bugs/2/labels", {}).detail == "name labels to add or to remove, such as needs-owner"
    other: list[Any] = [{"add": "p1"}, {"add": [1]}, {"add": ["x"] * 101}, [], None]
    assert [served.post("/bugs/2/labels", body).status for body in other] == [422] * 5
    assert served.post("/bugs/2/labels", {"add": ["x"], "remove": ["x"]}).status == 409
    assert served.post("/bugs/9/labels", {"add": ["x"]}).detail == "there is no bug 9"
    assert served.get("/bugs/2").json["labels"] == ["needs-owner"]
    told = [data["text"] for _, kind, data in events_of(served.get("/events?after=0&seconds=0")) if kind == "bug"]
    assert told == ["labelled needs-owner, p1", "labelled p1", "no longer labelled p1"]


def test_prometheus_is_told_what_there_is_and_what_was_asked(served: Served) -> None:
    filled(served.index)
    served.post("/bugs/2/status", {"status": "obsolete"})
    served.get("/bugs/9")
    served.ask("GET", "/nowhere")
    answer = served.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    expected = {
        ("fxminify_bugs", "open"): 1, ("fxminify_bugs", "obsolete"): 1, ("fxminify_captures",): 2,
        ("fxminify_occurrences",): 2, ("fxminify_tasks", "queued"): 3, ("fxminify_workers",): 0,
        ("fxminify_disk", "ok"): 1, ("fxminify_disk", "full"): 0, ("fxminify_requests_total", "set_status", "200"): 1,
        ("fxminify_requests_total", "bug", "404"): 1, ("fxminify_requests_total", "none", "404"): 1,
        ("fxminify_request_seconds_count", "bug"): 1,
    }  # fmt: skip
    assert {name: samples.get(name) for name in expected} == expected


def test_events_go_on_after_the_last_that_was_seen(served: Served) -> None:
    filled(served.index)
    all_ = events_of(served.get("/events?after=0&seconds=0"))
    assert [(id, kind) for id, kind, _ in all_] == [(1, "capture"), (2, "capture"), (3, "verified")]
    assert all_[0][2]["text"] == "RuntimeError: no sin"
    served.post("/tasks/1/cancel")
    later = events_of(served.get("/events?seconds=0", Last_Event_ID="3"))
    assert [(kind, data["text"], data["task"]) for _, kind, data in later] == [("task", "cancelled", 1)]
    assert events_of(served.get("/events?seconds=0")) == []


def test_an_event_whose_number_is_still_missing_is_waited_for(served: Served) -> None:
    filled(served.index)
    with served.index.database.writing() as session:
        session.add(EventRow(id=5, at=5e9, kind="x", text="", actor=""))
    assert [id for id, _, _ in events_of(served.get("/events?after=0&seconds=0"))] == [1, 2, 3]
    with served.index.database.writing() as session:
        session.add(EventRow(id=4, at=5e9, kind="x", text="", actor=""))
    assert [id for id, _, _ in events_of(served.get("/events?after=0&seconds=0"))] == [1, 2, 3, 4, 5]
    with served.index.database.writing() as session:  # one that was rolled back long ago
        session.add(EventRow(id=7, at=1.0, kind="x", text="", actor=""))
    assert [id for id, _, _ in events_of(served.get("/events?after=2&seconds=0"))] == [3, 4, 5, 7]


def test_listeners_that_leave_at_once_give_their_places_back(served: Served) -> None:
    async def leaves() -> Message:
        return {"type": "http.disconnect"}

    async def unheard(message: Message) -> None:
        await asyncio.sleep(0)

    async def leave(stream: StreamingResponse) -> None:
        await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, leaves, unheard)

    async def listen(times: int) -> None:
        for _ in range(times):
            await leave(await events(served.service, after=0, seconds=3600))

    async def open_all() -> list[StreamingResponse]:
        return [await events(served.service, after=0, seconds=3600) for _ in range(STREAMS)]

    with ThreadPoolExecutor(1) as thread:  # in this one a browser may have a loop of its own
        thread.submit(asyncio.run, listen(STREAMS + 1)).result()
        streams = thread.submit(asyncio.run, open_all()).result()
        refused = served.get("/events?seconds=0")
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        for stream in streams:
            thread.submit(asyncio.run, leave(stream)).result()
    assert served.get("/events?seconds=0").status == 200


def test_a_row_that_cannot_be_read_is_a_sentence(served: Served) -> None:
    filled(served.index)
    with served.index.database.writing() as session:
        session.get_one(BugRow, 1).captures = 7
        session.connection().exec_driver_sql("UPDATE captures SET state = 'odd' WHERE id = 1")
    answer = served.get("/captures/1")
    assert answer.status == 500
    assert "holds what fxminify never wrote" in answer.detail
    assert str(served.folder.parent) not in answer.detail
    assert [row["problem"] != "" for row in served.get("/captures").json] == [True, False]


@pytest.fixture
def closed(place: str, tmp_path: Path) -> Iterator[Served]:
    """A server that asks everybody for a token."""
    with serving(place, tmp_path / "uploads", replace(OPTIONS, tokens=True)) as served:
        filled(served.index)
        yield served


def test_every_route_asks_for_a_token_and_for_its_scope(closed: Served) -> None:
    events = closed.index.events.last()
    tokens = {scope: closed.index.tokens.new(scope, [scope])[1] for scope in TokenScope}
    assert {scope for _, _, scopes in ROUTES for scope in scopes} == {"open", "submit", "read", "triage", "work"}
    for method, path, needed in ROUTES:
        query = "?seconds=0" if path.endswith("/events") else ""
        for wrong in ("", "fxm_1_" + "x" * 43, "fxm_99_" + "x" * 43, "x", tokens[TokenScope.READ][:-1]):
            answer = replace(closed, token=wrong).ask(method, f"{path}{query}")
            assert answer.status == (200 if needed == ("open",) else 401), (method, path, wrong)
        for scope, token in tokens.items():
            answer = replace(closed, token=token).ask(method, f"{path}{query}")
            allowed = needed == ("open",) or scope in needed or scope is TokenScope.ADMIN
            assert (answer.status == 403) is not allowed, (method, path, scope, answer.body)
            assert answer.status != 401
    unknown = replace(closed, token="")
    assert {unknown.ask("GET", path).status for path in ("/", "/docs", "/api/v1/nothing", "/openapi.json")} == {401}
    assert unknown.ask("PUT", "/api/v1/bugs").status == 401
    changed = [event.actor for event in closed.index.events.after(events, limit=50) if event.kind == "task"]
    assert set(changed) == {"work", "admin", "triage"}


def test_a_revoked_token_counts_no_more(closed: Served) -> None:
    info, text = closed.index.tokens.new("ci", [TokenScope.READ])
    assert replace(closed, token=text).get("/bugs").status == 200
    closed.index.tokens.revoke(info.id)
    answer = replace(closed, token=text).get("/bugs")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def execute(served: Served, statement: str) -> None:
    """Change the index as a person does who can write to it."""
    served.index.database.write(lambda session: session.connection().exec_driver_sql(statement))


def test_a_row_is_no_right(closed: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes to the index plants a token, gives scopes to one, and undoes that one was revoked."""
    tokens = closed.index.tokens
    own = tokens.new("ci", [TokenScope.READ])[1]
    revoked, old = tokens.new("old", [TokenScope.READ])
    execute(closed, "CREATE TABLE kept AS SELECT * FROM tokens WHERE name = 'old'")
    tokens.revoke(revoked.id)
    planted, digest = "fxm_77_" + "x" * 43, hashlib.sha256(("fxm_77_" + "x" * 43).encode()).hexdigest()
    execute(closed, f"INSERT INTO tokens VALUES (77, 'planted', '{digest}', 'run submit', '2026-01-01', NULL, NULL)")
    execute(closed, "UPDATE tokens SET revoked = NULL WHERE name = 'old'")
    sentence = "this token was not made by the user of this server, or with another key: make a new one as that user"
    answer = replace(closed, token=planted).post("/captures")
    assert (answer.status, answer.detail) == (401, sentence)
    assert replace(closed, token=old).get("/bugs").detail == "this token is not known here, or was revoked"
    execute(closed, "DELETE FROM tokens WHERE name = 'old'")
    execute(closed, "INSERT INTO tokens SELECT * FROM kept")  # as it was before
    assert replace(closed, token=old).get("/bugs").detail == sentence
    assert [(token.name, token.proved) for token in tokens.find()] == [("ci", True), ("old", False), ("planted", False)]
    assert replace(closed, token=own).get("/bugs").status == 200
    for statement in (
        "UPDATE tokens SET scopes = 'admin read run submit' WHERE name = 'ci'",
        "UPDATE tokens SET proof = (SELECT proof FROM tokens WHERE name = 'ci') WHERE id = 77",
    ):
        execute(closed, statement)
        assert [replace(closed, token=text).get("/bugs").status for text in (own, planted)] == [401, 401]
    fresh = tokens.new("new", [TokenScope.READ])[1]
    assert replace(closed, token=fresh).get("/bugs").status == 200
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    assert replace(closed, token=fresh).get("/bugs").detail == sentence


def test_a_row_of_a_token_that_cannot_be_read_stops_no_other(closed: Served) -> None:
    own = closed.index.tokens.new("ci", [TokenScope.READ])[1]
    closed.index.tokens.new("bad", [TokenScope.READ])
    closed.index.database.write(
        lambda session: session.connection().exec_driver_sql("UPDATE tokens SET scopes = 'odd' WHERE name = 'bad'")
    )
    assert closed.index.tokens.check_all([own, "fxm_2_" + "x" * 43])[0] is not None
    assert [bool(token.problem) for token in closed.index.tokens.find()] == [False, True]


def test_the_index_has_no_secret_of_a_token(closed: Served) -> None:
    _, text = closed.index.tokens.new("ci", [TokenScope.READ])
    with closed.index.database.reading() as session:
        rows = session.connection().exec_driver_sql("SELECT * FROM tokens").all()
        told = session.connection().exec_driver_sql("SELECT * FROM events").all()
    assert text.split("_", 2)[2] not in f"{rows}{told}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "evil.example"}, 401),
        ({"Host": "127.0.0.1.evil.example"}, 401),
        ({"X-Forwarded-For": "127.0.0.1"}, 401),
        ({"Forwarded": "for=127.0.0.1"}, 401),
        ({"Via": "1.1 proxy"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Basic eDp4"}, 401),
    ],
)
def test_programs_of_this_machine_are_known_by_what_they_say(
    served: Served, headers: dict[str, str], status: int
) -> None:
    assert replace(served, headers=headers).get("/bugs").status == status


def test_without_a_token_nobody_has_captures_run(served: Served, tmp_path: Path) -> None:
    served.upload(body_of(tmp_path, chain(["sin"]), failing("no sin")))
    assert served.index.tasks.page()[0].needs.split()[-1] == "trust"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_every_route_answers_what_its_description_says(served: Served, tmp_path: Path, examples: int) -> None:
    """Questions that the description allows, and others: never 5xx, always what the description says."""
    filled(served.index)
    good = body_of(tmp_path, chain(["tanh"]), failing("no tanh"))
    description = described(served.service).openapi()
    schema = schemathesis.openapi.from_dict(description)
    asked: set[tuple[str, str]] = set()

    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @hypothesis.settings(
            max_examples=examples, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        @hypothesis.given(question=operation.as_strategy())
        def ask(question: Question[Any]) -> None:
            if question.path.endswith("/events"):
                question.query = {**dict(question.query or {}), "seconds": 0}
            if question.path.endswith("/captures") and question.method == "POST" and question.body:
                question.body = good
            response = question.call(base_url=served.url)
            assert response.status_code < 500, response.text
            question.validate_response(
                response,
                checks=[
                    status_code_conformance, content_type_conformance, response_schema_conformance,
                    response_headers_conformance,
                ],
            )  # fmt: skip
            asked.add((question.method, question.path))

        ask()
    assert asked == {
        (method, route) for route, methods in description["paths"].items() for method in map(str.upper, methods)
    }
    assert served.index.captures.get(1).state is State.VERIFIED
