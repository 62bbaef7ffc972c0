"""Text for people: counted nouns, and text without invisible characters and addresses of objects."""

from __future__ import annotations

import re

#: The address of an object, as in ``<function f at 0x7f2a1c0d5e40>``, and any number as long as one.
_MEMORY = re.compile(r" at (?:<0x[0-9a-fA-F]{6,16}>|0x[0-9a-fA-F]{6,16}\b)")
_POINTER = re.compile(r"\b0x[0-9a-fA-F]{9,16}\b")


def count(number: int, noun: str) -> str:
    """``1 node``, ``2,000 nodes``, ``3 queries``, ``4 replays``, ``2 crashes``."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """``queries``, ``replays``, ``crashes``; a phrase such as ``out of memory`` as it is."""
    if " of " in noun:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def printable(text: str, kept: str = "", other: str = "?") -> str:
    """``text`` with ``other`` for control, bidirectional and invisible characters, except those in ``kept``."""
    return "".join(c if c.isprintable() or c in kept else other for c in text)


def ascii_text(text: str) -> str:
    """``text`` in printable ASCII: typographic quotes and dashes as a keyboard has them, ``?`` for anything else."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if " " <= c <= "~" else _KEYBOARD.get(c, "?") for c in text)


#: What compilers print in place of ASCII.
_KEYBOARD = {
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"', "\N{RIGHT DOUBLE QUOTATION MARK}": '"', "\N{EN DASH}": "-",
    "\N{EM DASH}": "-", "\N{HYPHEN}": "-", "\N{MINUS SIGN}": "-", "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{NO-BREAK SPACE}": " ", "\N{RIGHTWARDS ARROW}": "->", "\N{MULTIPLICATION SIGN}": "x", "\N{BULLET}": "*",
}  # fmt: skip


def shortened(text: str, most: int) -> str:
    """The first words of ``text`` and ``...`` if it has more than ``most`` characters. A long word is cut."""
    if len(text) <= most:
        return text
    words, _, _ = text[: most - 3].rpartition(" ")
    return f"{words if len(words) > most // 2 else text[: most - 4]} ..."


def without_addresses(text: str) -> str:
    """``text`` without addresses in memory, which differ from run to run and tell a reader nothing."""
    return _POINTER.sub("0x...", _MEMORY.sub("", text))
