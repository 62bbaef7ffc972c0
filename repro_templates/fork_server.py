"""A process that has done the imports of a script, forked for each run of it: ``python fork_server.py FD``.

The idea is AFL's deferred fork server: the expensive beginning that all runs share is done once, and each run is a
child that continues from there. The process is started as ``python repro.py`` would be. It imports nothing before
the script's own import statements, which it executes in the script's order, and nothing of fxminify at all. It
stays single-threaded. If an import leaves a thread behind, or fails, it ends, and the caller runs the script in
processes of its own.

Requests are marshalled dictionaries in files, whose names are read from the descriptor FD, a line each. The first
one has the imports, each other one is a run. A FIFO reports the process id of a run and then its exit code, a line
each. A watching process stands between the run and this process: it ends the run's process group when the run is
over, and also when the reader of the FIFO is gone.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # `typing.TYPE_CHECKING` without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NAME = "repro.py"


def main(descriptor: int) -> Callable[[], None] | None:
    """Serve until the descriptor is closed. Returns None where the imports cannot be shared, and in a child the run."""
    os.set_inheritable(descriptor, False)
    if (first := _receive(descriptor)) is None:
        return None
    module = _main_module(first["directory"])
    sys.path[0], sys.argv = first["directory"], [_NAME]
    sys.modules["__main__"] = module
    seed = None
    gc.disable()  # imports make objects that stay: to look through them again and again is a quarter of the time
    for line in first["imports"].splitlines():
        exec(compile(line, module.__file__, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  a script
        if seed is None and "torch" in sys.modules:
            seed = sys.modules["torch"].default_generator.initial_seed()
    gc.freeze()
    gc.unfreeze()  # they are the oldest generation, as if they had been looked through
    gc.enable()
    os.close(os.pidfd_open(os.getpid()))  # fails where the kernel does not know this
    if _has_threads():
        return None
    with open(first["ready"], "wb"):
        sys.stderr.flush()
    watchers: list[int] = []
    while (request := _receive(descriptor)) is not None:
        watchers = [pid for pid in watchers if os.waitpid(pid, os.WNOHANG)[0] == 0]
        watcher = os.fork()
        if watcher == 0:
            os.close(descriptor)
            _watch(request["fifo"])
            return lambda: _run(request, module, first["output"], seed)
        watchers.append(watcher)
    for pid in watchers:
        os.waitpid(pid, 0)
    os._exit(0)


def _main_module(directory: str) -> Any:
    """A module `__main__` as Python makes it for a script in ``directory``."""
    path = os.path.join(directory, _NAME)
    module = type(sys)("__main__")
    own = {name: value for name, value in globals().items() if name.startswith("__")}
    module.__dict__.update(own, __doc__=None, __file__=path, __loader__=type(own["__loader__"])("__main__", path))
    return module


def _has_threads() -> bool:
    """Return whether a thread outlives a fork in this process. The threads of OpenBLAS, which numpy starts, end by
    themselves.
    """
    probe = os.fork()
    if probe == 0:
        os._exit(0)
    os.waitpid(probe, 0)
    return len(os.listdir("/proc/self/task")) != 1


def _watch(path: str) -> None:
    """Fork the run, tell the FIFO ``path`` how it ends, and leave. Returns in the run."""
    import select

    fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # fails without a reader
    run = os.fork()
    if run == 0:
        os.close(fifo)
        os.setsid()
        return
    try:
        ended = os.pidfd_open(run)
        os.write(fifo, b"%d\n" % run)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(fifo, 0)  # poll always reports the end of its reader
        poll.poll()
        _kill_group(run)
        status: Any = os.waitid(os.P_PID, run, os.WEXITED | os.WNOWAIT)  # not reaped yet: the number stays taken
        os.write(fifo, b"%d\n" % (status.si_status if status.si_code == os.CLD_EXITED else -status.si_status))
        poll.unregister(ended)
        poll.poll()  # the reader may kill the group until it has read
    finally:
        _kill_group(run)
        os._exit(0)


def _kill_group(leader: int) -> None:
    for kill in (os.killpg, os.kill):  # it leads no group yet in its first moment
        try:
            kill(leader, 9)
        except ProcessLookupError:
            continue


def _run(request: dict[str, Any], module: Any, said: str, seed: int | None) -> None:
    """Be the run: what is left of the script, as its own process would execute it.

    The file ``said`` has what the imports wrote. ``seed`` is what torch drew for itself: another run draws another one.
    Python's generator sees to that after a fork.
    """
    directory = request["directory"]
    path = os.path.join(directory, _NAME)
    os.chdir(directory)
    if sys.path_importer_cache.pop(sys.path[0], None) is not None:
        sys.path_importer_cache[directory] = _finder(directory)
    sys.path_importer_cache[path] = sys.path_importer_cache.pop(os.path.abspath(__file__), None)
    sys.path[0], sys.argv, sys.orig_argv = directory, [_NAME], request["command"]
    module.__file__ = module.__loader__.path = path
    module.__doc__ = request["doc"]
    errors = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with open(said, "rb") as written:
        os.write(errors, written.read())
    os.dup2(errors, 2)
    os.close(errors)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if (generator := sys.modules["torch"].default_generator).initial_seed() == seed:
        generator.seed()

    def rest() -> None:
        name = path if request["report"] is None else _NAME
        exec(compile(request["rest"], name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  a script

    if request["report"] is not None:
        sys.path.append(request["home"])  # this package may be where no script looks
        from fxminify.repro_templates.runner import watch

        sys.path.pop()
        sys.exit(watch(rest, _NAME, request["report"]))
    try:
        rest()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  whatever ends the script is printed as Python prints it
        trace: Any = error.__traceback__
        trace = trace.tb_next.tb_next  # without the frames of this function and of `rest`
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _finder(directory: str) -> Any:
    """Return the finder for modules in ``directory`` that an import would use."""
    for hook in sys.path_hooks:
        try:
            return hook(directory)
        except ImportError:
            continue
    return None


def _receive(descriptor: int) -> dict[str, Any] | None:
    """The next request; None when there is no other."""
    import marshal

    path = b""
    while not path.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return None
        path += byte
    with open(path[:-1], "rb") as file:
        request: dict[str, Any] = marshal.load(file)
    return request


if __name__ == "__main__":
    run = main(int(sys.argv[1]))
    if run is not None:
        run()
