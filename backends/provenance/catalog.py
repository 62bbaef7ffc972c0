"""Every backend that `torch.compile` knows here: where it comes from, what it needs, and whether it works.

`listing` loads no backend. `try_each` compiles a small module with each backend, forward and backward, in a process of
its own, because backends may crash, hang, or change the process that loads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from ..adapters import adapter_of, adapters
from ..running.deaths import signal_name
from . import registry
from .expression import imported
from .origin import spec_of

BackendRow = dict[str, Any]

#: The most seconds that a backend may take for the small module, with its imports.
TIMEOUT = 180.0


def listing() -> list[BackendRow]:
    """Return a row for each backend: its name, its origin, whether a script can load it, and its needs.

    ``adapter`` is the entry point of the adapter for this backend, or empty. ``needs`` is the command that installs
    missing packages, or empty.
    """
    return [_row(name, obj) for name, obj in sorted(registry.registered().items())]


def try_each(
    rows: list[BackendRow], *, jobs: int = 2, done: Callable[[BackendRow], None] = lambda row: None
) -> list[BackendRow]:
    """``rows`` with the field ``test``: ``ok``, ``forward only: ...``, ``wrong numbers`` or another failure."""
    with ThreadPoolExecutor(jobs) as pool:
        for row, said in zip(rows, pool.map(lambda r: selftest(r["name"]), rows), strict=True):
            row["test"] = said
            done(row)
    return rows


def selftest(name: str, timeout: float = TIMEOUT) -> str:
    """The result of a small module under the backend ``name`` in a fresh process, as a short text."""
    command = [sys.executable, "-m", "fxminify.backends.provenance.selftest", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"hangs: no answer after {timeout:.0f} s"
    if done.returncode < 0:
        return f"crashes: {signal_name(-done.returncode)}"
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return str(json.loads(answers[-1])["result"]) if answers else f"exits with code {done.returncode}"


def _row(name: str, obj: Any) -> BackendRow:
    spec = spec_of(name)
    if spec.how == "registered" and not spec.module:
        origin = "torch"
    else:
        origin = spec.entry_point or spec.module or ", ".join(imported(spec.target)) or spec.how
    return {
        "name": name,
        "origin": origin,
        "distribution": spec.distribution,
        "tags": [str(t) for t in getattr(obj, "_tags", ())],
        "recreatable": not spec.problem,
        "problem": spec.problem,
        "adapter": next((key for key, adapter in adapters().items() if name in adapter.backends), ""),
        "needs": next(_missing(name, spec.modules()), ""),
    }


def _missing(name: str, modules: list[str]) -> Iterator[str]:
    """Commands that install what this backend needs and this installation lacks."""
    module, command = adapter_of(name).needs.get(name, ("", ""))
    if module and find_spec(module) is None:
        yield command
    for top in dict.fromkeys(m.partition(".")[0] for m in modules):
        if find_spec(top) is None:
            yield f"pip install {top}"
