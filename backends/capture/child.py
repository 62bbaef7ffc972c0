"""The start of every Python process of a supervised program: it installs the hook and cleans up after itself.

`backends.capture.supervise` starts the program with plain ``python``, so ``__main__``, tracebacks, exit codes and
``atexit`` are as usual. A directory on ``PYTHONPATH`` has a ``sitecustomize`` module of two lines, which calls `start`,
and beside it `SETTINGS`. Processes that the program starts inherit this.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .journal import Journal

#: A file with the arguments of `_arm` as JSON, beside ``sitecustomize.py``.
SETTINGS = "settings.json"
SITECUSTOMIZE = "from fxminify.backends.capture.child import start\nstart(__file__)\n"


def start(customization: str) -> None:
    """Install the hook as the parent asked, then let the program's own ``sitecustomize`` run."""
    directory = os.path.dirname(os.path.abspath(customization))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != directory]
    try:
        _arm(os.path.join(directory, SETTINGS))
    except Exception as exc:  # noqa: BLE001  the program must run, captured or not
        print(f"minify: failures of this process cannot be captured: {type(exc).__name__}: {exc}", file=sys.stderr)
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as exc:
        if exc.name != "sitecustomize":
            raise
        if ours is not None:  # the import system looks for it once more when this module's execution ends
            sys.modules["sitecustomize"] = ours


def is_armed() -> bool:
    """Whether this process runs under `minify capture`."""
    return _armed


_armed = False


def _arm(settings: str) -> None:
    global _armed
    with open(settings, encoding="utf-8") as file:
        asked = json.load(file)
    if not os.path.isdir(asked["journal"]):  # the parent has ended already
        return
    _armed = True
    from . import hook, standard_error
    from .journal import Journal

    standard_error.use(asked.get("relay"))

    journal = Journal(asked["journal"])
    if not faulthandler.is_enabled():  # the stack of a crash goes to the parent, not to the terminal
        faulthandler.enable(journal.faults(), all_threads=False)
    hook.install(asked["db"], journal=journal, **asked["settings"])
    _at_an_uncaught_exception(journal)


def _at_an_uncaught_exception(journal: Journal) -> None:
    """Tell the parent its type, and print it without the frames of the hook."""
    from ..running.exceptions import leave_us_out

    printed = sys.excepthook

    def excepthook(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
        leave_us_out(exc)
        journal.tell("uncaught", f"{os.getpid()} {kind.__name__}")
        printed(kind, exc, trace)

    sys.excepthook = excepthook
