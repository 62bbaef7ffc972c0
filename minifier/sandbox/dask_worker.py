"""The side of a cluster's machine: `serve` answers one request of a driver in an isolated pool.

A request is self-contained: what to import, the task with its argument, and the storages that it needs. It uses no
database, no path and no state of the driver. Storages are kept, and the reply names those that are missing. There is
one pool for each reduction (*session*), and it is kept between requests. A candidate that crashes ends a worker of that
pool and never the process that serves. Imports neither torch nor dask.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from ... import __version__
from ...backends.provenance.access import Access
from .launcher import BackendImportError, SandboxError
from .messages import Json
from .pool import Ended, Pool, Reply

#: The most pools that are kept, and the seconds after which an unused one is closed.
MOST, IDLE = 4, 900.0


def serve(request: bytes, storages: dict[str, bytes]) -> tuple[bytes, dict[str, bytes]]:
    """The answer to a request, as JSON, and the storages that it made.

    The answer is one of ``{"reply": ...}``, ``{"missing": [keys]}``, ``{"broken": [module, error]}`` for an import that
    fails here, and ``{"failed": why}``.
    """
    asked = json.loads(request)
    if asked["version"] != __version__:
        return _json(failed=f"it has fxminify {__version__}, this is {asked['version']}: install one version"), {}
    try:
        with _SESSIONS.pool(asked["session"], asked["setup"]) as pool:
            return _answer(pool, asked, storages)
    except BackendImportError as error:
        return _json(broken=[error.module, error.error]), {}
    except SandboxError as error:
        return _json(failed=str(error)), {}


def _answer(pool: Pool, asked: Json, storages: dict[str, bytes]) -> tuple[bytes, dict[str, bytes]]:
    pool.scratch.put(storages)
    missing = [key for key in asked["needs"] if key not in pool.scratch]
    if missing or not asked["task"]:
        return _json(missing=missing), {}
    reply = pool.submit(
        asked["task"], asked["argument"], timeout=asked["timeout"], fresh=asked["fresh"]
    ).result()  # fmt: skip
    named = {t["storage"] for t in reply.result.get("tensors", ()) if t.get("storage") is not None}
    made = {key: pool.scratch[key] for key in sorted(named - set(asked["needs"])) if key in pool.scratch}
    return _json(reply=asdict(reply)), made


def end(session: str) -> None:
    """Close the pool of this session."""
    _SESSIONS.end(session)


def has_imported(session: str, module: str) -> bool:
    """Whether a worker of this session had to import ``module`` here."""
    return _SESSIONS.has_imported(session, module)


def _json(**content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class _Sessions:
    """The pools of this process. Thread-safe: requests of one session may come at once, and start one pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._busy: Counter[str] = Counter()
        self._timers: dict[str, threading.Timer] = {}

    @contextmanager
    def pool(self, session: str, setup: Json) -> Iterator[Pool]:
        """Return the pool of ``session``, and start it if necessary. Raises `SandboxError`.

        The pool stays open until the block ends, unless its driver closes it.
        """
        with self._lock:
            pool = self._pools.get(session) or self._start(session, setup)
            self._pools.move_to_end(session)
            self._busy[session] += 1
            idle = [name for name in self._pools if not self._busy[name]]
            old = idle[: max(0, len(self._pools) - MOST)]
            self._wait(session, False)
        for name in old:
            self.end(name)
        try:
            yield pool
        finally:
            with self._lock:
                self._busy[session] -= 1
                self._wait(session, session in self._pools and not self._busy[session])

    def end(self, session: str) -> None:
        with self._lock:
            pool = self._pools.pop(session, None)
            self._wait(session, False)
        if pool is not None:
            pool.close()

    def has_imported(self, session: str, module: str) -> bool:
        pool = self._pools.get(session)
        return pool is not None and pool.has_imported(module)

    def _start(self, session: str, setup: Json) -> Pool:
        pool = Pool(
            setup["backend"],
            setup["imports"],
            jobs=setup["jobs"],
            memory=setup["memory"],
            mode=setup["mode"],
            path=setup["path"],
            access=Access(None if setup["variables"] is None else tuple(setup["variables"])),
        )
        self._pools[session] = pool.__enter__()
        return pool

    def _wait(self, session: str, idle: bool) -> None:
        """Begin to count the idle time of a session, or stop to. Called with the lock."""
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()
        if idle:
            timer = self._timers[session] = threading.Timer(IDLE, self.end, [session])
            timer.daemon = True
            timer.start()


_SESSIONS = _Sessions()


def reply_from(doc: Json) -> Reply:
    """A `Reply` that came as JSON. Raises `ValueError` or `TypeError` on anything else."""
    return Reply(**{**doc, "ended": Ended(doc["ended"]), "marks": {str(k): float(v) for k, v in doc["marks"].items()}})
