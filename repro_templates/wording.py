"""Sentences about a failure, fit for comments and reports: printable ASCII, bounded, without paths of a machine."""

from __future__ import annotations

import re

from ..backends.deaths import signal_name
from ..store.case import Case
from ..store.failure import Failure, Kind, mask

_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:/[\w.~+@-]+)+/([\w.+@-]+)")


def one_line(text: str, length: int, *, lines: int = 1) -> str:
    """At most ``lines`` lines of ``text``: paths as base names, everything else that is not ASCII as ``?``."""
    kept = [_PATH.sub(r"\1", line.rstrip()) for line in text.strip().splitlines()[:lines]]
    safe = "\n".join("".join(c if " " <= c <= "~" else "?" for c in line) for line in kept)
    return safe if len(safe) <= length else f"{safe[: length - 3]}..."


def without_paths(text: str, length: int) -> str:
    """At most ``length`` characters of ``text``, paths as base names; for what is escaped when it is shown."""
    kept = _PATH.sub(r"\1", text.strip())
    return kept if len(kept) <= length else f"{kept[: length - 3]}..."


def cell(text: str, length: int = 120) -> str:
    """``text`` as one cell of a Markdown table, nothing in it but text."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", one_line(text, length))


def prose(text: str) -> str:
    """``text`` as a sentence in Markdown, nothing in it but text: names and subscripts read as they are written."""
    escaped = re.sub(r"(?<=\w)\\_(?=\w)", "_", cell(text, 400))
    return re.sub(r"\\\[(\d+)\\\](?!\()", r"[\1]", escaped)


def docstring(text: str) -> str:
    """``text`` so that it can stand inside a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def headline(case: Case, failure: Failure) -> str:
    """``inductor: divergence in forward: ...``, for the first line of a docstring."""
    name = str(case.backend.get("name", "")) or "backend"
    kind = str(failure.kind).replace("_", " ")
    return docstring(one_line(f"{name}: {kind} in {failure.phase}: {failure.headline()}", 115))


def expected(failure: Failure) -> str:
    if failure.kind is Kind.DIVERGENCE:
        return "The compiled function agrees with eager, as `torch.testing.assert_close` checks."
    return "The compiled function runs, as it does in eager."


def actual(failure: Failure, timeout: int) -> str:
    if failure.kind is Kind.HANG:
        return f"No answer within {timeout} s."
    if failure.signal:
        return f"The process dies of {signal_name(failure.signal)} in {failure.phase}."
    return one_line(failure.headline(), 300)


def distinctive(failure: Failure) -> str:
    """A part of the message that a rerun prints too: its longest stretch without numbers, names or paths."""
    if failure.kind is Kind.DIVERGENCE:
        return "AssertionError"
    if failure.kind in (Kind.CRASH, Kind.HANG):
        return ""
    first = (failure.message.strip().splitlines() or [""])[0]
    stretches = [s.strip() for s in re.split(r"<\w+>|[^ -~]", mask(first))]
    longest = max((s for s in stretches if s in first), key=len, default="")
    return longest if len(longest) >= 8 else failure.type.rpartition(".")[2]
