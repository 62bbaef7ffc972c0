"""The forms of the pages. Each changes one thing and redirects to a page, which can be reloaded safely.

Merging and splitting first show their effect. A form must carry the key that its page got for this caller
(`fxminify.service.http.caller`), whatever origin the browser reports.
"""

from __future__ import annotations

import hmac
import re
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from ...store.index import BugStatus, TokenScope
from ...store.index.sessions import LASTS
from . import routes
from .access import OPEN, why_not
from .caller import COOKIE, Caller, Refused, session_of
from .html import page
from .pages import Id, Text, bug_line
from .routes import TRIAGE, WORK, Asking, Served

#: The most fields of a form.
_FIELDS = 20
_LOCAL = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}\Z")
_STATUSES = {"ignored": BugStatus.IGNORED, "obsolete": BugStatus.OBSOLETE, "open": BugStatus.OPEN}


async def checked(request: Request) -> dict[str, str]:
    """The fields of a form that one of our pages had. Raises `Refused`."""
    caller: Caller = request.state.caller
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_FIELDS))
    except ValueError:
        raise Refused(422, f"a form here has at most {_FIELDS} fields") from None
    if not hmac.compare_digest(fields.pop("key", "").encode(), caller.form_key.encode()):
        raise Refused(403, "this form was not made for this browser, or is too old: load its page again")
    return fields


forms = APIRouter(include_in_schema=False, dependencies=[Depends(checked)])
previews = APIRouter(include_in_schema=False)
Fields = Annotated[dict[str, str], Depends(checked)]


@forms.post("/bugs/{id}/reduce", tags=[TRIAGE])
def reduce(served: Served, asking: Asking, id: Id) -> Response:
    """Queue a bug again."""
    routes.reduce(served, asking, id)
    return _to(f"/bugs/{id}", "queued")


@forms.post("/bugs/{id}/retest", tags=[TRIAGE])
def retest(served: Served, asking: Asking, id: Id) -> Response:
    """Queue a retest of a bug."""
    routes.retest(served, asking, id)
    return _to(f"/bugs/{id}", "queued")


@forms.post("/bugs/{id}/status", tags=[TRIAGE])
def set_status(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """Ignore a bug, say that it is obsolete, or open it."""
    status = _STATUSES.get(fields.get("status", ""))
    if status is None:
        raise Refused(422, f"a bug can be made {', '.join(_STATUSES)} here")
    more = _number(fields, "more") if fields.get("more") else None
    served.index.triage.set(id, status, more=more, actor=asking.name)
    return _to(f"/bugs/{id}", status.value)


@forms.post("/bugs/{id}/labels", tags=[TRIAGE])
def set_labels(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """Put labels on a bug, and take others off it."""
    add, remove = (re.findall(r"[^\s,]+", fields.get(name, "")) for name in ("add", "remove"))
    routes.set_labels(served, asking, id, routes.SetLabels(add, remove))
    return _to(f"/bugs/{id}", "labelled")


@previews.get("/bugs/{id}/merge", tags=[TRIAGE])
def merge_preview(served: Served, asking: Asking, id: Id, into: Annotated[int, Query(ge=1, lt=1 << 31)]) -> Response:
    """Show the effect of merging a bug into another one."""
    found = served.index.triage.merge(id, into, preview=True, actor=asking.name)
    bug, other = (served.index.bugs.get(one) for one in (id, into))
    differ = [
        name
        for name in ("backend", "kind", "phase", "signature")
        if getattr(bug, name) != getattr(other, name)
    ]  # fmt: skip
    return page(
        served, asking, "page_merge.html.j2", found=found, bug=bug_line(bug), other=bug_line(other), differ=differ
    )


@forms.post("/bugs/{id}/merge", tags=[TRIAGE])
def merge(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """Make a bug a duplicate of another one."""
    into = _number(fields, "into")
    served.index.triage.merge(id, into, actor=asking.name)
    return _to(f"/bugs/{into}", "merged")


@previews.get("/bugs/{id}/split", tags=[TRIAGE])
def split_preview(served: Served, asking: Asking, id: Id, bug: Annotated[int, Query(ge=1, lt=1 << 31)]) -> Response:
    """Show the effect of splitting a duplicate from a bug."""
    found = routes.split(served, asking, id, routes.Split(bug, preview=True))
    part, whole = (bug_line(served.index.bugs.get(one)) for one in (bug, id))
    return page(served, asking, "page_split.html.j2", found=found, bug=part, whole=whole)


@forms.post("/bugs/{id}/split", tags=[TRIAGE])
def split(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """Make a duplicate a bug of its own again."""
    bug = _number(fields, "bug")
    routes.split(served, asking, id, routes.Split(bug))
    return _to(f"/bugs/{bug}", "split")


@forms.post("/tasks/{id}/cancel", tags=[WORK])
def cancel(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """End an open task."""
    routes.cancel(served, asking, id)
    return _to(_local(fields, "/tasks"), "cancelled")


@forms.post("/tasks/{id}/retry", tags=[WORK])
def retry(served: Served, asking: Asking, id: Id, fields: Fields) -> Response:
    """Queue a task again."""
    routes.retry(served, asking, id)
    return _to(_local(fields, "/tasks"), "queued")


@previews.get("/sign-in", tags=[OPEN])
def sign_in_page(served: Served, asking: Asking, back: Text = "/bugs") -> Response:
    """The form that takes a token."""
    return page(served, asking, "page_sign_in.html.j2", sentence="", back=back)


@forms.post("/sign-in", tags=[OPEN])
async def sign_in(request: Request, served: Served, asking: Asking, fields: Fields) -> Response:
    """Begin a session of this browser with a token that may read, and keep its id in a cookie."""
    text, back = fields.get("token", "").strip(), _local(fields, "/bugs")
    token = await run_in_threadpool(served.index.tokens.check, text)
    sentence, status = why_not(token), 401
    if token is not None and not sentence and not Caller(token.name, token.scopes).may(TokenScope.READ):
        sentence, status = f"the token {token.name} may not see pages: it lacks the scope read", 403
    if token is None or sentence:
        return page(served, asking, "page_sign_in.html.j2", status=status, sentence=sentence, back=back)
    answer = RedirectResponse(back, 303)
    answer.set_cookie(
        COOKIE, await run_in_threadpool(served.index.sessions.begin, token), max_age=LASTS, path="/", httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://"),
    )  # fmt: skip
    return answer


@forms.post("/sign-out", tags=[OPEN])
def sign_out(request: Request, served: Served) -> Response:
    """End the session of this browser."""
    served.index.sessions.end(session_of(request.headers))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax")
    return answer


def _to(path: str, done: str) -> Response:
    return RedirectResponse(f"{path}{'&' if '?' in path else '?'}done={done}", 303)


def _local(fields: dict[str, str], otherwise: str) -> str:
    """The page of this site to which a form wants to lead back."""
    back = fields.get("back", "")
    return back if _LOCAL.match(back) else otherwise


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "").strip().removeprefix("#")
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:11]) < 1 << 31):
        raise Refused(422, f"{name} is to be a number, such as 7")
    return int(text[:11])
