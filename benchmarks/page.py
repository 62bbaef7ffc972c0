"""Measured tables in pages: what stands between two marks is replaced."""

from __future__ import annotations


def put(page: str, text: str, name: str = "measured") -> str:
    """``page`` with ``text`` between the marks called ``name``. Raises `ValueError` where it has none."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, mark, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        raise ValueError(f"the page has no {begin} and {end}")
    return f"{before}{mark}\n{text}\n{last}{after}"
