"""Classes of tensors: where a class of a program, such as ``class Tagged(torch.Tensor)``, comes from.

A class of an installed package is imported, one of the running script is copied, as functions are. The import says
under which name documents and scripts have it (`fxminify.store.live.subclasses`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch

from ...store.live import subclasses
from . import modules
from .embedded_source import EmbeddedSource, Embedder
from .modules import CannotEmbed
from .origin import express

Json = dict[str, Any]


def imports_for(values: Iterable[object], source: EmbeddedSource | None = None) -> list[Json]:
    """Register the tensor subclasses among the classes of ``values``. Return imports that restore them elsewhere.

    A class that cannot be restored elsewhere is not registered, so that tensors of it are refused. ``source`` is
    the embedded source of the backend: a class in it is not copied twice.
    """
    found: dict[str, Json] = {}
    classes = dict.fromkeys(type(v) for v in values if isinstance(v, torch.Tensor) and subclasses.has_own_class(v))
    for cls in classes:
        try:
            item = _described(cls, source)
        except CannotEmbed:
            continue
        if item["class"] not in found:
            found[item["class"]] = item
            subclasses.register(item["class"], cls)
    return list(found.values())


def register(item: Mapping[str, Any], namespace: Mapping[str, Any]) -> None:
    """Register the class of a completed import. ``namespace`` is the namespace of the embedded source."""
    name = str(item["class"])
    if "module" in item:
        cls = attrgetter(name.removeprefix(f"{item['module']}."))(sys.modules[item["module"]])
    else:
        cls = namespace[name]
        script = sys.modules["__main__"]  # where Dynamo looks for the globals of its methods
        for key, value in namespace.items():
            if not hasattr(script, key):
                setattr(script, key, value)
    if not (isinstance(cls, type) and issubclass(cls, torch.Tensor)):
        raise TypeError(f"{name} is no class of tensors")
    subclasses.register(name, cls)


def _described(cls: type, of_backend: EmbeddedSource | None) -> Json:
    """The import of a class. Raises `CannotEmbed`."""
    if found := modules.find(cls):
        module, path = found
        places = list(modules.search_path([module]))
        item: Json = {"module": module, "class": f"{module}.{path}", "ops": []}
        return {**item, **({"search_path": places} if places else {})}
    script, name = vars(sys.modules["__main__"]), cls.__name__
    if script.get(name) is not cls:
        raise CannotEmbed(f"the class {cls.__qualname__} is not importable from {cls.__module__}")
    if of_backend is not None and name in of_backend.names():
        embedded: EmbeddedSource | None = of_backend
    else:
        embedder = Embedder(express)
        embedder.bind(name, cls, script, name)
        embedded = embedder.embedded()
    if embedded is None:
        raise CannotEmbed(f"the class {name} has no source")
    source = {"source": embedded.text, "imports": list(embedded.imports), "file": embedded.file}
    return {**source, "class": name, "ops": []}
