"""Programs of many processes under `minify capture`: what they print, how they end, and what is captured of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from indexes import captures

pytestmark = pytest.mark.slow

BACKENDS = """
import torch

def healthy(gm, inputs):
    return gm.forward

def refuses(gm, inputs):
    if any("sin" in str(n.target) for n in gm.graph.nodes):
        raise NotImplementedError("no lowering for sin")
    return gm.forward
"""
SPAWN = """
import sys, torch, torch.multiprocessing, team
torch.set_num_threads(1)

def work(rank, backend, queue):
    torch.set_num_threads(1)
    queue.put((rank, torch.compile(lambda x: torch.sin(x) + 1, backend=getattr(team, backend))(torch.ones(3)).tolist()))

if __name__ == "__main__":
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(work, (sys.argv[1], queue), nprocs=2)
    print(sorted(queue.get() for _ in range(2)))
"""
RANKS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing, team
import torch.distributed._functional_collectives as collectives

def work(rank, backend, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    def step(x):
        return collectives.all_reduce(torch.sin(model(x)), "sum", dist.group.WORLD)
    try:
        loss = torch.compile(step, backend=getattr(team, backend))(torch.full((2, 4), float(rank))).sum()
        loss.backward()
        if rank == 0:
            print(loss.item(), [p.grad.tolist() for p in model.parameters()])
    finally:
        dist.destroy_process_group()

if __name__ == "__main__":
    store = os.path.abspath(sys.argv[2])
    torch.multiprocessing.start_processes(work, (sys.argv[1], store), nprocs=2, start_method="spawn")
"""
WORKERS = """
import sys, torch, torch._inductor.config as config
config.compile_threads = 2
config.worker_start_method = "subprocess"
config.fx_graph_cache = False
if sys.argv[1] == "refuses":
    config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
torch.set_num_threads(1)
torch.manual_seed(0)
try:
    print(torch.compile(lambda x: torch.relu(x) * 2)(torch.randn(8)).tolist())
finally:
    from torch._inductor.async_compile import shutdown_compile_workers
    shutdown_compile_workers()
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("program", [SPAWN, RANKS, WORKERS], ids=["spawn", "ranks", "workers"])
def test_a_program_of_many_processes_runs_as_if_alone(tmp_path: Path, program: str) -> None:
    """Of two processes that fail, the program may end one before it does."""
    (tmp_path / "team.py").write_text(BACKENDS)
    (tmp_path / "program.py").write_text(program)
    for backend in ("healthy", "refuses"):
        plain = run(tmp_path, "program.py", backend, f"{backend}-store")
        db = tmp_path / f"{backend}.db"
        captured = run(
            tmp_path, "-m", "fxminify", "capture", "--db", db.name, "program.py", backend, f"{backend}-captured"
        )
        assert (captured.returncode, captured.stdout) == (plain.returncode, plain.stdout), captured.stderr
        assert (plain.returncode == 0) == (backend == "healthy")
        rows = captures(db)
        if backend == "healthy":
            assert rows == []
        else:
            assert [row.kind for row in rows] == ["compile_error"]
            assert rows[0].occurrences in (1, 2)
            assert rows[0].state == "pending", rows[0].reason
