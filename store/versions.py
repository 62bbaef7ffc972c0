"""Versions of packages: which of two is the newer one, and whether a failure came back with one."""

from __future__ import annotations

import re
from collections.abc import Mapping


def order(version: str) -> tuple[object, ...]:
    """A key that sorts versions of torch: ``2.14.0.dev20261120+cpu`` < ``2.14.0a0`` < ``2.14.0rc1`` < ``2.14.0``."""
    release, kind, number = _VERSION.match(version).groups()  # type: ignore[union-attr]  # it matches anything
    numbers = tuple(int(part) for part in re.findall(r"\d+", release or ""))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers, _STAGES.get(kind or "", 4), int(number or 0)


def at_least(seen: Mapping[str, str], fixed: Mapping[str, str]) -> bool:
    """Whether all that a failure was ``fixed`` with was there where it was ``seen``, in that version or a newer one.

    What is not known of where it was seen may have been older.
    """
    return bool(fixed) and all(name in seen and order(seen[name]) >= order(fixed[name]) for name in fixed)


_VERSION = re.compile(r"((?:\d{1,9}\.)*\d{1,9})?(?:\.?(dev|a|b|rc)(\d{1,18}))?")
_STAGES = {"dev": 0, "a": 1, "b": 2, "rc": 3}
