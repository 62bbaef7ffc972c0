"""Text for people: counted nouns, and text without invisible characters."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """``1 node``, ``2,000 nodes``, ``3 queries``."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def printable(text: str, kept: str = "", other: str = "?") -> str:
    """``text`` with ``other`` for control, bidirectional and invisible characters, except those in ``kept``."""
    return "".join(c if c.isprintable() or c in kept else other for c in text)
