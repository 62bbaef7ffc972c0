"""Extensions by other installed packages: objects that they register under an entry point group."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

#: The group of adapters: what fxminify knows about single backends (`fxminify.backends.adapters`).
BACKENDS = "fxminify.backends"
#: The group of passes (`fxminify.minifier.passes`).
PASSES = "fxminify.passes"
#: The group of formats (`fxminify.repro_templates.formats`).
FORMATS = "fxminify.formats"
#: The group of suites: where a hunt takes its programs from (`fxminify.minifier.hunting.programs`).
SUITES = "fxminify.suites"


@dataclass(frozen=True, slots=True)
class Extension:
    """An entry point: its name, its distribution (empty if unknown), and its object, or why that does not load."""

    name: str
    source: str
    object: Any = None
    problem: str = ""


@cache
def installed(group: str) -> tuple[Extension, ...]:
    """Every entry point of ``group``, loaded once per process, by name and distribution.

    So nothing depends on the order in which packages were installed. Names are not unique.
    """
    return tuple(_loaded(point) for point in sorted(_registered(group), key=lambda p: (p.name, _source(p), p.value)))


def names(group: str) -> list[str]:
    """The names of the entry points of ``group``, sorted. Nothing is loaded."""
    return sorted({point.name for point in _registered(group)})


@cache
def load(group: str) -> Mapping[str, Any]:
    """The objects registered in ``group`` by name, in order of their names.

    One that cannot be loaded is left out, and a warning says so.
    """
    found = {}
    for extension in installed(group):
        if extension.problem:
            logging.getLogger("fxminify").warning(
                "the extension %s of %s cannot be loaded: %s", extension.name, group, extension.problem
            )
        else:
            found[extension.name] = extension.object
    return MappingProxyType(found)


def _loaded(point: EntryPoint) -> Extension:
    try:
        return Extension(point.name, _source(point), point.load())
    except Exception as error:  # noqa: BLE001  another package's code must not stop this one
        problem = f"{point.value} does not load: {type(error).__name__}: {error}"
        return Extension(point.name, _source(point), problem=problem)


def _registered(group: str) -> list[EntryPoint]:
    found = list(entry_points(group=group))
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():  # a checkout of fxminify: what was written down when it was installed may be older
        own = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"].get(group, {})
        found = [point for point in found if _source(point) != "fxminify"]
        found += [EntryPoint(name, value, group) for name, value in own.items()]
    return found


def _source(point: EntryPoint) -> str:
    return "" if point.dist is None else str(point.dist.name)
