"""Answers as pages, with the headers that keep a browser from running, loading or sending anything but ours.

The referrer stays within the site, because a browser that may send none gives forms the origin ``null``.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ... import __version__
from ...minifier.reporting.overview import short_name
from ...repro_templates.report.page import environment, look
from .caller import Caller, Refused
from .service import Service

_TEMPLATES = "service/http/templates"
_LOOK = look("report.css", "page.css", "pictures.js", "page.js", beside=_TEMPLATES)
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src '{_LOOK.style_hash}'; script-src '{_LOOK.script_hash}'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def page(service: Service, caller: Caller, template: str, *, status: int = 200, **content: Any) -> Response:
    """The page that a template of ours makes of ``content``."""
    shared = {
        "look": _LOOK, "name": short_name(service.index), "version": __version__, "asking": caller,
        "warning": service.disk.sentence(), "status": status, "said": "", "here": "", "last": None, "about": None,
    }  # fmt: skip
    text = environment(_TEMPLATES).get_template(template).render(shared | content)
    return HTMLResponse(text.encode("utf-8", "replace"), status, _HEADERS)


def refusal(service: Service, caller: Caller, request: Request, refused: Refused) -> Response:
    """Answer a refused request: an error page or a sign-in form for a browser, a sentence for a program."""
    path = request.scope["path"]
    if path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return refused.response()
    if refused.status == 401:
        query = request.scope["query_string"].decode("ascii", "replace")
        back = f"{quote(path)}?{query}".rstrip("?") if request.method == "GET" else "/bugs"
        answer = page(service, caller, "page_sign_in.html.j2", status=401, sentence="", back=back)
    else:
        form = re.match(r"/(bugs/\d+|tasks)", path) if request.method == "POST" else None
        back = form[0] if form is not None else "/bugs"
        answer = page(
            service, caller, "page_refused.html.j2", status=refused.status, sentence=str(refused), back=back
        )  # fmt: skip
    answer.headers.update(refused.headers)
    return answer
