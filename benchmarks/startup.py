"""Measure the cost of the start-up file for each Python process: milliseconds, without ``FXMINIFY`` and with it.

    python -m fxminify.benchmarks.startup [--seconds S]

**Not set**: a folder of packages is read as ``site`` does, once empty and once with the file. **Set**: ``python -c
pass`` with ``FXMINIFY=1``, against one without. Processes of each kind take turns, so that a busy machine slows all
of them; the medians are printed. The line alone, run again and again in one process, is measured in microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from fxminify.backends.capture import startup

READS = "import site; site.addsitedir({!r})"


def measure(seconds: float, folder: Path) -> dict[str, list[float]]:
    """Seconds of each process of each kind, taking turns for ``seconds``."""
    for name in ("empty", "with_file"):
        (folder / name).mkdir()
    (folder / "with_file" / startup.PTH).write_text(startup.LINE)
    off = {k: v for k, v in os.environ.items() if k not in (startup.SWITCH, startup.DATABASE)}
    on = {**off, startup.SWITCH: "1", startup.DATABASE: str(folder / "repro.db")}
    kinds = {
        "empty": (["-S", "-c", READS.format(str(folder / "empty"))], off),
        "with_file": (["-S", "-c", READS.format(str(folder / "with_file"))], off),
        "unset": (["-c", "pass"], off),
        "set": (["-c", "pass"], on),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, (arguments, environment) in kinds.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, check=True)
            found[name].append(time.perf_counter() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long processes are started")
    wanted = parser.parse_args()
    for name in (startup.SWITCH, startup.DATABASE):
        os.environ.pop(name, None)
    line, times = compile(startup.LINE, startup.PTH, "exec"), 100_000
    alone = statistics.median(timeit.repeat(lambda: exec(line), number=times // 10, repeat=10)) / (times // 10)  # noqa: S102
    with tempfile.TemporaryDirectory() as folder:
        found = measure(wanted.seconds, Path(folder))
    middle = {name: 1000 * statistics.median(each) for name, each in found.items()}
    print(f"{len(found['set'])} processes of each kind")
    print(f"not set: {middle['with_file'] - middle['empty']:+.2f} ms on {middle['empty']:.1f} ms")
    print(f"the line alone: {alone * 1e6:.1f} us")
    print(f"set: {middle['set'] - middle['unset']:+.2f} ms on {middle['unset']:.1f} ms")


if __name__ == "__main__":
    main()
