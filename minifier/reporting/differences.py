"""A long difference of two cases in a few lines: how many of what went and came."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ...store.text import count

#: The most operators that are named in a line, and the most characters of one.
_NAMED, _LONGEST = 3, 160
_NODE = re.compile(r"(?:\w+: )*(\w+) = (.+)")
_VALUE = re.compile(r"(?:\w+: )*([\w.]+): ")
#: What a path to a function begins with; anything else before a dot is a value whose method is called.
_MODULES = ("torch", "operator", "math", "builtins", "self")


def shorter(lines: Sequence[str], limit: int) -> list[str]:
    """``lines`` of `minifier.reducer.history.difference` in about ``limit`` lines.

    Nodes, inputs and settings that went or came are counted: ``- 49 nodes: 13 torch.cat, 12 torch.conv2d, 24 others``.
    What changed is shown before and after, as far as there is room.
    """
    if len(lines) <= limit:
        return list(lines)
    changed, rest = _changed(lines)
    told = [*_counted("-", rest), *_counted("+", rest)]
    room = max(limit - len(told), 0)
    if len(changed) <= room:
        told += changed
    else:
        shown = max(room - 1, 0) // 2
        told += changed[: 2 * shown]
        told.append(f"  {count(len(changed) // 2 - shown, 'other change' if shown else 'change')}")
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..." for line in told]


def _changed(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The pairs of lines that show one thing before and after, and the other lines."""
    changed: list[str] = []
    rest: list[str] = []
    number = 0
    while number < len(lines):
        line, after = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("- ") and after.startswith("+ ") and _key(line) == _key(after):
            changed += [line, after]
            number += 2
        else:
            rest.append(line)
            number += 1
    return changed, rest


def _key(line: str) -> str:
    return re.split(r" = |: | ", line[2:], maxsplit=1)[0] if " " in line[2:] else line[2:]


def _counted(sign: str, lines: Sequence[str]) -> Iterator[str]:
    """A line for all nodes that went or came, one for all inputs, and one for what else did."""
    texts = [line[2:] for line in lines if line.startswith(f"{sign} ")]
    settings = [text for text in texts if text.startswith(("context ", "compile "))]
    nodes = [found[2] for text in texts if text not in settings and (found := _NODE.match(text))]
    values = [text for text in texts if text not in settings and not _NODE.match(text) and _VALUE.match(text)]
    others = len(texts) - len(settings) - len(nodes) - len(values)
    if len(nodes) == 1:
        yield next(f"{sign} {text}" for text in texts if text.endswith(nodes[0]))
    elif nodes:
        yield f"{sign} {count(len(nodes), 'node')}: {_named(nodes)}"
    if values:
        yield f"{sign} {values[0]}" if len(values) == 1 else f"{sign} {count(len(values), 'input')}"
    if settings or others:
        parts = [count(len(settings), "setting")] * bool(settings) + [count(others, "other line")] * bool(others)
        yield f"{sign} {', '.join(parts)}"


def _named(calls: Sequence[str]) -> str:
    """Count the calls by name, the most frequent first."""
    found = Counter(map(_called, calls)).most_common()
    text = ", ".join(f"{number} {name}" for name, number in found[:_NAMED])
    left = sum(number for _, number in found[_NAMED:])
    return text + (f", {count(left, 'other')}" if left else "")


def _called(call: str) -> str:
    """Return the called function on the right side of a line: ``torch.cat``, or ``.view`` for a method."""
    name = call.partition("(")[0]
    head, _, last = name.rpartition(".")
    return f".{last}" if head and head.partition(".")[0] not in _MODULES else name
