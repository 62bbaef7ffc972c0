"""Shared resources of the captures of one call: the workers of a backend, and the processes in which scripts run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import psutil

from ...backends.adapters import adapter_of
from ...backends.provenance.spec import BackendSpec
from ...backends.running.compiler_caches import CompilerCaches
from ...backends.running.confinement import wanted
from ...repro_templates.processes import Processes
from ...store.document.case import Case, Json
from ..consent import AgreedCase
from ..sandbox.cluster import Cluster
from ..sandbox.pool import Ended, Pool, Workers
from .options import MinifyOptions

#: Seconds in which a worker loads a backend whose module is imported already.
_LOADING = 60.0
#: The most workers that are started unasked.
MOST_JOBS = 4
#: Bytes that a worker takes at the most with a small graph, and besides for each element of its tensors.
_WORKER, _ELEMENT = 2 << 30, 100


class SharedResources:
    """Keeps the last pool of workers. The next capture uses it, with new workers, if it needs the same imports: so do
    backends of one module, and one backend with other options.

    On a ``cluster`` every capture has workers of its own, because others use it, too. Raises `NoConfinement` where the
    options ask for a sandbox that cannot be had.
    """

    def __init__(self, options: MinifyOptions, cluster: Cluster | None = None) -> None:
        self._confinement = wanted(options.sandbox)
        self._caches = None if self._confinement is not None else CompilerCaches()
        self.processes = Processes(self._confinement, self._caches)
        self._options = options
        self._cluster = cluster
        self._workers: Workers | None = None
        self._imports = ""
        self._backend: Json = {}

    def workers(self, agreed: AgreedCase, way: Case | None = None) -> Workers:
        """Workers that have imported what an agreed case needs, and have answered nothing yet.

        ``way`` is the case with one of the ways to have its backend back. Raises `BackendImportError`, or another
        `SandboxError`.
        """
        case = agreed.case if way is None else way
        on_cpu = all(t.device in ("cpu", "meta") for t in case.tensors)
        imports = json.dumps([on_cpu, asdict(agreed.access), *_imports(case)], sort_keys=True)
        if isinstance(self._workers, Pool) and imports == self._imports and self._serves(self._workers, case.backend):
            return self._workers
        self.end_workers()
        memory = None if self._options.memory is None else int(self._options.memory * 2**30)
        if self._cluster is not None:
            self._workers = self._cluster.pool(
                case.backend, case.imports, memory=memory, access=agreed.access
            )  # fmt: skip
        else:
            # One on an accelerator, whose memory they would share.
            jobs = self._options.jobs or (affordable(case) if on_cpu else 1)
            # One more tells which candidates eager accepts while the others answer queries.
            more = 1 if jobs > 1 and on_cpu else 0
            self._workers = Pool(
                case.backend,
                case.imports,
                jobs=jobs + more,
                memory=memory,
                confinement=self._confinement,
                caches=self._caches,
                access=agreed.access,
            )
        self._imports, self._backend = imports, case.backend
        try:
            self._workers.start()
        except BaseException:
            self.end_workers()
            raise
        return self._workers

    def _serves(self, pool: Pool, backend: Json) -> bool:
        """Whether the workers of ``pool``, which are renewed, can load ``backend``, too."""
        pool.renew()
        if backend == self._backend:
            return True
        loaded = pool.submit("load", backend, timeout=_LOADING).result()
        pool.renew()
        self._backend = backend
        return loaded.ended is Ended.DONE

    def end_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self._workers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.end_workers()
        finally:
            self.processes.close()
            if self._caches is not None:
                self._caches.close()


def affordable(case: Case) -> int:
    """Return how many workers for ``case`` this machine can probably run at a time, before one was measured."""
    takes = _WORKER + _ELEMENT * sum(tensor.numel for tensor in case.tensors)
    return max(1, min(MOST_JOBS, len(os.sched_getaffinity(0)), psutil.virtual_memory().available // 2 // takes))


def _imports(case: Case) -> list[Any]:
    """Return the imports of the workers of ``case``, with their sources."""
    spec, own = BackendSpec.from_json(case.backend), case.backend
    modules = spec.modules() or [spec.name]
    given = [own.get(key) for key in ("search_path", "source", "environment")]
    return [modules, adapter_of(spec.name).preload, *given, case.imports]
