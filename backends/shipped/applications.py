"""Let a compiler apply only the first passes, lowerings or decompositions of a kind, and name them.

torch asks `CompilerBisector` before each application whether it is disabled. In a worker that answer is ours, so that
one query counts and names the applications, and nothing is written to the files with which that class works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def limited(subsystem: str, most: int) -> Iterator[list[str]]:
    """Disable the applications of ``subsystem`` beyond the first ``most``. Yields the list of all, which grows."""
    from torch._inductor.compiler_bisector import CompilerBisector

    applied: list[str] = []

    def disable(backend: str, of: str, debug_info: Callable[[], str] | None = None) -> bool:
        if of != subsystem:
            return False
        applied.append("" if debug_info is None else str(debug_info()))
        return len(applied) > most

    before = CompilerBisector.bisection_enabled, CompilerBisector.__dict__["disable_subsystem"]
    CompilerBisector.bisection_enabled = True
    CompilerBisector.disable_subsystem = disable  # type: ignore[method-assign,assignment]
    try:
        yield applied
    finally:
        CompilerBisector.bisection_enabled = before[0]
        CompilerBisector.disable_subsystem = before[1]  # type: ignore[method-assign]
