"""Dataclasses to and from JSON: one codec for everything that fxminify itself writes and reads back.

`dump` and `load` are msgspec's conversions with our defaults. They serve the answers of workers, and what an index
keeps besides cases. The document of a case may come from a stranger and has rules that no type can state;
`fxminify.store.document.decode` reads it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


def dump(value: Any) -> dict[str, Any]:
    """A dataclass as dicts, lists, tuples, strings, numbers and None. Values that are no JSON become their ``repr``."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=repr)
    return found


def load(doc: Any, type: type[_T]) -> _T:
    """The inverse of `dump`: a ``type`` from ``doc``. Fields with a default may be missing, unknown ones are ignored.

    Raises `ValueError`, which says where ``doc`` has another type than the field it belongs to.
    """
    return msgspec.convert(doc, type)


def about(text: str) -> msgspec.Meta:
    """Describe a field of a dataclass, for the JSON Schema and the page that are made from its type."""
    return msgspec.Meta(description=text)
