"""Oracle calls on other machines: a `dask.distributed` cluster in the place of the local workers.

A `ClusterPool` has the interface of `fxminify.minifier.sandbox.pool.Pool`: every request gets a future, and every
future gets a reply. A request goes to `fxminify.minifier.sandbox.dask_worker` as one message that holds all it needs.
If a worker is lost, the scheduler of dask sends its request to another one. ``dask`` is an extra and is imported only
when a cluster is used. It transfers bytes of JSON and of tensors only.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ... import __version__
from ...backends.provenance.access import ALL, Access
from . import dask_worker
from .launcher import BackendImportError, Mode, SandboxError
from .messages import Json
from .pool import Ended, Reply, Workers
from .scratch import Scratch
from .stacks import StackSampling

#: Storages of up to this many bytes go with every request; larger ones only where they are missing.
INLINE = 1 << 16
#: How often storages that are missing are sent again before all of them are.
RESENT = 2
#: Seconds to wait for a scheduler, and for its first worker.
CONNECT_TIMEOUT = 60.0
#: Seconds to wait for a connection to its address.
REACH_TIMEOUT = 10.0


_LOG = logging.getLogger(__name__)


class NoCluster(Exception):
    """The cluster cannot be reached. The message says what to do."""


class Cluster:
    """A connected cluster. ``threads`` is how many requests it answers at a time."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def threads(self) -> int:
        return int(max(1, sum(self.client.nthreads().values())))

    def pool(
        self, backend: Json | None, imports: Sequence[Any] = (), *, memory: int | None = None, mode: Mode = "fork",
        path: Sequence[str] = (), access: Access = ALL,
    ) -> ClusterPool:  # fmt: skip
        """Workers for one reduction, as `fxminify.minifier.sandbox.pool.Pool` has them."""
        jobs = max(self.client.nthreads().values(), default=1)
        setup = {"backend": backend, "imports": list(imports), "path": list(path), "memory": memory, "mode": mode}
        return ClusterPool(self.client, {**setup, "jobs": jobs, "variables": access.variables})


@contextmanager
def connect(where: str) -> Iterator[Cluster]:
    """The cluster ``dask://HOST:PORT``, or ``local:N``: N processes of this machine. Raises `NoCluster`."""
    kind, _, place = where.partition(":")
    if kind not in ("dask", "tcp", "tls", "local") or not place.strip("/"):
        raise NoCluster(f"{where!r} is no executor: give dask://HOST:PORT, or local:N for N processes here.")
    if kind == "local" and not (place.isdecimal() and 0 < int(place) <= 256):
        raise NoCluster(f"{where!r} is no executor: local:N takes a number of processes from 1 to 256.")
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise NoCluster(f"this needs dask ({error}): pip install 'fxminify[dask]'") from error
    local = None
    try:
        if kind == "local":
            local = distributed.LocalCluster(n_workers=int(place), threads_per_worker=1, dashboard_address=None)
        address = local if local is not None else f"{'tcp' if kind == 'dask' else kind}:{place}"
        try:
            if local is None:
                _reach(kind, place)
            client = distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
            client.wait_for_workers(1, timeout=CONNECT_TIMEOUT)
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer in {REACH_TIMEOUT:g} s"
            raise NoCluster(f"no cluster with a worker answers at {where}: {why}") from error
        with client:
            yield Cluster(client)
    finally:
        if local is not None:
            local.close()


def _reach(kind: str, place: str) -> None:
    """Raise `OSError` or `TimeoutError` unless a scheduler of Dask listens at ``//HOST:PORT``.

    Dask itself tries a refused connection again until its time is over, and waits for ever for an answer of something
    else that listens there.
    """
    try:
        address = urlsplit(place)
        host, port = address.hostname, address.port
    except ValueError as error:
        raise OSError(str(error)) from error
    if host is None or port is None:
        raise OSError("it names no host and port")
    socket.create_connection((host, port), REACH_TIMEOUT).close()
    if kind == "tls":  # its settings are Dask's own
        return

    core: Any = importlib.import_module("distributed.core")

    async def greet() -> None:
        comm = await core.connect(f"tcp:{place}", timeout=REACH_TIMEOUT)
        comm.abort()

    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop in its own
        thread.submit(asyncio.run, asyncio.wait_for(greet(), REACH_TIMEOUT)).result()


class ClusterPool(Workers):
    """Workers of a cluster that have the backend imported. A context manager, see `Pool`."""

    def __init__(self, client: Any, setup: Json) -> None:
        self.scratch = Scratch.create()
        self._client = client
        self._setup = setup
        self._session = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._open: set[Any] = set()
        self._closed = False

    def start(self) -> None:
        """Have one worker import the backend. Raises `BackendImportError`, or another `SandboxError`."""
        self.submit("", {}, timeout=0.0).result()

    def submit(
        self, task: str, argument: Json, *, timeout: float, fresh: bool = False, sampling: StackSampling | None = None
    ) -> Future[Reply]:
        """Have a worker run ``task`` within ``timeout`` seconds; ``fresh`` asks for an unused worker.

        There is no ``sampling`` of workers of a cluster.
        """
        if self._closed:
            raise SandboxError("the pool is closed")
        request: Json = {"version": __version__, "session": self._session, "setup": self._setup, "task": task,
                   "argument": argument, "timeout": timeout, "fresh": fresh, "needs": _needs(argument)}  # fmt: skip
        future: Future[Reply] = Future()
        _Errand(self, request, future).send(self._small(request["needs"]))
        return future

    def replace_workers(self) -> None:
        """Have new workers answer the requests that are sent from now on."""
        before, self._session = self._session, uuid.uuid4().hex
        self._client.run(dask_worker.end, before, on_error="ignore")

    def has_imported(self, module: str) -> bool:
        """Whether a worker had to import ``module`` for what it was asked."""
        answers = self._client.run(dask_worker.has_imported, self._session, module, on_error="ignore")
        return any(answer is True for answer in answers.values())

    def close(self) -> None:
        """Cancel what waits, have the workers forget this session, remove the scratch directory."""
        self._closed = True
        with self._lock:
            waiting, self._open = list(self._open), set()
        try:
            self._client.cancel(waiting)
            self._client.run(dask_worker.end, self._session, on_error="ignore")
        except Exception as error:  # noqa: BLE001  the cluster may be gone: there is nothing left to tidy up then
            _LOG.debug("closing a session: %r", error)
        self.scratch.remove()

    def _small(self, keys: Sequence[str]) -> dict[str, bytes]:
        found = ((key, self.scratch[key]) for key in keys)
        return {key: data for key, data in found if len(data) <= INLINE}

    def _run(self, request: bytes, storages: dict[str, bytes], done: Callable[[Any], None]) -> Any:
        """The dask future of one message; ``done`` is called with it, in a thread of dask's."""
        name = f"fxminify-{self._session}-{next(self._numbers)}"
        task = self._client.submit(dask_worker.serve, request, storages, key=name, pure=False)
        with self._lock:
            self._open.add(task)
        task.add_done_callback(done)
        return task

    def _forget(self, task: Any) -> None:
        with self._lock:
            self._open.discard(task)


class _Errand:
    """A request on its way to a reply. Storages that the worker lacks are sent after it."""

    def __init__(self, pool: ClusterPool, request: Json, future: Future[Reply]) -> None:
        self.pool = pool
        self.request = request
        self.future = future
        self.sent = 0
        self.task: Any = None
        future.add_done_callback(lambda f: self.task.cancel() if f.cancelled() and self.task is not None else None)

    def send(self, storages: dict[str, bytes]) -> None:
        self.sent += 1
        self.task = self.pool._run(json.dumps(self.request).encode(), storages, self.answered)

    def answered(self, task: Any) -> None:
        """Called when dask has an answer or has given up."""
        self.pool._forget(task)
        if self.future.cancelled():
            return
        try:
            reply = self.reply(task)
        except BaseException as error:  # noqa: BLE001  any error must reach the waiting thread
            if self.future.set_running_or_notify_cancel():
                known = isinstance(error, SandboxError)
                self.future.set_exception(error if known else SandboxError(f"the cluster failed: {error!r:.300}"))
            return
        if reply is not None and self.future.set_running_or_notify_cancel():
            self.future.set_result(reply)

    def reply(self, task: Any) -> Reply | None:
        """The reply of the worker. None where it lacked storages, which are now sent."""
        if task.status == "error" and type(task.exception()).__name__ == "KilledWorker":
            return Reply(Ended.INFRA, error=f"workers of the cluster were lost: {task.exception()}")
        data, made = task.result()
        answer = json.loads(data)
        if "broken" in answer:
            raise BackendImportError(*answer["broken"])
        if "failed" in answer:
            raise SandboxError(f"a worker of the cluster cannot work: {answer['failed']}")
        if missing := answer.get("missing"):
            wanted = missing if self.sent <= RESENT else self.request["needs"]
            self.send({key: self.pool.scratch[key] for key in wanted})
            return None
        for key, content in made.items():
            self.pool.scratch.write(key, content)
        return dask_worker.reply_from(answer["reply"]) if "reply" in answer else Reply(Ended.DONE)


def _needs(argument: Json) -> list[str]:
    """Keys of the storages that a case in ``argument`` lies in."""
    tensors = argument.get("case", {}).get("tensors", ())
    return list(dict.fromkeys(t["storage"] for t in tensors if t.get("storage") is not None))
