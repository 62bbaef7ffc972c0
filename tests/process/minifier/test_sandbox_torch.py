"""The sandbox with torch: each trap of forking and of broken backends that was met in practice.

The traps of forking were measured one by one: a parent that ran a two-thread parallel region, or that owns a compile
pool, hangs its children. So the zygote has one thread, runs nothing, and forbids the pool before it imports.
"""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from alive import alive
from captured import capture, spec
from replies import failure_of

from fxminify.backends.running.processor_wait import ProcessorWait
from fxminify.minifier.oracle import tasks
from fxminify.minifier.oracle.observation import Seen, of_reply
from fxminify.minifier.sandbox.launcher import BackendImportError, SandboxError
from fxminify.minifier.sandbox.messages import Imported
from fxminify.minifier.sandbox.pool import Ended, Pool, Reply
from fxminify.store.document.case import to_json
from fxminify.store.failure import FailureKind, Phase
from fxminify.store.signature import signature

SHARED = str(pathlib.Path(__file__).parents[2] / "shared")


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(spec("healthy").to_json(), path=[SHARED], memory=1536 << 20) as pool:
        yield pool


def run(pool: Pool, task: str, timeout: float = 60.0, **argument: object) -> Reply:
    return pool.submit(f"sandbox_torch_tasks:{task}", argument, timeout=timeout).result(120)


def observe(
    pool: Pool,
    backend: str,
    function: Callable[..., object] = relu,
    *,
    entry: str = "direct",
    timeout: float = 60.0,
    fresh: bool = False,
) -> Reply:
    case, blobs = capture(function, (torch.ones(4),), spec(backend))
    pool.scratch.put(blobs)
    argument = tasks.observe_argument(case, entry)
    return pool.submit("observe", argument, timeout=timeout, fresh=fresh).result(120)


def test_the_zygote_has_one_thread_and_no_cuda(pool: Pool) -> None:
    ready = pool.launcher.ready
    assert ready is not None
    assert (ready.threads, ready.cuda, ready.torch) == (1, False, torch.__version__)


def test_workers_start_with_one_thread(pool: Pool) -> None:
    assert run(pool, "threads").result["threads"] == 1


def test_a_parallel_region_in_a_child(pool: Pool) -> None:
    assert run(pool, "two_threads").result == {"total": float(2 << 20)}


@pytest.mark.slow
def test_a_parallel_region_in_the_driver_does_not_matter() -> None:
    """The driver may be any program: it ran in parallel, and has threads."""
    torch.set_num_threads(2)
    torch.ones(1 << 20).mul(2).sum()
    try:
        with Pool(spec("healthy").to_json(), path=[SHARED]) as own:
            assert run(own, "two_threads").result == {"total": float(2 << 20)}
    finally:
        torch.set_num_threads(1)


def test_a_backend_has_as_many_threads_as_in_a_process_of_its_own(pool: Pool) -> None:
    done = subprocess.run([sys.executable, "-c", "import torch; print(torch.get_num_threads())"], stdout=-1, check=True)
    assert failure_of(observe(pool, "counts_threads")).message == f"{int(done.stdout)} threads"
    assert run(pool, "threads").result["threads"] == 1


def test_threads_for_one_observation_only(pool: Pool) -> None:
    case, blobs = capture(relu, (torch.ones(4),), spec("counts_threads"))
    pool.scratch.put(blobs)
    argument = tasks.observe_argument(case, "direct", threads=3)
    assert failure_of(pool.submit("observe", argument, timeout=60).result()).message == "3 threads"
    assert run(pool, "threads").result["threads"] == 1


def test_backward_in_a_child(pool: Pool) -> None:
    assert run(pool, "backward").result == {"gradient": [2.0] * 8}


def test_a_backend_that_mutates_global_state_does_not_reach_the_next_candidate(pool: Pool) -> None:
    used = run(pool, "default_dtype").pid
    assert run(pool, "mutates").dirty == "default dtype (from torch.float32 to torch.float64)"
    after = run(pool, "default_dtype")
    assert after.result == {"dtype": "torch.float32"}
    assert after.pid != used
    assert observe(pool, "litters").ended is Ended.DONE
    assert run(pool, "default_dtype").result == {"dtype": "torch.float32"}


def test_a_segfault_in_the_compiler(pool: Pool) -> None:
    failure = failure_of(observe(pool, "segfaults"))
    assert (failure.kind, failure.phase, failure.signal) == (FailureKind.CRASH, Phase.COMPILE, signal.SIGSEGV)
    assert failure.diagnostics == "error: lowering relu\n"
    assert [f.function for f in failure.frames[-2:]] == ["segfaults", "string_at"]


@pytest.mark.parametrize("entry", tasks.ENTRIES)
def test_a_crash_at_run_is_the_same_through_both_entries(pool: Pool, entry: str) -> None:
    failure = failure_of(observe(pool, "aborts_at_run", entry=entry))
    assert (failure.kind, failure.phase, failure.signal) == (FailureKind.CRASH, Phase.FORWARD, signal.SIGFPE)
    assert (failure.frames[-1].file, failure.frames[-1].function) == ("faulty_backends.py", "run")


def test_leaving_by_os_exit_is_a_crash(pool: Pool) -> None:
    failure = failure_of(observe(pool, "leaves"))
    assert (failure.kind, failure.phase, failure.type, failure.signal) == (
        FailureKind.CRASH,
        Phase.COMPILE,
        "exit 3",
        None,
    )


def test_sys_exit_ends_a_program_and_not_a_worker(pool: Pool) -> None:
    reply = observe(pool, "exits")
    assert reply.ended is Ended.DONE
    failure = failure_of(reply)
    assert (failure.kind, failure.phase, failure.type, failure.signal) == (
        FailureKind.CRASH,
        Phase.COMPILE,
        "exit 4",
        None,
    )


@pytest.mark.parametrize("entry", tasks.ENTRIES)
def test_a_hang_ends_in_time(pool: Pool, entry: str) -> None:
    failure = failure_of(observe(pool, "hangs", entry=entry, timeout=2.0))  # it would hang for ever
    assert (failure.kind, failure.phase) == (FailureKind.HANG, Phase.COMPILE)


def test_a_memory_hog_is_out_of_memory(pool: Pool) -> None:
    failure = failure_of(observe(pool, "hogs"))
    assert (failure.kind, failure.phase) == (FailureKind.OUT_OF_MEMORY, Phase.COMPILE)


def test_one_huge_allocation_is_out_of_memory_too(pool: Pool) -> None:
    refused = failure_of(observe(pool, "allocates"))
    killed = failure_of(observe(pool, "hogs"))
    assert (refused.type, killed.type) == ("RuntimeError", "")
    assert signature(refused) == signature(killed)


def test_output_of_a_backend_comes_back(pool: Pool) -> None:
    reply = observe(pool, "chatters")
    assert of_reply(reply).seen is Seen.PASS
    assert reply.stdout == "compiling\n"
    assert reply.stderr == "a warning about an error\n"


def test_a_generic_message_is_told_apart_by_file_descriptor_2(pool: Pool) -> None:
    def sin(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 2)

    both = [failure_of(observe(pool, "generic", function)) for function in (relu, sin)]
    assert [f.message for f in both] == ["compilation failed"] * 2
    assert [signature(f).diagnostics for f in both] == [
        "error: failed to legalize operation 'torch.aten.relu'",
        "error: failed to legalize operation 'torch.aten.sin'",
    ]


def test_a_crash_of_eager_is_no_failure_of_the_backend(pool: Pool) -> None:
    """An index that is not checked takes the process with it before the backend is asked."""
    case, blobs = capture(relu, (torch.ones(4),), spec("healthy"))
    pool.scratch.put(blobs)
    argument = {"case": to_json(case), "signal": int(signal.SIGSEGV)}
    reply = pool.submit("sandbox_eager_crash:observe", argument, timeout=60).result()
    observation = of_reply(reply)
    assert (observation.seen, observation.detail) == (Seen.INVALID, "eager: died of SIGSEGV")


def test_a_case_whose_storage_is_missing_is_our_own_trouble(pool: Pool) -> None:
    case, _ = capture(relu, (torch.full((4,), 0.12345),), spec("healthy"))
    reply = pool.submit("observe", tasks.observe_argument(case, "direct"), timeout=60).result()
    assert of_reply(reply).seen is Seen.INFRA
    assert "are missing" in reply.error


def test_a_recording_lies_in_the_scratch_directory(pool: Pool) -> None:
    from fxminify.minifier.candidate.trace import Trace

    case, blobs = capture(lambda x: torch.relu(x).sin(), (torch.ones(4),), spec("healthy"))
    pool.scratch.put(blobs)
    reply = pool.submit("record", tasks.record_argument(case), timeout=60).result()
    trace = Trace.from_json(reply.result)
    tensor = trace.tensor("relu")
    assert tensor is not None
    assert tensor.shape == (4,)
    assert tensor.storage is not None
    assert len(pool.scratch[tensor.storage]) == 16


def test_a_case_travels_unchanged() -> None:
    case, _ = capture(torch.nn.BatchNorm1d(3), (torch.randn(5, 3),), spec("healthy"))
    assert tasks.case_from_json(to_json(case)) == case


def test_modules_that_a_worker_imports_are_there_in_the_next(pool: Pool) -> None:
    observe(pool, "healthy", entry="compile")
    pool.launcher.learn(Imported(["this.module.does.not.exist", "wave"]))
    pool.launcher.learn(Imported(["module.of.a.device"], device=True))
    again = observe(pool, "healthy", entry="compile", fresh=True)
    assert again.ended is Ended.DONE
    assert pool.launcher._preloaded == len(pool.launcher._imported) - 1
    assert pool.has_imported("module.of.a.device")


def test_workers_are_fresh_programs_once_a_module_has_begun_to_use_the_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module stands for one that begins to use an accelerator: each forked child then says that it cannot."""
    (tmp_path / "touches.py").write_text(
        "import torch, types\n"
        "torch.accelerator.current_accelerator = lambda: torch.device('cuda')\n"
        "torch.get_device_module = lambda device: types.SimpleNamespace(_is_in_bad_fork=lambda: True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Pool(spec("healthy").to_json(), path=[str(tmp_path)]) as pool:
        first = observe(pool, "healthy")
        pool.launcher.learn(Imported(["touches"]))
        again = [observe(pool, "healthy", fresh=True), observe(pool, "healthy")]
        command = psutil.Process(again[1].pid).cmdline()
    assert [reply.ended for reply in (first, *again)] == [Ended.DONE] * 3
    assert "fxminify.minifier.sandbox.worker" in command


def test_a_module_that_cannot_be_imported_is_named() -> None:
    missing = spec("team", "team_backend").to_json()
    began = psutil.Process().children(recursive=True)
    with pytest.raises(BackendImportError, match="cannot import 'team_backend': ModuleNotFoundError") as caught:
        Pool(missing).__enter__()
    assert caught.value.module == "team_backend"
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= {p.pid for p in began}


def test_a_module_that_raises_or_dies_while_it_is_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "raising_backend.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "dying_backend.py").write_text("import os\nos.write(2, b'no device')\nos._exit(3)\n")
    with pytest.raises(BackendImportError, match="'raising_backend': RuntimeError: no licence"):
        Pool(spec("x", "raising_backend").to_json(), path=[str(tmp_path)]).__enter__()
    with pytest.raises(SandboxError, match="died while importing the backend: no device"):
        Pool(spec("x", "dying_backend").to_json(), path=[str(tmp_path)]).__enter__()


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "starts"), [(1, 2), (9, 3)])
def test_a_start_that_a_signal_ends_is_tried_again(tmp_path: Path, killed: int, starts: int) -> None:
    (tmp_path / "team_backend.py").write_text(
        f"import os, torch._dynamo\nwith open({str(tmp_path / 'log')!r}, 'a') as log: log.write('x')\n"
        f"if os.path.getsize(log.name) <= {killed}: os.kill(os.getpid(), 9)\n"
        "@torch._dynamo.register_backend\ndef team(gm, inputs): return gm.forward\n"
    )
    pool = Pool(spec("team", "team_backend").to_json(), path=[str(tmp_path)])
    with contextlib.ExitStack() as stack:
        if killed < starts:
            stack.enter_context(pool)
        else:
            stack.enter_context(pytest.raises(SandboxError, match="died while importing the backend"))
            pool.__enter__()
    assert (tmp_path / "log").read_text() == "x" * starts


def test_a_name_that_nobody_registers_is_named() -> None:
    with pytest.raises(BackendImportError, match="registers no backend called 'no_such_backend'"):
        Pool(spec("no_such_backend").to_json()).__enter__()


@pytest.mark.slow
def test_an_import_that_hangs_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "slow_backend.py").write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(SandboxError, match="took more than 4 s"):
        Pool(spec("x", "slow_backend").to_json(), path=[str(tmp_path)], start_timeout=4).__enter__()


@pytest.mark.slow
def test_a_start_is_not_given_up_while_it_waits_for_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit counts the time in which it could run, and here the kernel is made to say that it could not."""
    registers = "@__import__('torch')._dynamo.register_backend\ndef x(gm, inputs): return gm.forward\n"
    (tmp_path / "patient_backend.py").write_text(f"import time\ntime.sleep(5)\nimport torch._dynamo\n{registers}")
    monkeypatch.setattr(ProcessorWait, "look", lambda waits: 60.0)
    with Pool(spec("x", "patient_backend").to_json(), path=[str(tmp_path)], start_timeout=4) as pool:
        assert pool.start().torch == torch.__version__


@pytest.mark.slow
def test_spawned_workers_observe_alike() -> None:
    with Pool(spec("healthy").to_json(), path=[SHARED], mode="spawn") as own:
        first = observe(own, "cannot_lower")
        assert failure_of(first).message == "cannot lower relu"
        assert observe(own, "healthy").pid == first.pid
        assert failure_of(observe(own, "segfaults")).signal == signal.SIGSEGV


@pytest.mark.slow
def test_a_spawned_worker_that_cannot_import_names_the_module() -> None:
    with Pool(spec("team", "team_backend").to_json(), mode="spawn") as own:
        reply = own.submit("observe", {}, timeout=5).result(60)
    assert reply.ended is Ended.INFRA
    assert "cannot import 'team_backend'" in reply.error


def test_the_probe_that_warms_inductor_exists_and_is_cached() -> None:
    from torch._inductor import cpu_vec_isa

    assert callable(cpu_vec_isa.valid_vec_isa_list.cache_info)
    assert importlib.util.find_spec("torch._inductor.codegen.cpp") is not None


@pytest.mark.slow
def test_inductor_compiles_in_workers() -> None:
    with Pool(spec("inductor", "").to_json(), path=[SHARED], jobs=2) as own:
        futures = [own.submit("sandbox_torch_tasks:compiles", {"graphs": 3}, timeout=300) for _ in range(4)]
        assert [f.result().result for f in futures] == [{"out": [0.0, 8.0, 16.0]}] * 4
        case, blobs = capture(relu, (torch.ones(4),), spec("inductor", ""))
        own.scratch.put(blobs)
        for entry in tasks.ENTRIES:
            reply = own.submit("observe", tasks.observe_argument(case, entry), timeout=300).result()
            assert of_reply(reply).seen is Seen.PASS
        assert own.counts.workers == 2
        assert own.counts.dirty == 0


@pytest.mark.slow
def test_a_compiler_started_by_a_worker_ends_with_it() -> None:
    """Inductor runs g++: killed in the middle of it, nothing may be left."""
    others = {p.pid for p in psutil.Process().children(recursive=True)}
    with Pool(spec("inductor", "").to_json(), path=[SHARED]) as own:
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        futures = own.submit("sandbox_torch_tasks:compiles", {"graphs": 50}, timeout=60)
        end = time.monotonic() + 50
        while time.monotonic() < end:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended while it was asked
                names = [p.name() for p in psutil.Process().children(recursive=True) if p.pid not in before]
                if any("cc1plus" in n or "g++" in n for n in names):
                    break
            time.sleep(0.005)
        family = {p.pid for p in psutil.Process().children(recursive=True)} - others
        own.close()
        with pytest.raises(SandboxError):
            futures.result(1)
    assert not [pid for pid in family if alive(pid)]
    assert os.getpid() not in family
