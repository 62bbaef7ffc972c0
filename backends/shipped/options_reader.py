"""The ``options`` dictionary a person gives to `torch.compile`, read into a dataclass: unknown names are errors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


class InvalidOption(ValueError):
    """An option that the backend does not have, or a value that it cannot take."""


def read(cls: type[T], options: Mapping[str, Any] | None, backend: str) -> T:
    """``cls(**options)``. Raises `InvalidOption` with the nearest name where ``cls`` has no such field."""
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in options or {}:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(names) or 'none'}"
            raise InvalidOption(f"the backend {backend!r} has no option {name!r}; {hint}")
    return cls(**(options or {}))


def choose(value: str, among: tuple[str, ...], option: str, backend: str) -> str:
    """``value`` if it is one of ``among``. Raises `InvalidOption` with the nearest one otherwise."""
    if value not in among:
        near = difflib.get_close_matches(str(value), among, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(among)}"
        raise InvalidOption(f"the backend {backend!r} has no {option} {value!r}; {hint}")
    return value
