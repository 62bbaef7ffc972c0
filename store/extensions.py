"""Find what other installed packages add to fxminify: objects that they register under an entry point group."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

#: The group of adapters: what fxminify knows about single backends (`fxminify.backends.adapters`).
BACKENDS = "fxminify.backends"


@cache
def load(group: str) -> Mapping[str, Any]:
    """The objects registered in ``group`` by name, in order of their names, loaded once per process.

    One that cannot be loaded is left out, and a warning says so.
    """
    found = {}
    for point in _registered(group):
        try:
            found[point.name] = point.load()
        except Exception as exc:  # noqa: BLE001  another package's code must not stop this one
            logging.getLogger("fxminify").warning("the extension %s of %s cannot be loaded: %s", point.name, group, exc)
    return MappingProxyType(found)


def _registered(group: str) -> list[EntryPoint]:
    """The entry points of ``group``, one for each name, in order of their names."""
    found = {point.name: point for point in entry_points(group=group)}
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():  # a checkout of fxminify: what was written down when it was installed may be older
        own = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"].get(group, {})
        found |= {name: EntryPoint(name, value, group) for name, value in own.items()}
    return [found[name] for name in sorted(found)]
