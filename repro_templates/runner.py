"""Run a script as ``__main__`` and write down how it ended: ``main([SCRIPT, REPORT])``.

The report is JSON: ``{"exit": 0}`` if the script ended without an error, otherwise
``{"failure": {...}, "blocked_reason": "..."}``. Both also have ``{"versions": {...}}`` of the modules it imported. A
process that dies leaves no report. `fxminify.repro_templates.processes` calls this in a fresh process; the script
itself never needs it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..backends.running.exceptions import exit_code
from .tracebacks import blocked_reason, failure_in_script


def main(arguments: list[str]) -> int:
    """Run ``arguments[0]`` and write the report ``arguments[1]``; the exit code is the script's."""
    script, report = arguments
    sys.argv = [script]
    return watch(lambda: runpy.run_path(script, run_name="__main__"), script, report)


def watch(run: Callable[[], object], script: str, report: str) -> int:
    """Call ``run``, which executes the file ``script``, and write the report; the exit code is the script's."""
    faulthandler.enable()
    if hasattr(signal, "SIGALRM"):
        # The stack first, then the default action: the process dies of the signal as the plain script does.
        faulthandler.register(signal.SIGALRM, chain=True)
    ended: dict[str, Any] = {"exit": 0}
    try:
        run()
    except BaseException as exc:  # noqa: BLE001  whatever ends the script is what the report is about
        code = exit_code(exc) if isinstance(exc, SystemExit) else 1
        failure = asdict(failure_in_script(exc, os.path.basename(script)))
        ended = {"exit": code, "failure": failure, "blocked_reason": blocked_reason(exc)} if code else {"exit": 0}
        if isinstance(exc, SystemExit) and isinstance(exc.code, str):
            print(exc.code, file=sys.stderr)
    ended["versions"] = versions()
    with open(report, "w", encoding="utf-8") as file:
        json.dump(ended, file)
    return int(ended["exit"])


def versions() -> dict[str, str]:
    """The versions that imported top-level packages say they have, and Python's."""
    own = {
        n: getattr(m, "__dict__", {}).get("__version__")
        for n, m in [*sys.modules.items()]
        if n not in sys.stdlib_module_names
    }
    return {"python": platform.python_version()} | {
        name: version for name, version in own.items() if "." not in name and isinstance(version, str)
    }
