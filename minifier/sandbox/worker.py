"""A worker: a process that answers one request after another. Any request may kill it.

* During a request file descriptors 1 and 2 go to files that the *driver* reads. What a compiler printed is kept even if
  the process crashes.
* The worker announces each phase as it begins, so the driver knows which phase a crash or a hang interrupted.
* A request that changes the state of the process (a default dtype, a directory, the environment), or after which its
  accelerator cannot be used any more, makes the worker *dirty*. It answers, and is replaced before the next request.
* The worker reports the modules it had to import, so that the zygote can import them before the next fork.
* It ends by `os._exit`, so that no destructor of a broken library can change how the process ends.

Forked by the zygote, or started as ``python -m fxminify.minifier.sandbox.worker FD`` where forking cannot serve.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator

from ...backends.running import devices
from . import stacks
from .messages import Answer, Broken, Channel, Imported, Json, Mark, Message, Ready, Request, Setup
from .prepare import CannotImport, changes, fingerprint, prepare
from .processes import die_with_parent, limit_resources
from .scratch import Scratch

#: A task: argument, the shared directory, and the function that announces phases; returns JSON.
Task = Callable[[Json, Scratch, Callable[[str], None]], Json]

#: What the driver asks for by name; tests may name a task of their own as ``module:function``.
TASKS = {
    "observe": "fxminify.minifier.oracle.tasks:observe",
    "observe_limited": "fxminify.minifier.oracle.tasks:observe_limited",
    "judge": "fxminify.minifier.oracle.tasks:judge",
    "record": "fxminify.minifier.oracle.tasks:record",
    "study": "fxminify.minifier.oracle.tasks:study",
    "way": "fxminify.minifier.oracle.tasks:way",
    "validity": "fxminify.minifier.oracle.tasks:validity",
    "rules": "fxminify.minifier.oracle.tasks:rules",
    "fakes": "fxminify.minifier.oracle.tasks:fakes",
    "describe": "fxminify.minifier.oracle.tasks:describe",
    "load": "fxminify.minifier.oracle.tasks:load",
    "programs": "fxminify.minifier.hunting.tasks:list_programs",
    "program": "fxminify.minifier.hunting.tasks:run",
}


def run(channel: Channel, setup: Setup, parent: int) -> None:
    """Be a worker until the driver hangs up. Called in a child of the zygote; never returns."""
    code = 1
    try:
        die_with_parent(parent)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_DFL)
        scratch = Scratch(setup.scratch)
        os.chdir(scratch.work)
        limit_resources(setup.memory)
        faulthandler.enable(2, all_threads=False)
        stacks.answer()
        serve(channel, scratch)
        code = 0
    except (EOFError, OSError):  # the driver is gone: there is no receiver
        code = 0
    except BaseException:  # noqa: BLE001  the process ends here: say why in the log of the zygote
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(channel: Channel, scratch: Scratch) -> None:
    """Answer requests until the channel closes or one leaves the process dirty."""
    clean = fingerprint()
    imports = _Imports(channel)
    while True:
        request = channel.receive()
        assert isinstance(request, Request)
        answer = _answer(request, channel, scratch, imports)
        imports.tell()
        dirty = devices.dead() or changes(clean, fingerprint())
        channel.send(Answer(answer.query, answer.result, answer.error, dirty))
        if dirty:
            return


class _Imports:
    """Reports new modules to the driver before each phase, so that a crash does not lose them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.told = len(sys.modules)

    def tell(self) -> None:
        if len(sys.modules) > self.told:
            names = list(sys.modules)[self.told :]
            self.told += len(names)
            self.channel.send(Imported(names, bool(devices.initialised())))


def _answer(request: Request, channel: Channel, scratch: Scratch, imports: _Imports) -> Answer:
    def mark(phase: str) -> None:
        imports.tell()
        channel.send(Mark(request.query, phase))

    with redirected(request.stdout, request.stderr):
        try:
            task = _task(request.task)
            result = task(request.argument, scratch, mark)
        except BaseException as exc:  # noqa: BLE001  a task reports failures of backends itself: this one is ours
            traceback.print_exc()
            return Answer(request.query, error="".join(traceback.format_exception_only(exc)).strip())
    return Answer(request.query, result)


def _task(name: str) -> Task:
    module, _, function = TASKS.get(name, name).partition(":")
    task: Task = getattr(importlib.import_module(module), function)
    return task


@contextlib.contextmanager
def redirected(stdout: str, stderr: str) -> Iterator[None]:
    """File descriptors 1 and 2 into two files while the block runs; afterwards into the second one still."""
    _flush()
    for path, fd in ((stdout, 1), (stderr, 2)):
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(target, fd)
        os.close(target)
    try:
        yield
    finally:
        _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a backend closed or replaced it
            stream.flush()


def main(argv: list[str]) -> None:
    """Entry of a spawned worker: the channel is an inherited file descriptor, the first message is the `Setup`."""
    channel = Channel(socket.socket(fileno=int(argv[1])))
    setup = channel.receive()
    assert isinstance(setup, Setup)
    reply: Message
    try:
        reply = prepare(setup)
    except CannotImport as exc:
        reply = Broken(exc.module, exc.error)
    channel.send(reply)
    if isinstance(reply, Ready):
        run(channel, setup, os.getppid())


if __name__ == "__main__":
    main(sys.argv)
