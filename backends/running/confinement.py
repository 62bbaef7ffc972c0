"""Foreign code without network and without the user's files: what `--sandbox` means for a process that executes it.

A confined process sees the file system read-only, and in the place of the home, of temporary and of runtime
directories an empty one that it may write to and that ends with it. The interpreter, the installed packages and the
directories in which a capture says that its modules are come back read-only, the scratch directories that the driver
names come back writable. There is no network. Bubblewrap does this where it is installed, else `namespaces`,
which refuses system calls in both cases.

This module is the one place that chooses. It never runs anything unconfined: where neither works, it raises.
"""

from __future__ import annotations

import functools
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from .compiler_caches import known

_NAMESPACES = str(Path(__file__).with_name("namespaces.py"))
#: Directories that several programs write to, where sockets of the user's services lie, too.
_SHARED = ("/home", "/root", "/tmp", "/var/tmp", "/run")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_ACCELERATORS = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel")
_PROBE_SECONDS = 20.0


class NoConfinement(Exception):
    """This system cannot confine a process. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """A way to confine processes on this system. ``bubblewrap`` is its program, or empty for our own namespaces."""

    bubblewrap: str = ""

    @property
    def name(self) -> str:
        return "bubblewrap" if self.bubblewrap else "namespaces of its own"

    @property
    def in_between(self) -> bool:
        """Whether a process of bubblewrap stands between the driver and the command."""
        return bool(self.bubblewrap)

    def command(
        self, command: Sequence[str], *, writable: Iterable[Path] = (), search_path: Iterable[str] = ()
    ) -> list[str]:
        """Return the command line that runs ``command`` confined, in a directory that it sees.

        ``writable`` are directories of the driver. The directories of ``search_path``, in which modules of a
        capture lie (`fxminify.backends.provenance.access`), are visible read-only.
        """
        steps = plan([os.path.realpath(path) for path in writable], search_path)
        enter = [sys.executable, "-I", "-S", _NAMESPACES]
        if not self.bubblewrap:
            return [*enter, json.dumps(steps), *command]
        words = [self.bubblewrap, "--unshare-user", "--unshare-net", "--unshare-ipc", "--cap-drop", "ALL",
                 "--ro-bind", "/", "/", "--dev", "/dev"]  # fmt: skip
        options = {"show": "--ro-bind", "write": "--bind", "device": "--dev-bind"}
        for verb, path in steps:
            words += ["--tmpfs", path] if verb == "hide" else [options[verb], path, path]
        return [*words, "--", *enter, "[]", *command]  # which refuses system calls

    def exit_code(self, code: int) -> int:
        """Return the exit code of the command, negative for a signal. ``code`` is the code of the started process."""
        return 128 - code if self.bubblewrap and code > 128 else code


def caches(folder: Path) -> dict[str, str]:
    """Return the variables that make compilers keep what they compile in ``folder``.

    Temporary files are in a directory that ends with the confined process.
    """
    return {cache.variable: str(folder) for cache in known() if cache.variable != "TMPDIR"}


def plan(writable: Iterable[str] = (), search_path: Iterable[str] = ()) -> list[tuple[str, str]]:
    """List the paths to hide and to show again, as `namespaces` reads it. A path follows the paths that contain it."""
    hidden = _hidden()
    trusted = _installation()
    named = [path for path in map(os.path.realpath, search_path) if not _is_secret(path)]
    visible = {path for path in [*map(os.path.realpath, filter(None, trusted)), *named] if _comes_back(path, hidden)}
    steps = dict.fromkeys(visible, "show") | dict.fromkeys(hidden, "hide") | dict.fromkeys(writable, "write")
    devices = [*_DEVICES, *(one for pattern in _ACCELERATORS for one in glob(pattern))]
    ordered = sorted(steps.items(), key=lambda step: (len(Path(step[0]).parts), step))
    return [("device", path) for path in devices if os.path.exists(path)] + [(verb, path) for path, verb in ordered]


def _hidden() -> set[str]:
    """The directories in whose place an empty one is seen."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    own = [os.path.expanduser("~"), _home(), tempfile.gettempdir(), os.path.join(state, "fxminify"),
           os.environ.get("XDG_RUNTIME_DIR", "")]  # fmt: skip
    found = {os.path.realpath(path) for path in (*_SHARED, *own) if path}
    return {path for path in found if path != "/" and os.path.isdir(path)}


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a user without an entry, as in containers
        return ""


def _installation() -> list[str]:
    """List the paths of Python, the installed packages, this package, and its table of names."""
    here = os.getcwd()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        str(Path(__file__).parents[2]),
        os.path.join(cache, "fxminify"),
    ]
    own += [path for path in sys.path if path and os.path.realpath(path) != here]
    return own + [p for name in ("PYTHONPATH", "LD_LIBRARY_PATH") for p in os.environ.get(name, "").split(os.pathsep)]


def _is_secret(path: str) -> bool:
    """Whether a part of a path without links begins with a dot, where programs keep keys."""
    return any(part.startswith(".") for part in Path(path).parts)


def _comes_back(path: str, hidden: set[str]) -> bool:
    """Whether ``path`` is hidden with a directory, and hides no other such directory."""
    inside = any(path.startswith(f"{one}/") for one in hidden)
    return inside and not any(f"{one}/".startswith(f"{path}/") for one in hidden) and os.path.exists(path)


def wanted(sandbox: bool) -> Confinement | None:
    """Return the confinement if ``--sandbox`` was given, else None. Raises `NoConfinement` if this system has none."""
    return confinement() if sandbox else None


@functools.cache
def confinement() -> Confinement:
    """Return a working way of this system to confine a process. Each way is tried first. Raises `NoConfinement`."""
    reasons = []
    program = shutil.which("bwrap")
    for way in ([Confinement(program)] if program else []) + [Confinement()]:
        if not (reason := _problem(way)):
            return way
        reasons.append(f"{way.name}: {reason}")
    raise NoConfinement(
        f"--sandbox cannot be had here ({'; '.join(reasons)}). Nothing was run. Install bubblewrap, or allow user "
        "namespaces (sysctl user.max_user_namespaces); `minify doctor` says whether it works then."
    )


def _problem(way: Confinement) -> str:
    """Return why ``way`` does not work here, or an empty text if it works."""
    command = way.command([sys.executable, "-I", "-S", "-c", "import os; os.listdir('/dev'); open('/dev/null', 'wb')"])
    try:
        done = subprocess.run(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1][:300] if done.returncode else ""
