"""The door through which texts of an index, of a capture or of a backend reach a reader.

Everything that an index holds is untrusted text, since the file may come from anybody: it cannot colour the terminal,
move its cursor or hide. And it may hold what must not leave a machine: it is masked by value and by shape
(`fxminify.store.privacy`), except for what the user has typed, so that commands can be typed again. `shown` is for
terminals, logs and reports of tests, `shown_json` for JSON. `printable` is for texts that are not of an index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..store.privacy import private, private_json

#: What the user has typed: paths and addresses in these words stay in what is shown.
_typed: tuple[str, ...] = ()
#: Characters that are looked at beyond those that are shown, because a secret may begin among them.
_BEYOND = 4000


@contextmanager
def typed(words: Iterable[str]) -> Iterator[None]:
    """Inside the block, paths and addresses among these words of a command are shown as they are."""
    global _typed
    before, paths = _typed, [word for word in words if os.sep in word]
    folders = [os.path.dirname(os.path.abspath(path)) for path in paths if "://" not in path]
    _typed = tuple(sorted({*paths, *(f for f in folders if f.count(os.sep) > 1)}, key=len, reverse=True))
    try:
        yield
    finally:
        _typed = before


def printable(value: object, limit: int = 2000) -> str:
    """At most ``limit`` characters of ``value`` as text. Control, bidirectional and other invisible characters become
    ``?``, line ends stay. None is ``-``, booleans are ``yes`` and ``no``."""
    text = "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:limit])


def shown(value: object, limit: int = 2000) -> str:
    """`printable`, and without what is private."""
    text = printable(value, limit + _BEYOND)
    return private(text, _typed)[:limit]


def shown_json(value: Any) -> Any:
    """JSON without what is private in its texts; its keys stay."""
    return private_json(value, _typed)
