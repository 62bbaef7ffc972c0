"""The application of `minify serve`: its routes behind `fxminify.minifier.server.access`, its errors in a sentence."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from ... import __version__
from ...store.errors import StoreError, UnknownRow, UnreadableRow, is_full, is_temporary
from .access import Admission, Refused
from .routes import probes, router
from .service import Service

log = logging.getLogger("fxminify")


def application(service: Service) -> ASGIApp:
    """The application that serves the index of ``service``."""
    return Admission(described(service), [*probes.routes, *router.routes], service)


def described(service: Service) -> FastAPI:
    """The routes alone, without a look at who asks."""
    api = FastAPI(
        title="fxminify", version=__version__, openapi_url=None, docs_url=None, redoc_url=None,
        description="Captured failures of torch.compile backends.",
    )  # fmt: skip
    api.state.service = service
    api.include_router(probes)
    api.include_router(router)
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(StoreError, _store_error)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    return api


def _answer(status: int, sentence: str, **headers: str) -> JSONResponse:
    return Refused(status, sentence, **headers).response()


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return error.response()


def _store_error(request: Request, error: Exception) -> JSONResponse:
    """What the index cannot do. Where it lies is told to the log only."""
    service: Service = request.app.state.service
    if is_full(error):
        service.disk.was_full()
        log.error("no space is left: %s", error)
        return _answer(503, service.disk.sentence(), Retry_After="30")
    if is_temporary(error):
        log.error("the index does not answer: %s", error)
        return _answer(503, "the index does not answer: try again later", Retry_After="5")
    if isinstance(error, UnknownRow):
        return _answer(404, str(error).replace(f"{service.index.name} has", "there is").partition(":")[0])
    sentence = str(error).replace(service.index.name, "the index")
    return _answer(500 if isinstance(error, UnreadableRow) else 409, sentence)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = " ".join(str(part) for part in first["loc"])
    return _answer(422, f"{where}: {first['msg']}"[:300])


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
    return _answer(error.status_code, str(error.detail), **headers)
