"""Oracle calls on a cluster: what is asked arrives whole, a crash is an answer, and a lost worker costs one query."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

pytest.importorskip("distributed")

from fxminify import __version__
from fxminify.minifier.sandbox import cluster as clusters
from fxminify.minifier.sandbox import dask_worker
from fxminify.minifier.sandbox.cluster import INLINE, Cluster, ClusterPool, NoCluster, connect
from fxminify.minifier.sandbox.launcher import BackendImportError, SandboxError
from fxminify.minifier.sandbox.pool import Ended, Reply
from fxminify.store.document.case import Json

SHARED = str(pathlib.Path(__file__).parents[2] / "shared")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connect("local:2") as cluster:
        yield cluster


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[ClusterPool]:
    with cluster.pool(None, path=[SHARED], memory=512 << 20) as pool:
        yield pool


def ask(pool: ClusterPool, task: str, argument: Json | None = None, timeout: float = 20.0) -> Reply:
    return pool.submit(f"sandbox_tasks:{task}", argument or {}, timeout=timeout).result(60)


def test_as_many_requests_at_a_time_as_it_has_threads(cluster: Cluster) -> None:
    assert cluster.threads == 2


def test_a_request_brings_what_it_needs(pool: ClusterPool) -> None:
    """Small storages go with it, large ones are asked for once by each worker."""
    small, large = b"abc", os.urandom(INLINE + 1)
    pool.scratch.put({"small": small, "large": large})
    tensors = [{"storage": "small"}, {"storage": "large"}, {"init": {"fn": "randn"}}]
    for key, data in (("small", small), ("large", large)) * 2:
        reply = ask(pool, "echo", {"key": key, "case": {"tensors": tensors}})
        assert (reply.ended, reply.result["storage"]) == (Ended.DONE, data.hex())
        assert reply.pid != os.getpid()


def test_what_a_task_records_comes_back(pool: ClusterPool) -> None:
    reply = ask(pool, "records", {"key": "relu@0", "data": "0123"})
    assert reply.result["tensors"] == [{"storage": "relu@0"}]
    assert pool.scratch["relu@0"] == bytes.fromhex("0123")


def test_a_candidate_that_crashes_or_hangs_takes_no_worker_of_the_cluster_with_it(
    cluster: Cluster, pool: ClusterPool
) -> None:
    before = cluster.client.run(os.getpid)
    crashed = ask(pool, "segfault")
    assert (crashed.ended, crashed.signal, crashed.phase) == (Ended.CRASH, signal.SIGSEGV, "compile")
    assert "about to read address 0" in crashed.stderr
    assert ask(pool, "stuck", timeout=1.0).ended is Ended.TIMEOUT
    assert cluster.client.run(os.getpid) == before


@pytest.mark.slow
def test_a_lost_worker_costs_one_query(cluster: Cluster, pool: ClusterPool) -> None:
    """Two requests are under way on two workers, one of which is killed: both are answered, one of them twice asked."""
    pids = cluster.client.run(os.getpid)
    futures = [pool.submit("sandbox_tasks:waits", {"seconds": 4.0}, timeout=30.0) for _ in range(2)]
    deadline = time.monotonic() + 30
    while sum(map(bool, cluster.client.processing().values())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    replies = [future.result(60) for future in futures]
    assert [reply.ended for reply in replies] == [Ended.DONE, Ended.DONE]
    assert ask(pool, "echo", {"n": 1}).result["argument"] == {"n": 1}


def test_what_workers_had_to_import_is_known(pool: ClusterPool) -> None:
    assert ask(pool, "imports", {"module": "colorsys"}).ended is Ended.DONE
    assert pool.has_imported("colorsys")
    assert not pool.has_imported("no_such_module")


def test_a_request_can_be_withdrawn(pool: ClusterPool) -> None:
    futures = [pool.submit("sandbox_tasks:waits", {"seconds": 1.0}, timeout=30.0) for _ in range(4)]
    assert futures[3].cancel()
    with pytest.raises(CancelledError):
        futures[3].result(1)
    assert [future.result(60).ended for future in futures[:3]] == [Ended.DONE] * 3


def test_a_backend_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, *setup: Any, **more: Any) -> None: ...

        def __enter__(self) -> None:
            raise BackendImportError("no_such_module", "ModuleNotFoundError: no")

    monkeypatch.setattr(dask_worker, "Pool", Broken)
    setup = {"backend": {}, "imports": [], "jobs": 1, "memory": None, "mode": "fork", "path": [], "variables": None}
    request = {"version": __version__, "session": "broken", "setup": setup}
    answer, made = dask_worker.serve(json.dumps(request).encode(), {})
    assert (json.loads(answer), made) == ({"broken": ["no_such_module", "ModuleNotFoundError: no"]}, {})


def test_another_version_is_refused() -> None:
    request = {"version": "0.0.0", "session": "s"}
    answer, made = dask_worker.serve(json.dumps(request).encode(), {})
    assert "it has fxminify" in json.loads(answer)["failed"]
    assert made == {}


def test_nothing_of_a_session_is_left(cluster: Cluster) -> None:
    with cluster.pool(None, path=[SHARED], memory=512 << 20) as pool:
        pids = {ask(pool, "echo").pid for _ in range(3)}
        root = pool.scratch.root
    assert not root.exists()
    deadline = time.monotonic() + 10
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()] == []
    with pytest.raises(SandboxError, match="closed"):
        ask(pool, "echo")


@pytest.mark.parametrize("where", ["", "local", "local:", "local:0", "local:x", "dask://", "ssh://host", "8786"])
def test_what_is_no_executor_is_said(where: str) -> None:
    with pytest.raises(NoCluster, match="is no executor"), connect(where):
        pass


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "REACH_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        where = f"dask://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(NoCluster, match=f"answers at {where}: no answer in 0.5 s"), connect(where):
            pass


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("dask://127.0.0.1:9", "Connection refused"),
        ("tcp://127.0.0.1", "it names no host and port"),
        ("dask://127.0.0.1:x", "Port could not be cast"),
        ("dask://[127.0.0.1:9", "Invalid IPv6 URL"),
    ],
)
def test_an_address_where_nothing_listens_is_not_tried_again(
    where: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distributed.Client", None)
    with pytest.raises(NoCluster, match=rf"answers at {re.escape(where)}: .*{why}"), connect(where):
        pass


PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import faulty_backends, torch

def function(x):
    return torch.relu(torch.sin(torch.cos(x) * 2)).sum()

for backend in ("cannot_lower", "segfaults"):
    try:
        torch.compile(function, backend=backend)(torch.linspace(-1, 1, 8))
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_a_reduction_on_a_cluster_is_the_same(tmp_path: pathlib.Path) -> None:
    """Two captures, one that raises and one that crashes, on two processes and without: the same minimum."""
    (tmp_path / "program.py").write_text(PROGRAM.format(here=SHARED))

    def minify(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fxminify", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": SHARED},
        )  # fmt: skip

    minify("capture", "program.py")
    quick = ("--replays", "1", "--runs", "1", "--json")
    found = []
    for where in (["--executor", "local:2"], []):
        done = minify("run", "repro.db", "1", "2", "--again", *quick, *where)
        rows = json.loads(done.stdout)
        graphs = [json.loads(minify("show", "repro.db", str(r["id"]), "--json").stdout) for r in rows]
        states = [(row["state"], row["kind"]) for row in rows]
        found.append((states, [(g["minimal"]["source"], g["matters"]["summary"]) for g in graphs]))
    assert found[0][0] == [("verified", "compile_error"), ("verified", "crash")]
    assert found[0] == found[1]
