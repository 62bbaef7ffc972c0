"""What the captures of one call share: the workers of a backend, and the processes in which scripts run."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from ...repro_templates.processes import Processes
from ...store.document.case import Case
from ..sandbox.cluster import Cluster
from ..sandbox.launcher import Mode
from ..sandbox.pool import Pool, Workers
from .options import MinifyOptions


class SharedResources:
    """The workers that were used last stay: the next capture has them, renewed, if it needs the same imports.

    On a ``cluster`` every capture has workers of its own, because others use it, too.
    """

    def __init__(self, options: MinifyOptions, cluster: Cluster | None = None) -> None:
        self.processes = Processes()
        self._options = options
        self._cluster = cluster
        self._workers: Workers | None = None
        self._imports = ""

    def workers(self, case: Case) -> Workers:
        """Workers that have imported what ``case`` needs, and have answered nothing yet.

        Raises `BackendImportError`, or another `SandboxError`.
        """
        mode: Mode = "fork" if all(t.device in ("cpu", "meta") for t in case.tensors) else "spawn"
        imports = json.dumps([mode, case.backend, case.imports], sort_keys=True)
        if isinstance(self._workers, Pool) and imports == self._imports:
            self._workers.renew()
            return self._workers
        self.end_workers()
        memory = None if self._options.memory is None else int(self._options.memory * 2**30)
        if self._cluster is not None:
            self._workers = self._cluster.pool(case.backend, case.imports, memory=memory, mode=mode)
        else:
            self._workers = Pool(case.backend, case.imports, jobs=self._options.jobs, memory=memory, mode=mode)
        self._imports = imports
        try:
            self._workers.start()
        except BaseException:
            self.end_workers()
            raise
        return self._workers

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
