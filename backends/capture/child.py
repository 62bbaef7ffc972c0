"""The start of every Python process of a supervised program: it installs the hook and cleans up after itself.

`backends.capture.supervise` starts the program with plain ``python``, so ``__main__``, tracebacks, exit codes and
``atexit`` are as usual. A directory on ``PYTHONPATH`` has a ``sitecustomize`` module of two lines, which calls `start`,
and beside it `SETTINGS`. Processes that the program starts inherit this.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .journal import Journal

#: The folder of a journal that goes on ``PYTHONPATH``, and its file with the arguments of `_arm` as JSON.
SITE = "site"
SETTINGS = "settings.json"
SITECUSTOMIZE = "from fxminify.backends.capture.child import start\nstart(__file__)\n"


def prepare(directory: Path, asked: dict[str, Any]) -> None:
    """Make ``directory`` ready for the processes of a program.

    ``asked`` has the ``journal``. To capture it also has ``db``, ``settings`` and ``relay``; to compile only some
    graphs the ``selection`` (`backends.capture.selection`).
    """
    (directory / SITE).mkdir()
    (directory / SITE / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (directory / SITE / SETTINGS).write_text(json.dumps(asked))


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of a program for which ``directory`` was prepared."""
    path = [str(directory / SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


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

    journal = Journal(asked["journal"])
    if "db" in asked:
        standard_error.use(asked.get("relay"))
        if not faulthandler.is_enabled():  # the stack of a crash goes to the parent, not to the terminal
            faulthandler.enable(journal.faults(), all_threads=False)
        hook.install(asked["db"], journal=journal, **asked["settings"])
    if "selection" in asked:
        from .selected_graphs import apply
        from .selection import GraphSelection

        apply(GraphSelection.from_json(asked["selection"]), journal, hook.observer() if "db" in asked else None)
    atexit.register(_at_the_end, journal)


def _at_the_end(journal: Journal) -> None:
    """Send the parent the type of the exception that ended the program, which Python notes before `sys.excepthook`."""
    exc = getattr(sys, "last_value", None)
    trace = exc.__traceback__ if isinstance(exc, BaseException) else None
    # Test runners and consoles note exceptions there, too, which ended nothing.
    if trace is not None and trace.tb_frame.f_code.co_name in ("<module>", "_run_module_as_main"):
        journal.tell("uncaught", f"{os.getpid()} {type(exc).__name__}")
