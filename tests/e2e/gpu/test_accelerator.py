"""Failures on an accelerator, from a program to its verified script: ``make test-gpu``."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fxminify
from fxminify.backends.capture.graph_snapshot import GraphSnapshot
from fxminify.backends.provenance import origin
from fxminify.backends.running import devices
from fxminify.backends.running.execution import execute
from fxminify.minifier.oracle import tasks
from fxminify.minifier.oracle.observation import Observation, Seen, of_reply
from fxminify.minifier.sandbox.pool import Pool
from fxminify.store.document.case import Blobs, Case
from fxminify.store.failure import FailureKind
from fxminify.store.index import Index
from fxminify.store.live.build import build
from fxminify.store.signature import signature

PROGRAMS = Path(__file__).parents[2] / "programs" / "gpu"

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device")]


def minify(place: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, "-m", "fxminify", *words], os.environ | variables
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=240, check=False, env=environment
        )
    except subprocess.TimeoutExpired as late:
        print(f"$ minify {' '.join(words)}\n{late.stdout!r}\n{late.stderr!r}")
        raise
    print(f"$ minify {' '.join(words)}  [{done.returncode}]\n{done.stdout[-3000:]}{done.stderr[-5000:]}")
    return done


def reduced(place: Path, program: str, *options: str, **variables: str) -> str:
    """The verified script of the first failure of ``program``."""
    minify(place, "capture", "--db", "r.db", *options, str(PROGRAMS / program), **variables)
    minify(place, "run", "-j", "2", "--no-explain", "r.db")
    done = minify(place, "repro", "r.db", "1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def case_of(
    function: torch.nn.Module, *inputs: torch.Tensor, backend: str | Callable[..., Any] = "eager"
) -> tuple[Case, Blobs]:
    gm = fx.symbolic_trace(function)
    snapshot = GraphSnapshot.take(gm, inputs)
    taken = snapshot.case(inputs, {}, origin.spec_of(backend))
    assert taken.case is not None
    return taken.case, taken.blobs


class Gather(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] + 1


class Relu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() + 1


@pytest.mark.parametrize(
    ("program", "options", "said"),
    [
        ("refuses_cuda.py", (), "no lowering of cos for CUDA"),
        ("wrong_numbers.py", ("--check",), "assert_close"),
        ("inductor_fault.py", (), "the pass cannot handle cos on CUDA"),
        ("out_of_memory.py", (), "out of memory"),
    ],
)
def test_a_failure_goes_from_capture_to_a_verified_script(
    tmp_path: Path, program: str, options: tuple[str, ...], said: str
) -> None:
    script = reduced(tmp_path, program, *options)
    assert said in script
    assert 'DEVICE = "cuda:0"' in script


@pytest.mark.parametrize(
    ("program", "said"),
    [("late_fault.py", "index out of bounds"), ("illegal_access.py", "an illegal memory access was encountered")],
)
@pytest.mark.parametrize(
    ("options", "variables"), [(["--check"], {}), ([], {"CUDA_LAUNCH_BLOCKING": "1"})], ids=["check", "blocking"]
)
def test_a_fault_that_shows_after_the_call_goes_to_a_verified_script(
    tmp_path: Path, program: str, said: str, options: list[str], variables: dict[str, str]
) -> None:
    script = reduced(tmp_path, program, *options, **variables)
    assert said in script
    assert "torch.accelerator.synchronize()" in script


@pytest.mark.parametrize("program", ["late_fault.py", "illegal_access.py"])
def test_where_no_call_waits_for_the_device_the_way_to_find_the_call_is_said(tmp_path: Path, program: str) -> None:
    done = minify(tmp_path, "capture", "--db", "r.db", str(PROGRAMS / program))
    assert "the program ended with AcceleratorError outside every watched compilation and call" in done.stderr
    assert "a device reports a fault after the call that met it, unless the call waits for it: --check" in done.stderr


def test_a_hunt_runs_operators_on_the_device(tmp_path: Path) -> None:
    pytest.importorskip("expecttest", reason="torch's operator database imports it")
    done = minify(
        tmp_path, "hunt", "inductor", "--device", "cuda", "--only", "^(sin|add)$", "--grad", "--calls", "2", "--json"
    )
    cells = json.loads(done.stdout)["cells"]
    assert [(cell["program"]["name"], cell["program"]["device"], cell["state"]) for cell in cells] == [
        (name, "cuda", "ok") for name in ("add", "sin") for _ in range(2)
    ]


@pytest.mark.parametrize("program", ["dropout.py", "cuda_graphs.py", "mixed_precision.py"])
def test_check_changes_nothing_and_finds_nothing_in_a_healthy_program(tmp_path: Path, program: str) -> None:
    plain = subprocess.run([sys.executable, str(PROGRAMS / program)], capture_output=True, text=True, check=True)
    checked = minify(tmp_path, "capture", "--check", "--db", "r.db", str(PROGRAMS / program))
    assert checked.returncode == 0
    assert checked.stdout == plain.stdout
    assert "captured" not in checked.stderr or "captured no" in checked.stderr


def test_values_on_a_device_are_stored_and_restored(tmp_path: Path) -> None:
    def refuses(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise NotImplementedError("nothing")

    given = torch.randn(5, 3, device="cuda").t()
    with fxminify.capturing(str(tmp_path / "r.db")), pytest.raises(Exception, match="nothing"):
        torch.compile(lambda x: x.relu() + 1, backend=refuses)(given)
    with Index.open(str(tmp_path / "r.db")) as index:
        case = index.captures.case(1)
        _, (restored,) = build(case, index.blobs.view(case.storages))
    assert restored.device == given.device
    assert restored.stride() == given.stride()
    assert torch.equal(restored, given)


def test_a_run_restores_and_compares_the_generator_of_the_device() -> None:
    x = torch.ones(64, device="cuda")
    before = torch.cuda.get_rng_state()
    first, second = (execute(lambda v: torch.nn.functional.dropout(v), [x]) for _ in range(2))
    assert first.random
    assert torch.equal(first.outputs[0], second.outputs[0])
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert not execute(lambda v: v + 1, [x]).random


def test_a_worker_with_a_dead_context_is_replaced() -> None:
    x = torch.randn(4, device="cuda")
    bad, more = case_of(Gather(), x, torch.tensor([1, 1 << 20], device="cuda"), backend="eager")
    good, blobs = case_of(Relu(), x)
    with Pool(good.backend) as pool:
        pool.scratch.put(blobs)
        pool.scratch.put(more)

        def ask(case: Case) -> tuple[Observation, str, int]:
            reply = pool.submit("observe", tasks.observe_argument(case, "direct"), timeout=120).result()
            return of_reply(reply), reply.dirty, reply.pid

        first, again, second, third = ask(good), ask(good), ask(bad), ask(good)
    print(first, again, second, third)
    assert pool.mode == "fork"
    assert (again[1], again[2]) == ("", first[2])
    assert first[0].seen is Seen.PASS
    assert second[0].seen is Seen.INVALID  # eager fails, too
    assert "cannot be used any more" in second[1]
    assert third[0].seen is Seen.PASS
    assert third[2] != first[2]


def test_a_device_assert_of_what_was_compiled_has_the_signature_of_its_assertion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (PROGRAMS / "late_fault.py").read_text().partition("def model")[0]
    (tmp_path / "late_backend.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    late = importlib.import_module("late_backend").late
    case, blobs = case_of(Relu(), torch.randn(8, 8, device="cuda"), backend=late)
    seen = []
    with Pool(case.backend) as pool:
        pool.scratch.put(blobs)
        for entry in tasks.ENTRIES:
            observed = of_reply(pool.submit("observe", tasks.observe_argument(case, entry), timeout=120).result())
            print(observed)
            assert observed.failure is not None
            assert observed.failure.kind is FailureKind.RUNTIME_ERROR
            seen.append(signature(observed.failure))
    print(seen)
    assert seen[0].diagnostics == seen[1].diagnostics
    assert "index out of bounds" in seen[0].diagnostics
    assert not re.search(r"\d", seen[0].diagnostics)


def test_what_no_device_has_is_not_present() -> None:
    torch.zeros(1, device="cuda")
    assert devices.present("cuda:0")
    assert not devices.present("cuda:99")
    assert devices.initialised() == "cuda"
    assert devices.dead() == ""


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_workers_are_kept_and_a_new_one_can_use_the_device(backend: str) -> None:
    case, blobs = case_of(Relu(), torch.randn(4, device="cuda"), backend=backend)
    argument = tasks.observe_argument(case, "compile")
    with Pool(case.backend) as pool:
        pool.scratch.put(blobs)
        replies = [pool.submit("observe", argument, timeout=120, fresh=n == 2).result() for n in range(4)]
    print([(reply.ended, reply.pid, reply.dirty, of_reply(reply)) for reply in replies])
    assert {of_reply(reply).seen for reply in replies} == {Seen.PASS}
    assert [reply.dirty for reply in replies] == [""] * 4
    assert replies[0].pid == replies[1].pid != replies[2].pid
