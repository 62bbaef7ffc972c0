"""The zygote: imports everything once, then forks workers and reaps them.

It never compiles and never runs an operator, so it has no threads that a fork would lose. It communicates with the
driver only. Each worker leads its own session. When a worker ends, the rest of its process group is killed *before* the
worker is reaped, because until then no other group can get its number. When the driver closes the channel or dies, the
zygote kills every descendant, orphans included (it is a subreaper), and removes the scratch directory.

Started by the driver, which itself never imports torch, as ``python -m fxminify.minifier.sandbox.zygote FD MODE PID``.
In mode ``spawn`` it imports nothing and starts each worker as a fresh program: CUDA does not survive a fork. It goes
over to that mode when something that it imported for its workers began to use an accelerator.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
from typing import NoReturn

from ...backends.running import devices
from .messages import Broken, Channel, Exited, Fork, Forked, Ready, Setup
from .prepare import CannotImport, preload, prepare
from .processes import adopt_orphans, die_with_parent, kill_children, kill_group, threads
from .scratch import Scratch


class Zygote:
    def __init__(self, channel: Channel, setup: Setup, mode: str) -> None:
        self.channel = channel
        self.setup = setup
        self.mode = mode
        self.workers: set[int] = set()
        self.wake, wake = socket.socketpair()
        for end in (self.wake, wake):
            end.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up descriptor is written
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork on request and report workers that ended, until the driver is gone."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.wake.fileno() in ready:
                self.wake.recv(4096)
                self.reap()
            if self.channel.fileno() in ready:
                message, fds = self.channel.receive_with_fds()
                assert isinstance(message, Fork)
                assert len(fds) == 1
                preload(message.preload)
                if message.preload and self.mode == "fork" and not devices.survives_a_fork():
                    self.mode = "spawn"
                pid = self.fork(fds[0]) if self.mode == "fork" else self.spawn(fds[0])
                os.close(fds[0])
                self.workers.add(pid)
                self.channel.send(Forked(message.number, pid, self.mode == "spawn"))

    def fork(self, fd: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.be_worker(fd, parent)
        return pid

    def be_worker(self, fd: int, parent: int) -> NoReturn:
        from . import worker

        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for end in (self.wake, self._wake, self.channel):
                end.close()
            worker.run(Channel(socket.socket(fileno=fd)), self.setup, parent)
        finally:
            os._exit(1)

    def spawn(self, fd: int) -> int:
        command = [sys.executable, "-P", "-m", f"{__package__}.worker", str(fd)]
        process = subprocess.Popen(command, pass_fds=(fd,), start_new_session=True, stdin=subprocess.DEVNULL)
        process.returncode = 0  # we reap it ourselves, by pid
        return process.pid

    def reap(self) -> None:
        """Reap every dead child; of a worker, kill the rest of its group first."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            if dead.si_pid in self.workers:
                kill_group(dead.si_pid)
            _, status = os.waitpid(dead.si_pid, 0)
            if dead.si_pid in self.workers:
                self.workers.discard(dead.si_pid)
                self.channel.send(Exited(dead.si_pid, os.waitstatus_to_exitcode(status)))


def main(argv: list[str]) -> int:
    channel = Channel(socket.socket(fileno=int(argv[1])))
    mode, driver = argv[2], int(argv[3])
    os.set_inheritable(channel.fileno(), False)
    die_with_parent(driver)  # while imports run, the channel is not read
    setup = channel.receive()
    assert isinstance(setup, Setup)
    try:
        ready = prepare(setup) if mode == "fork" else Ready(os.getpid(), threads=threads())
    except CannotImport as exc:
        channel.send(Broken(exc.module, exc.error))
        return 1
    die_with_parent(driver, 0)  # from here on the end of the channel says it, and leaves time to clean up
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    adopt_orphans()
    gc.freeze()
    try:
        channel.send(ready)
        Zygote(channel, setup, mode).serve()
    except (EOFError, ConnectionError):
        return 0
    finally:
        kill_children()
        Scratch(setup.scratch).remove()
    return 0


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stderr.flush()
    os._exit(code)
