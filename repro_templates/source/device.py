"""One ``DEVICE`` line: a script for an accelerator runs elsewhere by the edit of a single line.

Where the tensors of a case lie on one device that is not the CPU, its name is given once. Which strings of the printed
source are devices is told by what stands before them; a string in the graph that merely reads like one stays.
"""

from __future__ import annotations

import io
import tokenize

from ...store.document.case import Case

NAME = "DEVICE"
_BEFORE = (("device", "="), ("torch", ".", "device", "("), (".", "to", "("))


def accelerator(case: Case) -> str:
    """The one device of the case that is neither the CPU nor ``meta``; nothing where there is none, or several."""
    found = {t.device for t in case.tensors} - {"cpu", "meta"}
    return found.pop() if len(found) == 1 else ""


def named(source: str, device: str) -> str:
    """``source`` with `NAME` in the place of the string ``device``, wherever a device is meant."""
    if not device:
        return source
    lines = source.splitlines(keepends=True)
    before: list[str] = []
    places = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_device = token.type == tokenize.STRING and token.string in (f'"{device}"', f"'{device}'")
        if is_device and any(tuple(before[-len(words) :]) == words for words in _BEFORE):
            places.append((token.start, token.end))
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT):
            before.append(token.string)
    for (row, start), (_, end) in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + NAME + line[end:]
    return "".join(lines)
