"""Keep what SQLAlchemy and Alembic log about an index of ours out of the handlers of the program that captures."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

#: The name under which SQLAlchemy logs about an engine of ours and its pool.
ENGINE = "fxminify"
_ALEMBIC = logging.getLogger("alembic")


def unheard(engine: Engine) -> Engine:
    """Let ``engine``, made with the logging names `ENGINE`, log warnings only, whatever level the program chose."""
    for owner in (engine, engine.pool):
        if isinstance(owner.logger, logging.Logger):  # otherwise one that was asked for with ``echo``
            owner.logger.setLevel(logging.WARNING)
    return engine


class _OtherThreads(logging.Handler):
    """Passes records of Alembic on, except for records of threads that are inside of `alembic_unheard`."""

    def __init__(self) -> None:
        super().__init__()
        self.propagated = True
        self.inside: Counter[int] = Counter()
        self.guard = threading.Lock()

    def handle(self, record: logging.LogRecord) -> bool:
        passed = record.levelno >= logging.WARNING or not self.inside[record.thread or 0]
        if passed and _ALEMBIC.parent is not None:
            _ALEMBIC.parent.callHandlers(record)
        return passed


_others = _OtherThreads()


@contextmanager
def alembic_unheard() -> Iterator[None]:
    """Let Alembic log warnings only, inside the block and in this thread; its import logs as well."""
    thread = threading.get_ident()
    with _others.guard:
        if not _others.inside:
            _others.propagated = _ALEMBIC.propagate
            _ALEMBIC.addHandler(_others)
            _ALEMBIC.propagate = False
        _others.inside[thread] += 1
    try:
        yield
    finally:
        with _others.guard:
            _others.inside[thread] -= 1
            _others.inside += Counter()  # drops what is zero
            if not _others.inside:
                _ALEMBIC.removeHandler(_others)
                _ALEMBIC.propagate = _others.propagated
