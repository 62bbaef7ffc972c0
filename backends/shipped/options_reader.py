"""The ``options`` dictionary a person gives to `torch.compile`, read into a dataclass: unknown names are errors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


class InvalidOption(ValueError):
    """An option that the backend does not have, or a value that it cannot take."""


def read(cls: type[T], options: Mapping[str, Any] | None, backend: str) -> T:
    """``cls(**options)``. Raises `InvalidOption` where ``cls`` has no such field."""
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in options or {}:
        choose(name, names, "option", backend)
    return cls(**(options or {}))


def choose(value: str, among: Sequence[str], what: str, backend: str) -> str:
    """``value`` if it is one of ``among``. Otherwise raises `InvalidOption` with the nearest of them, or all."""
    if value not in among:
        near = difflib.get_close_matches(str(value), among, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"its {what}s are {', '.join(among) or 'none'}"
        raise InvalidOption(f"the backend {backend!r} has no {what} {value!r}; {hint}")
    return value
