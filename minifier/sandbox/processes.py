"""Linux processes for the sandbox: death signals, subreapers, process groups.

A worker leads its own session, so killing its process group also kills the compilers it started. Processes that left
the group, such as a daemon of a backend, are found through psutil, or become children of the zygote, which is a
subreaper.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send ``signum`` to this process when its parent dies; leave at once if it already has.

    A ``parent`` of 0 is not known, since another program has started this process.
    Linux sends it when the *thread* that forked this process ends, so it suits children of single-threaded parents.
    """
    _prctl(_PR_SET_PDEATHSIG, signum)
    if parent and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_tree(pid: int) -> None:
    """SIGKILL to the process, its group if it leads one, and every descendant, wherever they moved."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        family = []
    kill_group(pid)
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue


def kill_group(pid: int) -> None:
    """SIGKILL to the group ``pid`` leads, or to ``pid`` alone while it has not become a leader yet."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_children(seconds: float = 5.0) -> None:
    """Send SIGKILL to every descendant of this process until all are gone, and reap them."""
    end = time.monotonic() + seconds
    me = psutil.Process()
    while (family := me.children(recursive=True)) and time.monotonic() < end:
        for process in family:
            try:
                process.kill()
            except psutil.Error:
                continue
        reap()
        time.sleep(0.01)


def reap() -> None:
    """Collect every dead child without waiting."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def resident(pid: int) -> int:
    """Bytes resident in the process and its descendants, 0 once it is gone. Shared pages count in each."""
    total = 0
    try:
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            try:
                total += member.memory_info().rss
            except psutil.Error:
                continue
    except psutil.Error:
        return 0
    return total


def limit_resources(memory: int) -> None:
    """No core files; and allocations fail where ``memory`` bytes of private data are added to those in use now."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        with open("/proc/self/statm") as file:
            in_use = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + memory, in_use + memory))


def threads() -> int:
    """Return the number of threads of this process, including threads of libraries."""
    return len(os.listdir("/proc/self/task"))


def oom_kills() -> int:
    """Return how often the kernel killed a process for lack of memory since boot, or 0 if it keeps no count."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
