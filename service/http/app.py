"""The application of `minify serve`: its routes behind `fxminify.service.http.access`, its errors in a sentence."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from ... import __version__
from ...store.errors import StoreError, UnknownRow, UnreadableRow, is_full, is_temporary
from .access import Admission
from .caller import Refused
from .forms import forms, previews
from .html import refusal
from .pages import pages
from .routes import probes, router
from .service import Service

#: All that is answered.
ROUTERS = (probes, router, previews, forms, pages)

log = logging.getLogger("fxminify")


def application(service: Service) -> ASGIApp:
    """The application that serves the index of ``service``."""
    return Admission(
        described(service), [*probes.routes, *router.routes, *previews.routes, *forms.routes, *pages.routes], service
    )


def described(service: Service) -> FastAPI:
    """The routes alone, without a look at who asks."""
    api = FastAPI(
        title="fxminify", version=__version__, openapi_url=None, docs_url=None, redoc_url=None,
        description="Captured failures of torch.compile backends.",
    )  # fmt: skip
    api.state.service = service
    for each in ROUTERS:
        api.include_router(each)
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(StoreError, _store_error)
    api.add_exception_handler(Exception, _unexpected)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    return api


def _answer(request: Request, status: int, sentence: str, **headers: str) -> Response:
    return _refused(request, Refused(status, sentence, **headers))


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(request.app.state.service, request.state.caller, request, error)


def _store_error(request: Request, error: Exception) -> Response:
    """Answer a request that failed in the index. The place of the index is written to the log only."""
    service: Service = request.app.state.service
    if is_full(error):
        service.disk.was_full()
        log.error("no space is left: %s", error)
        return _answer(request, 503, service.disk.sentence(), Retry_After="30")
    if is_temporary(error):
        log.error("the index does not answer: %s", error)
        return _answer(request, 503, "the index does not answer: try again later", Retry_After="5")
    if isinstance(error, UnknownRow):
        sentence = str(error).replace(f"{service.index.name} has", "there is").partition(":")[0]
        return _answer(request, 404, sentence)
    sentence = str(error).replace(service.index.name, "the index")
    return _answer(request, 500 if isinstance(error, UnreadableRow) else 409, sentence)


def _unexpected(request: Request, error: Exception) -> Response:
    """Answer a request that a defect ended. uvicorn writes the traceback to the log."""
    return _answer(request, 500, "the server could not answer this: its log says why")


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = " ".join(str(part) for part in first["loc"])
    return _answer(request, 422, f"{where}: {first['msg']}"[:300])


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail), **(error.headers or {}))
