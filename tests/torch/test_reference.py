"""Everything that `docs/api.md` names has a docstring, and so has what is public in it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import fxminify

REFERENCE = (Path(fxminify.__file__).parent / "docs" / "api.md").read_text()


def documented() -> Iterator[tuple[str, object]]:
    """What the page is filled with, by its full name."""
    for directive, name in re.findall(r"^\.\. auto(\w+):: (\S+)$", REFERENCE, re.MULTILINE):
        package, _, rest = name.rpartition(".")
        value = resolve_name(name if directive == "module" else f"{package}:{rest}")
        yield name, value
        inside = f".. automodule:: {name}\n   :no-members:" not in REFERENCE
        if isinstance(value, ModuleType) and inside:
            for part, found in vars(value).items():
                if getattr(found, "__module__", "") == name and not part.startswith("_"):
                    yield f"{name}.{part}", found


def members(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that a class defines itself."""
    for name, value in vars(owner).items():
        if not name.startswith("_"):
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(plain) or isinstance(plain, property):
                yield name, plain


def is_bare(value: object) -> bool:
    """Whether nobody wrote a docstring: `dataclass` writes one of the fields."""
    text = value.__doc__ or ""
    generated = isinstance(value, type) and dataclasses.is_dataclass(value) and text.startswith(f"{value.__name__}(")
    return generated or len(text.split()) < 2


def test_what_the_reference_names_has_a_docstring() -> None:
    found = dict(documented())
    assert len(found) > 80
    assert [name for name, value in found.items() if callable(value) and is_bare(value)] == []
    inside = [
        f"{name}.{part}"
        for name, value in found.items()
        if isinstance(value, type)
        for part, member in members(value)
        if is_bare(member)
    ]
    assert inside == []
