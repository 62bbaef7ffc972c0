"""The log of a capture: its warnings go to standard error, and never to the handlers of the program that is watched.

A handler that the program itself adds to the logger ``fxminify`` gets them, too.
"""

from __future__ import annotations

import logging

log = logging.getLogger("fxminify")


class _StandardError(logging.Handler):
    """Writes warnings to what is standard error now, as Python does where no handler is configured."""

    def handle(self, record: logging.LogRecord) -> bool:
        return logging.lastResort.handle(record) if logging.lastResort is not None else False


_handler = _StandardError(logging.WARNING)


def keep_apart() -> None:
    """Keep records of this package from the handlers of the program."""
    if _handler not in log.handlers:
        log.addHandler(_handler)
        log.propagate = False


def undo() -> None:
    """Undo `keep_apart`."""
    if _handler in log.handlers:
        log.removeHandler(_handler)
        log.propagate = True
