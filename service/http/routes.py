"""The routes of `minify serve`. Each asks the index for one thing; its tags are the scopes of which it needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import prometheus_client
from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from ... import __version__
from ...minifier.reporting.gathering import gather
from ...minifier.reporting.report import CaptureReport
from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.failure import FailureKind
from ...store.index import (
    BugInfo,
    BugStatus,
    CaptureInfo,
    Regrouped,
    State,
    TaskInfo,
    TaskState,
    TokenScope,
    queue,
)
from ...store.index.arrivals import Arrival, Stored
from ...store.index.bug_labels import named
from ...store.index.bugs import BugFilter, Sighting
from ...store.privacy import private_json
from .access import OPEN
from .caller import Caller, Refused
from .disk import DiskState
from .intake import SentBefore, another_body, arrived, store
from .script import of_bug
from .service import Service
from .stream import events as event_stream

SUBMIT, READ, TRIAGE, WORK = (
    scope.value for scope in (TokenScope.SUBMIT, TokenScope.READ, TokenScope.TRIAGE, TokenScope.WORK)
)
#: Rows of one page, at most.
PAGE = 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """The body of every answer but 2xx: one sentence."""

    detail: str


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the server takes captures: ``state`` is of its disk, ``sentence`` says what to do, empty if nothing."""

    version: str
    state: DiskState
    sentence: str
    max_upload: int
    key: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of an upload. ``bug`` is None for a capture of an index that was upgraded."""

    capture: int
    bug: int | None
    occurrences: int


@dataclass(frozen=True, slots=True)
class SeenAgain:
    """Occurrences of a capture that may be known. ``identity`` comes from `fxminify.store.recording`."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
    identity: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    times: Annotated[int, Field(ge=1, le=1 << 31)]
    torch: Annotated[str, Field(max_length=100)] = ""
    python: Annotated[str, Field(max_length=100)] = ""


@dataclass(frozen=True, slots=True)
class Known:
    """The capture that an occurrence was counted for, or None if it is unknown."""

    key: str
    capture: int | None


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """A worker that is alive: what it can do, and its process in words."""

    id: int
    name: str
    process: str
    can: list[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """A task, and the state that it has now."""

    task: int
    state: TaskState


@dataclass(frozen=True, slots=True)
class Merge:
    """The bug ``into`` which another is merged. With ``preview`` nothing is changed."""

    into: Annotated[int, Field(ge=1, lt=1 << 31)]
    preview: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """The duplicate ``bug`` that becomes a bug of its own again. With ``preview`` nothing is changed."""

    bug: Annotated[int, Field(ge=1, lt=1 << 31)]
    preview: bool = False


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The new status of a bug. An ignored one is open again after ``more`` further occurrences, if that is given."""

    status: Literal[BugStatus.OPEN, BugStatus.IGNORED, BugStatus.OBSOLETE]
    more: Annotated[int | None, Field(ge=1, le=1 << 31)] = None


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Labels that are put on a bug, and others that are taken off it. Each has 1 to 50 characters: letters a to z,
    digits and ``. _ : / + -``."""

    add: Annotated[Sequence[str], Field(max_length=100)] = ()
    remove: Annotated[Sequence[str], Field(max_length=100)] = ()


#: Further answers of all routes.
REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Refusal} for code in (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
}
#: An event of a stream.
_EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
    "required": ["id", "event", "data"],
}
#: The text format of Prometheus.
METRICS = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
_METRICS = {METRICS.partition(";")[0]: {"schema": {"type": "string"}}}


class MaskedJSON(JSONResponse):
    """An answer without what is private in its texts."""

    def render(self, content: Any) -> bytes:
        return super().render(private_json(content))


router = APIRouter(prefix="/api/v1", responses=REFUSALS, default_response_class=MaskedJSON)
probes = APIRouter(responses={503: {"model": Refusal}})


async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


Served = Annotated[Service, Depends(_service)]
Asking = Annotated[Caller, Depends(_caller)]
Id = Annotated[int, Path(ge=1, lt=1 << 31)]
After = Annotated[int, Query(ge=0, lt=1 << 31, description="The last id of the page before.")]
Limit = Annotated[int, Query(ge=1, le=PAGE)]
Key = Annotated[str, Header(alias="Idempotency-Key", pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Digest = Annotated[
    str,
    Header(
        alias="Fxminify-Digest", pattern=r"^([0-9a-f]{64})?$",
        description="The sha256 of the body before compression: what was sent before need not be sent to its end.",
    ),
]  # fmt: skip


@probes.get("/healthz", tags=[OPEN])
def is_alive() -> dict[Literal["status"], Literal["ok"]]:
    """Whether the process answers."""
    return {"status": "ok"}


@probes.get("/readyz", tags=[OPEN])
def is_ready(served: Served) -> dict[Literal["status"], DiskState]:
    """Whether the index answers, and whether there is space: a full disk only ends writing."""
    served.index.events.last()
    return {"status": served.disk.state()}


@probes.get(
    "/metrics", tags=[READ], response_class=PlainTextResponse, responses=REFUSALS | {200: {"content": _METRICS}}
)
def metrics(served: Served) -> Response:
    """Counts for Prometheus."""
    return Response(prometheus_client.generate_latest(served.metrics.registry), media_type=METRICS)


@router.get("/status", tags=[READ, SUBMIT])
def status(served: Served) -> Status:
    """Return the state of the server for senders, and the public key that it signs with."""
    disk, options = served.disk, served.options
    try:
        key = served.signer.public
    except StoreError:
        key = ""
    return Status(__version__, disk.state(), disk.sentence(), options.max_upload, key)


@router.post(
    "/captures",
    tags=[SUBMIT],
    name="submit_capture",
    status_code=201,
    responses={200: {"model": Submitted}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A capture as `fxminify.store.spool.upload` writes it, also compressed with gzip.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def submit_capture(
    request: Request, response: Response, served: Served, asking: Asking, key: Key, digest: Digest = ""
) -> Submitted:
    """Store a capture, or count one more occurrence: 200 where it is known. The same key never counts twice, and is
    refused with another body (409)."""
    try:
        async with arrived(request, served, key, digest) as body:
            stored = await store(served, body, asking, key)
    except SentBefore as known:
        info = await run_in_threadpool(served.index.captures.get, known.capture)
        stored = Stored(info.id, info.bug, info.occurrences)
    response.status_code = 201 if stored.occurrences == 1 else 200
    return Submitted(stored.capture, stored.bug, stored.occurrences)


@router.post("/captures/known", tags=[SUBMIT])
async def count_known(served: Served, seen: Annotated[list[SeenAgain], Body(max_length=PAGE)]) -> list[Known]:
    """Count occurrences of captures that are known here. What is not must be sent whole."""
    arrivals = [
        Arrival(
            identity=one.identity,
            provenance={"torch": one.torch, "python": one.python},
            times=one.times,
            key=one.key,
        )
        for one in seen
    ]
    stored = await asyncio.wrap_future(served.storing.ask(arrivals))
    if any(found is not None and found.conflict for found in stored):
        raise another_body()
    return [Known(one.key, None if found is None else found.capture) for one, found in zip(seen, stored, strict=True)]


@router.get("/captures", tags=[READ])
def captures(served: Served, after: After = 0, limit: Limit = PAGE) -> list[CaptureInfo]:
    """A page of captures, by id."""
    return served.index.captures.find(after=after, limit=limit)


@router.get("/captures/{id}", tags=[READ])
def capture(served: Served, id: Id) -> CaptureReport:
    """Return the report of a capture: all that is known about it."""
    return gather(served.index, id)


@router.get("/bugs", tags=[READ])
def bugs(
    served: Served,
    status: Annotated[list[BugStatus] | None, Query(description="Without it, all but duplicates.")] = None,
    text: Annotated[str, Query(max_length=200, description="A part of what a list says of it, or #ID.")] = "",
    kind: FailureKind | None = None,
    backend: Annotated[str, Query(max_length=1000)] = "",
    state: Annotated[State | None, Query(description="Of one of its captures.")] = None,
    label: Annotated[list[str] | None, Query(max_length=20, description="It has all of these.")] = None,
    after: After = 0,
    limit: Limit = PAGE,
) -> list[BugInfo]:
    """A page of bugs, by id."""
    wanted = BugFilter(text, kind or "", backend, state, status or (), label or ())
    return served.index.bugs.page(after=after, limit=limit, wanted=wanted)


@router.get("/bugs/{id}", tags=[READ])
def bug(served: Served, id: Id) -> BugInfo:
    """Return a bug."""
    return served.index.bugs.get(id)


@router.get("/bugs/{id}/sightings", tags=[READ])
def sightings(served: Served, id: Id) -> list[Sighting]:
    """When a bug was seen, and with which versions, by day."""
    return served.index.bugs.sightings(id)


@router.get(
    "/bugs/{id}/script",
    tags=[READ],
    responses={200: {"content": {"text/plain": {}, "application/zip": {}}}},
)
def script(served: Served, id: Id, format: Annotated[str, Query(max_length=100)] = "script") -> Response:
    """The smallest verified script of a bug, or another format of the same case; a zip where it needs a file beside."""
    found = of_bug(served.index, id, format)
    return Response(found.content("repro.py"), media_type=found.media_type)


@router.post("/bugs/{id}/reduce", tags=[TRIAGE])
def reduce(served: Served, asking: Asking, id: Id) -> Changed:
    """Queue the first capture of a bug again, whatever became of it."""
    first = served.index.bugs.get(id).ids[:1]
    if not first:
        raise Refused(409, f"bug {id} has no captures: they are counted under another bug")
    task = served.index.tasks.add(first[0], config={"again": True}, actor=asking.name)
    return Changed(task, TaskState.QUEUED)


@router.post("/bugs/{id}/retest", tags=[TRIAGE])
def retest(served: Served, asking: Asking, id: Id) -> Changed:
    """Queue a retest of a bug, by any worker that has its backend: its script is run, and its captured graph."""
    capture = served.index.bugs.with_script(id)
    if capture is None:
        raise Refused(409, f"bug {id} has no verified script yet")
    task = served.index.tasks.add(capture, kind=queue.RETEST, actor=asking.name)
    return Changed(task, TaskState.QUEUED)


@router.post("/bugs/{id}/merge", tags=[TRIAGE])
def merge(served: Served, asking: Asking, id: Id, asked: Merge) -> Regrouped:
    """Make a bug a duplicate of another one: its captures, also those to come, are counted there."""
    return served.index.triage.merge(id, asked.into, preview=asked.preview, actor=asking.name)


@router.post("/bugs/{id}/split", tags=[TRIAGE])
def split(served: Served, asking: Asking, id: Id, asked: Split) -> Regrouped:
    """Take a duplicate out of a bug: what was merged, and what has followed since, is a bug of its own again."""
    if asked.bug not in served.index.bugs.get(id).merged:
        raise Refused(409, f"bug {asked.bug} is no duplicate of bug {id}")
    return served.index.triage.split(asked.bug, preview=asked.preview, actor=asking.name)


@router.post("/bugs/{id}/status", tags=[TRIAGE])
def set_status(served: Served, asking: Asking, id: Id, asked: SetStatus) -> BugInfo:
    """Ignore a bug, for good or for a number of occurrences; mark it as obsolete until it occurs again; or open it."""
    served.index.triage.set(id, asked.status, more=asked.more, actor=asking.name)
    return served.index.bugs.get(id)


@router.post("/bugs/{id}/labels", tags=[TRIAGE])
def set_labels(served: Served, asking: Asking, id: Id, asked: SetLabels) -> BugInfo:
    """Put labels on a bug, and take others off it and its duplicates."""
    try:
        if not named([*asked.add, *asked.remove]):
            raise Refused(422, "name labels to add or to remove, such as needs-owner")
    except StoreError as error:
        raise Refused(422, str(error)) from error
    served.index.triage.label(id, add=asked.add, remove=asked.remove, actor=asking.name)
    return served.index.bugs.get(id)


@router.get("/tasks", tags=[READ])
def tasks(
    served: Served,
    state: Annotated[list[TaskState] | None, Query()] = None,
    after: After = 0,
    limit: Limit = PAGE,
) -> list[TaskInfo]:
    """A page of tasks, by id."""
    return served.index.tasks.page(state or [], after=after, limit=limit)


@router.post("/tasks/{id}/cancel", tags=[WORK])
def cancel(served: Served, asking: Asking, id: Id) -> Changed:
    """End an open task."""
    served.index.tasks.cancel(id, actor=asking.name)
    return Changed(id, TaskState.CANCELLED)


@router.post("/tasks/{id}/retry", tags=[WORK])
def retry(served: Served, asking: Asking, id: Id) -> Changed:
    """Queue a task again."""
    served.index.tasks.retry(id, actor=asking.name)
    return Changed(id, TaskState.QUEUED)


@router.get("/workers", tags=[READ])
def workers(served: Served) -> list[WorkerAnswer]:
    """The workers that are alive."""
    return [WorkerAnswer(w.id, w.name, w.process, sorted(w.can)) for w in served.index.tasks.workers()]


@router.get(
    "/events",
    tags=[READ],
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}},
)
async def events(
    served: Served,
    after: Annotated[int | None, Query(ge=0, lt=1 << 31, description="Without it, what happens from now on.")] = None,
    seconds: Annotated[float, Query(ge=0, le=3600, description="When the stream ends.")] = 3600,
    last: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, lt=1 << 31)] = None,
) -> StreamingResponse:
    """Stream events as server-sent events. A browser that was cut off continues after the last one it received."""
    return await event_stream(served, last if last is not None else after, seconds)


@router.get("/openapi.json", tags=[READ], include_in_schema=False, response_class=JSONResponse)
def description(request: Request) -> Json:
    """This description."""
    found: Json = request.app.openapi()
    return found
