"""Capture with no change of a command: ``FXMINIFY=1 python train.py``, also under torchrun, pytest or a job scheduler.

`PTH` is a file of the installation that Python reads when it starts. It costs the look-up of two variables; where one
of them is set, `start` installs the hook, which imports torch no sooner than the program does. Processes that the
program starts do the same and store into the same index.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any

#: ``1`` turns capture on, ``0`` off. Without it, `DATABASE` alone turns it on.
SWITCH = "FXMINIFY"
#: The index, a path or a URL. The verbs of `minify` work on it, too, where no other is named.
DATABASE = "FXMINIFY_DB"
DEFAULT_DB = "repro.db"
_OFF = frozenset({"", "0", "false", "no", "off"})
#: The name and the content of the start-up file.
PTH = "fxminify.pth"
LINE = (
    f"import os; ('{SWITCH}' in os.environ or '{DATABASE}' in os.environ) and "
    "__import__('fxminify.backends.capture.startup', fromlist=['start']).start()\n"
)

_armed = False


def database() -> str:
    """The index of this process, where no other is named."""
    return os.environ.get(DATABASE) or DEFAULT_DB


def is_asked_for() -> bool:
    """Whether the environment turns capture on."""
    return os.environ.get(SWITCH, os.environ.get(DATABASE, "")).strip().lower() not in _OFF


def is_armed() -> bool:
    """Whether the environment turned capture on when this process started."""
    return _armed


def start() -> None:
    """Install the hook if the environment asks for it. What goes wrong is one line, and the program runs on.

    Python may read the start-up file twice, where ``lib`` and ``lib64`` of an environment are one folder.
    """
    global _armed
    if _armed or not is_asked_for():
        return
    try:
        from .hook import install

        db = database()
        if "://" not in db:  # for processes of this one that run elsewhere
            db = os.environ[DATABASE] = os.path.abspath(db)
        install(db, **configured(Path.cwd()))
        _armed = True
        atexit.register(_tell, db)
    except Exception as exc:  # noqa: BLE001  the program must run, captured or not
        os.environ[SWITCH] = "0"  # processes of this one need not say it again
        print(f"fxminify: failures of this process cannot be captured: {exc}", file=sys.stderr)


def configured(directory: Path) -> dict[str, Any]:
    """Return the settings of ``[tool.fxminify]`` in the nearest ``pyproject.toml``, of ``directory`` or above.

    Raises `ValueError` for settings that `backends.capture.settings.Settings` does not have.
    """
    import tomllib

    from .settings import SettingsKeywords

    for file in (place / "pyproject.toml" for place in (directory, *directory.parents)):
        if not file.is_file():
            continue
        try:
            found = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("fxminify", {})
        except (OSError, ValueError) as exc:
            raise ValueError(f"{file.name} cannot be read: {exc}") from exc
        known = SettingsKeywords.__annotations__
        if unknown := [name for name in found if name not in known]:
            raise ValueError(f"[tool.fxminify] has no setting {unknown[0]}; it has {', '.join(known)}")
        return dict(found)
    return {}


def _tell(db: str) -> None:
    """Say at the end of the program what was captured."""
    if "fxminify.backends.capture.recorder" in sys.modules:
        from . import ending

        for line in ending.failures(ending.Facts.read(lambda name: ending.NOTED.get(name, [])), db, ids=True):
            print(f"fxminify: {line}", file=sys.stderr)
