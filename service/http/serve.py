"""Starts the server of `minify serve` on an index, and ends it."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from ...store import temporary
from ...store.errors import StoreError
from ...store.index import Index
from ...store.spool.spool import is_loopback
from ..workers.local import LocalWorker
from ..workers.notify import Notifier
from .app import application
from .connections import LimitedProtocol
from .disk import Disk, DiskState
from .service import ServeOptions, Service

#: Seconds that requests have to end in.
_GRACE = 5
#: Seconds between two checks of the disk, and between two removals of old keys of uploads.
_LOOK, _FORGET = 10.0, 3600.0

log = logging.getLogger("fxminify")


class CannotListen(Exception):
    """The address cannot be had. The message is for the user."""


def serve(store: str, options: ServeOptions, tell: Callable[[str], None]) -> None:
    """Serve the index ``store``, a path or a URL, until a signal ends it. ``tell`` is given sentences for a person.

    Raises `fxminify.store.errors.StoreError` where the index cannot be used, and `CannotListen`.
    """
    with (
        Index.open(store, create=True) as index,
        tempfile.TemporaryDirectory(prefix=temporary.prefix("fxminify-uploads-")) as folder,
        _listening(options) as listener,
    ):
        service = prepared(index, options, Path(folder), store)
        config = uvicorn.Config(
            application(service), http=LimitedProtocol,
            ssl_certfile=options.certificate or None, ssl_keyfile=options.key or None,
            access_log=False, log_level="warning", proxy_headers=False, server_header=False, ws="none", lifespan="off",
            timeout_graceful_shutdown=_GRACE, log_config=None if options.as_json else uvicorn.config.LOGGING_CONFIG,
        )  # fmt: skip
        host, port, *_ = listener.getsockname()
        kind = "https" if options.certificate else "http"
        address = f"{kind}://[{host}]:{port}" if ":" in host else f"{kind}://{host}:{port}"
        tell(f"serving {index.name} at {address}")
        if not options.is_open and not [token for token in index.tokens.find() if token.revoked is None]:
            tell("every request is refused, because no token exists: `minify tokens DB --new NAME --scope SCOPE`")
        if not is_loopback(host) and not options.certificate:
            tell("without --tls-cert anyone on the network can read tokens: use this behind a proxy with TLS")
        notifier = Notifier(index, options.targets, options.page, lambda event, text: tell(text))
        server = EndingServer(config, service)
        with _ended_by_signals(server):
            worker = LocalWorker(store, options.work, as_json=options.as_json) if options.work else None
            keeper = threading.Thread(target=_keep, args=(service, worker, tell), name="fxminify keeper", daemon=True)
            notifier.start()
            keeper.start()
            gc.freeze()  # loaded modules stay, so the garbage collector can skip them
            try:
                server.run(sockets=[listener])
            finally:
                service.ending.set()
                keeper.join()
                notifier.close()
                if worker is not None:
                    worker.end()


def prepared(index: Index, options: ServeOptions, folder: Path, store: str) -> Service:
    """Create the `Service` that the routes use. ``folder`` is for uploads."""
    folders = [folder] if "://" in store else [folder, Path(store).resolve().parent]
    return Service(index, options, Disk(folders, options.low, options.least), folder)


class EndingServer(uvicorn.Server):
    """Also ends streams of events when the server ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.ending.set()
        super().handle_exit(sig, frame)


@contextmanager
def _ended_by_signals(server: EndingServer) -> Iterator[None]:
    """Let signals that end a process end ``server``, also before it runs. They take effect after the block.

    So they interrupt nothing: no thread is left half started. An ignored signal stays ignored. Outside the main
    thread this does nothing, because only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        server.handle_exit(number, frame)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def _listening(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotListen(f"{options.host} port {options.port} cannot be listened at ({why}): name another") from error


def _keep(service: Service, worker: LocalWorker | None, tell: Callable[[str], None]) -> None:
    """Say when the disk gets low or full, forget old keys of uploads, and start a worker again that has ended."""
    state, since = DiskState.OK, float("inf")
    while True:
        if (now := service.disk.state()) is not state:
            tell(service.disk.sentence() or "there is enough space again")
            state = now
        if worker is not None and (sentence := worker.revive()):
            tell(sentence)
        if since >= _FORGET:
            try:
                service.index.uploads.forget()
                since = 0.0
            except StoreError as error:  # tried again soon
                log.warning("old keys of uploads stay for now: %s", error)
        if service.ending.wait(_LOOK):
            return
        since += _LOOK
