"""Does this installation work? Each check is one row with what to do where it fails: what `minify doctor` shows.

A *planted* failure can be taken the whole way, capture, minify, verify, in a temporary directory. The row says that it
is planted.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from ..backends.adapters import adapters
from ..backends.capture import startup
from ..backends.running.confinement import NoConfinement, confinement
from ..store.temporary import prefix
from ..store.text import count
from .session.minify import minify

#: ``{"check", "ok", "found"}``; ``ok`` is False where something needs doing, None where it is optional.
Check = dict[str, Any]

PLANTED_BACKEND = '''\
"""A backend with a planted bug: it cannot lower relu."""

from torch._dynamo import register_backend


@register_backend
def planted(gm, example_inputs):
    if any("relu" in str(node.target) for node in gm.graph.nodes):
        raise RuntimeError("planted failure: cannot lower relu")
    return gm.forward
'''

PLANTED_PROGRAM = """\
import planted_backend
import torch


def model(x):
    for _ in range(8):
        x = torch.sin(x) + torch.cos(x)
    x = torch.relu(x)
    return (x * 2).sum()


torch.compile(model, backend="planted")(torch.randn(8))
"""


def examine(*, synthetic: bool = False) -> list[Check]:
    """Every check of this installation; ``synthetic`` also minifies a planted failure."""
    checks: list[tuple[str, Callable[[], tuple[bool | None, str]]]] = [
        ("python", _python),
        ("torch", _torch),
        ("sqlite", lambda: (sqlite3.sqlite_version_info >= (3, 35), sqlite3.sqlite_version)),
        ("fork", lambda: (True, "workers are forked") if hasattr(os, "fork") else (None, "workers are spawned")),
        ("sandbox", _sandbox),
        ("backends", _backends),
        ("start-up", _startup),
    ]
    rows = []
    for name, check in checks:
        ok, found = check()
        rows.append({"check": name, "ok": ok, "found": found})
    for adapter in adapters().values():
        rows += [{"check": name, "ok": fine or None, "found": found} for name, fine, found in adapter.checks()]
    if synthetic:
        ok, found = _planted()
        rows.append({"check": "planted failure", "ok": ok, "found": found})
    return rows


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), sys.version.split()[0]


def _torch() -> tuple[bool, str]:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False, "not installed: pip install torch"
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    return numbers >= (2, 11), version if numbers >= (2, 11) else f"{version}: 2.11 or newer is needed"


def _backends() -> tuple[bool, str]:
    names = sorted({point.name for point in metadata.entry_points(group="torch_dynamo_backends")})
    packages = {module for adapter in adapters().values() for module, _ in adapter.needs.values()}
    extra = sorted(module for module in packages if importlib.util.find_spec(module))
    return True, ", ".join(["torch's own", *names, *extra])


def _startup() -> tuple[bool | None, str]:
    """Whether ``FXMINIFY=1`` has an effect on the processes of this installation."""
    found = metadata.distributions(name="fxminify")  # in a checkout there is one more, which has no such file
    installed = [file for one in found for file in one.files or ()]
    if not any(file.name == startup.PTH and Path(str(file.locate())).is_file() for file in installed):
        return None, f"{startup.SWITCH}=1 has no effect: {startup.PTH} is not installed; install fxminify once more"
    if startup.is_armed():
        return True, f"{startup.SWITCH} is set: failures of every process here are captured in {startup.database()}"
    return True, f"{startup.SWITCH}=1 captures the failures of every process of this installation"


def _sandbox() -> tuple[bool | None, str]:
    """Whether `--sandbox` can be had, and with what."""
    try:
        return True, f"--sandbox works, with {confinement().name}"
    except NoConfinement as error:
        return None, str(error)


def _planted() -> tuple[bool, str]:
    """Capture, minify and verify a planted failure in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix=prefix("fxminify-doctor-")) as folder:
        Path(folder, "planted_backend.py").write_text(PLANTED_BACKEND)
        Path(folder, "program.py").write_text(PLANTED_PROGRAM)
        command = [sys.executable, "-m", "fxminify", "capture", "--db", "repro.db", "program.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        db = os.path.join(folder, "repro.db")
        if done.returncode != 1 or not os.path.exists(db):
            return False, f"the planted failure was not captured:\n{done.stderr[-2000:]}"
        results = minify(db)
        if [result.state for result in results] != ["verified"]:
            reasons = "; ".join(result.reason for result in results)
            return False, f"the planted failure was captured but not minified: {reasons}"
        row = results[0].capture
        return True, (
            f"planted (not a real bug): {row.nodes_before} nodes minified to {row.nodes_after} "
            f"in {count(row.queries, 'query')}, script verified"
        )
