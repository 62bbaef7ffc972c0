"""The sandbox without torch: whatever a request does to its worker, the driver gets a reply and no process is left."""

import os
import pathlib
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import psutil
import pytest
from alive import alive

from fxminify.backends.provenance.access import Access
from fxminify.backends.running import confinement, deaths
from fxminify.backends.running.confinement import Confinement
from fxminify.backends.running.processor_wait import ProcessorWait
from fxminify.minifier.sandbox.launcher import SandboxError
from fxminify.minifier.sandbox.pool import Ended, Pool, Reply
from fxminify.minifier.sandbox.stacks import StackSampling, anchor, is_doubtful
from fxminify.store.document.case import Json

SHARED = str(pathlib.Path(__file__).parents[2] / "shared")
#: A shared library of one section header.
LIBRARY = b"\x7fELF" + bytes(36) + struct.pack("<Q", 64) + bytes(10) + struct.pack("<HH", 64, 1) + bytes(66)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(None, path=[SHARED], memory=512 << 20) as pool:
        yield pool


def ask(pool: Pool, task: str, argument: Json | None = None, timeout: float = 20.0, fresh: bool = False) -> Reply:
    return pool.submit(f"sandbox_tasks:{task}", argument or {}, timeout=timeout, fresh=fresh).result(60)


def descendants(pid: int | None = None) -> set[int]:
    return {p.pid for p in psutil.Process(pid).children(recursive=True)}


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def test_a_worker_answers_many_requests(pool: Pool) -> None:
    first, second = ask(pool, "echo", {"n": 1}), ask(pool, "echo", {"n": 2})
    assert first.ended is second.ended is Ended.DONE
    assert first.result["argument"] == {"n": 1}
    assert second.result["pid"] == first.result["pid"] == first.pid != os.getpid()
    assert list(first.marks) == ["eager"]


@pytest.mark.parametrize("confined", [False, True])
def test_workers_get_no_variables_but_those_that_the_question_named(
    confined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("TEAM_LEVEL", "2")
    how: dict[str, Any] = {"access": Access(("TEAM_LEVEL",))}
    if confined:
        if confinement._problem(Confinement()):
            pytest.skip("this system has no namespaces")
        how["confinement"] = Confinement()
    with Pool(None, path=[SHARED], memory=512 << 20, **how) as pool:
        found = ask(pool, "environment").result
    assert found["now"]["TEAM_LEVEL"] == "2"
    assert "AWS_SECRET_ACCESS_KEY" not in found["now"]
    assert "s3cret" not in found["began"]
    assert found["now"]["PATH"] == os.environ["PATH"]


def test_renewed_workers_know_nothing_of_what_was_before() -> None:
    with Pool(None, path=[SHARED], memory=512 << 20, jobs=2) as pool:
        pool.scratch.put({"key": b"\x01"})
        (pool.scratch.work / "left").touch()
        before = ask(pool, "echo").pid
        busy = [pool.submit("sandbox_tasks:hang", {}, timeout=60) for _ in range(4)]
        pool.renew()
        assert all(future.done() for future in busy)
        assert not alive(before)
        assert ("key" in pool.scratch, os.listdir(pool.scratch.work)) == (False, [])
        assert ask(pool, "echo").pid != before
        assert pool.launcher.starts == 1


def test_storages_reach_a_worker_as_files(pool: Pool) -> None:
    pool.scratch.put({"key": b"\x01\x02"})
    assert ask(pool, "echo", {"key": "key"}).result["storage"] == "0102"


def test_a_fresh_worker_has_answered_nothing_before(pool: Pool) -> None:
    used = ask(pool, "echo").pid
    assert ask(pool, "echo", fresh=True).pid != used


def test_a_crash_tells_signal_phase_and_what_was_printed(pool: Pool) -> None:
    reply = ask(pool, "segfault")
    assert (reply.ended, reply.signal, reply.phase) == (Ended.CRASH, signal.SIGSEGV, "compile")
    assert reply.stderr.startswith("error: about to read address 0\n")
    assert "Fatal Python error: Segmentation fault" in reply.stderr
    assert ask(pool, "echo").ended is Ended.DONE


def test_leaving_by_os_exit_is_a_crash_with_its_code(pool: Pool) -> None:
    for code in (0, 3):
        reply = ask(pool, "leave", {"code": code})
        assert (reply.ended, reply.signal, reply.exit_code, reply.phase) == (Ended.CRASH, None, code, "forward")


def test_a_hang_ends_in_time_with_all_its_children(pool: Pool) -> None:
    reply = ask(pool, "hang", timeout=0.5)  # it would hang for ever
    assert (reply.ended, reply.phase) == (Ended.TIMEOUT, "compile")
    pids = [int(p) for p in (pool.scratch.root / "pids").read_text().split()]
    assert wait_until(lambda: not any(map(alive, [reply.pid, *pids])))


def test_a_killed_compiler_leaves_half_a_library_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "users"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "users").mkdir()
    with Pool(None, path=[SHARED], memory=512 << 20) as pool:
        assert ask(pool, "half_written", {"library": LIBRARY.hex()}, timeout=1.0).ended is Ended.TIMEOUT
        assert pool.caches is not None
        place = Path(pool.caches.environment()["TORCHINDUCTOR_CACHE_DIR"])
        assert os.listdir(place / "ab") == ["cwhole.main.so"]
        busy = pool.submit("sandbox_tasks:half_written", {"library": LIBRARY.hex()}, timeout=60)
        assert wait_until(lambda: (place / "ab" / "cpart.main.so").exists())
    assert busy.done()
    assert not place.exists()
    assert os.listdir(tmp_path / "users") == []
    assert [path.name for path in (tmp_path / "home").rglob("*.so")] == ["cwhole.main.so"]


@pytest.mark.slow
def test_samples_tell_where_a_worker_hangs_and_another_one_is_ended_there(pool: Pool) -> None:
    def run(timeout: float, sampling: StackSampling) -> Reply:
        return pool.submit("sandbox_tasks:hang", {}, timeout=timeout, sampling=sampling).result(60)

    first = run(5.0, StackSampling(share=0.0))
    assert (first.ended, anchor(first.stacks).rpartition("/")[2]) == (Ended.TIMEOUT, "sandbox_tasks.py:hang")
    assert "sandbox_tasks.py" not in deaths.fault_frames(first.stderr)[1]
    alike = run(300.0, StackSampling(anchor(first.stacks), share=0.0))
    assert (alike.ended, alike.phase) == (Ended.TIMEOUT, "compile")
    assert alike.seconds < 150
    other = run(5.0, StackSampling("sandbox_tasks.py:elsewhere", share=0.0))
    assert (other.ended, other.seconds >= 5.0) == (Ended.TIMEOUT, True)


def test_a_sample_may_wake_code_in_c_so_what_it_shows_then_is_doubtful(pool: Pool) -> None:
    woken = pool.submit("sandbox_tasks:stuck", {}, timeout=20.0, sampling=StackSampling(share=0.0)).result(60)
    assert woken.ended is not Ended.TIMEOUT
    assert is_doubtful(woken.stacks, hangs=False, passes=False)


def test_what_takes_the_signal_of_samples_for_itself_is_not_sampled_again() -> None:
    at_once = StackSampling(share=0.0)
    with Pool(None, path=[SHARED], memory=512 << 20) as pool:
        sampled = pool.submit("sandbox_tasks:own_signal", {}, timeout=20.0, sampling=at_once).result(60)
        assert (sampled.ended, sampled.error) == (Ended.INFRA, "the backend does not let its stack be sampled")
        again = pool.submit("sandbox_tasks:own_signal", {}, timeout=3.0, sampling=at_once).result(60)
        assert (again.ended, again.stacks) == (Ended.TIMEOUT, ())


def test_a_hang_with_the_gil_held_ends_in_time(pool: Pool) -> None:
    reply = ask(pool, "stuck", timeout=0.5)
    assert (reply.ended, reply.phase) == (Ended.TIMEOUT, "compile")
    assert wait_until(lambda: not alive(reply.pid))


def three_quarters(wait: ProcessorWait) -> float:
    """Three quarters of the time since the last look, as on a busy machine."""
    before, wait._looked = wait._looked, time.monotonic()
    return 0.75 * (wait._looked - before)


def test_waiting_for_a_processor_does_not_count(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorWait, "look", three_quarters)
    reply = ask(pool, "hang", timeout=0.5, fresh=True)
    assert reply.ended is Ended.TIMEOUT
    assert reply.seconds - reply.cpu_wait_s > 0.4
    assert reply.seconds > 1.9, "three quarters of the time did not count"


def test_output_of_each_request_is_its_own(pool: Pool) -> None:
    reply = ask(pool, "chatter")
    assert reply.stdout == "to fd 1\nfrom print\n"
    assert reply.stderr == "to fd 2\nfrom print to stderr\nfrom a child\n"
    assert ask(pool, "echo").stderr == ""
    assert list((pool.scratch.root / "output").iterdir()) == []


def test_a_flood_of_output_keeps_its_beginning_and_end(pool: Pool) -> None:
    stderr = ask(pool, "flood").stderr
    assert stderr.startswith("first line\n")
    assert stderr.endswith("last line\n")
    assert len(stderr) < 70_000


def test_a_memory_hog_is_killed_at_the_cap(pool: Pool) -> None:
    reply = ask(pool, "hog")
    assert (reply.ended, reply.phase) == (Ended.MEMORY, "compile")
    assert "the cap is 512 MiB" in reply.error
    assert not alive(reply.pid)


def test_an_allocation_far_over_the_cap_is_refused(pool: Pool) -> None:
    assert ask(pool, "grab", {"bytes": 4 << 30}).result == {"refused": True}
    assert ask(pool, "grab", {"bytes": 64 << 20}).result == {"refused": False}


def test_a_worker_left_in_another_state_is_replaced(pool: Pool) -> None:
    reply = ask(pool, "litter")
    assert reply.dirty == f"$LITTER, current directory (from {pool.scratch.work} to /)"
    assert ask(pool, "echo").pid != reply.pid
    assert pool.counts.dirty == 1


def test_droppings_land_in_the_scratch_directory(pool: Pool) -> None:
    cwd = ask(pool, "drop").result["cwd"]
    assert pathlib.Path(cwd) == pool.scratch.work
    assert (pool.scratch.work / "dropping.txt").exists()


@pytest.mark.parametrize(("task", "error"), [("raises", "ValueError: our own mistake"), ("quits", "SystemExit: 3")])
def test_a_task_that_raises_is_our_own_trouble(pool: Pool, task: str, error: str) -> None:
    reply = ask(pool, task)
    assert (reply.ended, reply.error) == (Ended.INFRA, error)
    assert "Traceback" in reply.stderr


def test_a_worker_that_talks_garbage_is_our_own_trouble(pool: Pool) -> None:
    reply = ask(pool, "babble")
    assert reply.ended is Ended.INFRA
    assert "something else than an answer" in reply.error
    assert wait_until(lambda: not alive(reply.pid))


def test_a_worker_killed_while_idle_is_replaced(pool: Pool) -> None:
    idle = ask(pool, "echo").pid
    os.kill(idle, signal.SIGKILL)
    wait_until(lambda: not alive(idle))
    reply = ask(pool, "echo")
    assert reply.ended is Ended.DONE
    assert reply.pid != idle


def test_a_worker_killed_from_outside_is_no_failure(pool: Pool) -> None:
    future = pool.submit("sandbox_tasks:stuck", {}, timeout=30)
    worker = pool._slots[0]
    assert wait_until(lambda: worker.used and worker.worker is not None)
    time.sleep(0.3)
    assert worker.worker is not None
    os.kill(worker.worker.pid, signal.SIGKILL)
    reply = future.result(10)
    assert (reply.ended, reply.error) == (Ended.INFRA, "killed from outside")


def test_a_dead_zygote_is_started_again(pool: Pool) -> None:
    before = ask(pool, "echo").pid
    zygote = pool.launcher._process
    assert zygote is not None
    zygote.kill()
    zygote.wait()
    assert wait_until(lambda: not alive(before))
    assert ask(pool, "echo").ended is Ended.DONE
    assert pool.launcher.starts == 2


def test_workers_run_side_by_side() -> None:
    with Pool(None, path=[SHARED], jobs=3) as pool:
        futures = [pool.submit("sandbox_tasks:meet", {"workers": 3}, timeout=60.0) for _ in range(3)]
        assert [f.result(120).ended for f in futures] == [Ended.DONE] * 3


def test_closing_ends_every_process_and_cancels_what_waits() -> None:
    before = descendants()
    pool = Pool(None, path=[SHARED], jobs=1)
    pool.start()
    busy = pool.submit("sandbox_tasks:hang", {}, timeout=60)
    waiting = pool.submit("sandbox_tasks:echo", {}, timeout=60)
    assert wait_until(lambda: (pool.scratch.root / "pids").exists())
    time.sleep(0.1)
    family = descendants() - before
    root = pool.scratch.root
    pool.close()
    with pytest.raises(SandboxError, match="closed"):
        busy.result(5)
    with pytest.raises(CancelledError):
        waiting.result(5)
    assert len(family) >= 4
    assert not any(map(alive, family))
    assert not root.exists()
    with pytest.raises(SandboxError, match="closed"):
        pool.submit("sandbox_tasks:echo", {}, timeout=1)
    pool.close()


def test_a_daemon_that_outlives_its_worker_ends_with_the_pool() -> None:
    with Pool(None, path=[SHARED]) as pool:
        ask(pool, "orphan")
        file = pool.scratch.root / "orphan"
        assert wait_until(lambda: file.exists() and file.read_text())
        pid = int(file.read_text())
        assert alive(pid)
    assert not alive(pid)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_killed_leaves_nothing(tmp_path: Path, signum: int) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(f"""
        from fxminify.minifier.sandbox.pool import Pool
        with Pool(None, path=[{SHARED!r}], jobs=2) as pool:
            futures = [pool.submit("sandbox_tasks:" + t, {{}}, timeout=600) for t in ("hang", "stuck")]
            print(pool.scratch.root, flush=True)
            [f.result() for f in futures]
        """)
    )
    driver = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    root = pathlib.Path(driver.stdout.readline().strip())
    assert wait_until(lambda: (root / "pids").exists())
    time.sleep(0.3)
    family = descendants(driver.pid)
    assert len(family) == 5  # the zygote, two workers, two sleeping children
    driver.send_signal(signum)
    driver.wait(20)
    assert wait_until(lambda: not any(map(alive, family)))
    assert wait_until(lambda: not root.exists())


def test_spawned_workers_do_the_same() -> None:
    before = descendants()
    with Pool(None, path=[SHARED], mode="spawn", memory=512 << 20) as pool:
        first = ask(pool, "echo")
        assert first.pid == ask(pool, "echo").pid
        assert ask(pool, "segfault").signal == signal.SIGSEGV
        assert ask(pool, "hang", timeout=0.5).ended is Ended.TIMEOUT
        assert ask(pool, "hog").ended is Ended.MEMORY
        family = descendants() - before
    assert not any(map(alive, family))


def test_the_driver_does_not_load_torch() -> None:
    code = "import sys, fxminify.minifier.sandbox.pool; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
