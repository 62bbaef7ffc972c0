"""Tasks for the sandbox's own tests: what a broken backend does to the process it runs in, without torch."""

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Never

from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.store.document.case import Json

Mark = Callable[[str], None]


def echo(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    mark("eager")
    return {"pid": os.getpid(), "argument": argument, "storage": scratch.get(argument.get("key", ""), b"").hex()}


def segfault(argument: Json, scratch: Scratch, mark: Mark) -> None:
    mark("build")
    mark("compile")
    os.write(2, b"error: about to read address 0\n")
    ctypes.string_at(0)


def leave(argument: Json, scratch: Scratch, mark: Mark) -> None:
    mark("forward")
    os._exit(argument["code"])


def hang(argument: Json, scratch: Scratch, mark: Mark) -> None:
    """Hang in C without the GIL, after starting a child in the group and one that left it."""
    mark("compile")
    pids = [subprocess.Popen(["sleep", "600"], start_new_session=new).pid for new in (False, True)]
    (scratch.root / "pids").write_text(" ".join(map(str, pids)))
    while True:
        time.sleep(60)


def half_written(argument: Json, scratch: Scratch, mark: Mark) -> None:
    """Hangs, as a compiler that writes a library."""
    mark("compile")
    for name in ("cpart.main.so", "cwhole.main.so"):
        path = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ab", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(bytes.fromhex(argument["library"]) if "whole" in name else b"")
    time.sleep(600)


def own_signal(argument: Json, scratch: Scratch, mark: Mark) -> None:
    """Hangs, and has the signal that asks for a stack end the process."""
    mark("compile")
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    time.sleep(600)


def stuck(argument: Json, scratch: Scratch, mark: Mark) -> None:
    """Hangs with the GIL held: no Python code of this process runs any more."""
    mark("compile")
    ctypes.PyDLL(None).sleep(600)


def chatter(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    os.write(1, b"to fd 1\n")
    os.write(2, b"to fd 2\n")
    print("from print")
    print("from print to stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a child >&2"], check=True)
    return {}


def flood(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    os.write(2, b"first line\n")
    for _ in range(100):
        os.write(2, b"x" * 9999 + b"\n")
    os.write(2, b"last line\n")
    return {}


def hog(argument: Json, scratch: Scratch, mark: Mark) -> None:
    mark("compile")
    held = []
    while True:
        held.append(b"\x01" * (16 << 20))
        time.sleep(0.01)


def grab(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """Allocate more than any cap: this fails at once, by the resource limit."""
    try:
        bytearray(argument["bytes"])
    except MemoryError:
        return {"refused": True}
    return {"refused": False}


def litter(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    os.chdir("/")
    os.environ["LITTER"] = "1"
    return {"pid": os.getpid()}


def drop(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    with open("dropping.txt", "w") as file:
        file.write("x")
    return {"cwd": os.getcwd()}


def raises(argument: Json, scratch: Scratch, mark: Mark) -> Never:
    raise ValueError("our own mistake")


def quits(argument: Json, scratch: Scratch, mark: Mark) -> None:
    sys.exit(3)


def babble(argument: Json, scratch: Scratch, mark: Mark) -> None:
    """Writes garbage over every socket it finds, as a wild pointer might."""
    for fd in range(3, 64):
        try:
            os.write(fd, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)


def orphan(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """Answers, but leaves a daemon behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            (scratch.root / "orphan").write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    return {}


def threads(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    return {"threads": len(os.listdir("/proc/self/task")), "handlers": str(os.environ.get("PYTHONHASHSEED"))}


def environment(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """The environment as foreign code finds it: also that with which the process of its parent began."""
    inherited = Path("/proc/self/environ").read_bytes() + Path(f"/proc/{os.getppid()}/environ").read_bytes()
    return {"now": dict(os.environ), "began": inherited.decode("latin-1")}


def imports(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    importlib.import_module(argument["module"])
    return {}


def waits(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    mark("compile")
    time.sleep(argument["seconds"])
    return {}


def meet(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    """Answers once so many workers are at it at the same time."""
    mark("compile")
    (scratch.root / f"here.{os.getpid()}").touch()
    while len(list(scratch.root.glob("here.*"))) < argument["workers"]:
        time.sleep(0.01)
    return {}


def records(argument: Json, scratch: Scratch, mark: Mark) -> Json:
    scratch.write(argument["key"], bytes.fromhex(argument["data"]))
    return {"tensors": [{"storage": argument["key"]}]}
