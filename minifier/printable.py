"""Text from a database or a backend, made safe to show: it cannot colour the terminal, move its cursor or hide.

Everything that an index holds is untrusted text, since the file may come from anybody.
"""

from __future__ import annotations


def printable(value: object, limit: int = 2000) -> str:
    """At most ``limit`` characters of ``value`` as text. Control, bidirectional and other invisible characters become
    ``?``, line ends stay. None is ``-``, booleans are ``yes`` and ``no``."""
    text = "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:limit])
