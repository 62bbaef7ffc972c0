"""The names of the table in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import msgspec

from fxminify.repro_templates.source.expressions import Expressions
from fxminify.store.document import names_cache
from fxminify.store.document.names import SHIPPED, NameTable

_CHECK = """
import json, sys
import torch
missing = []
for imports, names in json.load(sys.stdin):
    scope = {"torch": torch}
    exec("\\n".join(imports), scope)
    for name in names:
        try:
            exec(name, scope)
        except (AttributeError, NameError):
            missing.append(name)
print(json.dumps(missing))
"""


def names_of_this_torch() -> NameTable:
    """The table that was made with the torch that is installed: the shipped one, or that of the cache."""
    names = msgspec.json.decode(SHIPPED.read_bytes(), type=NameTable)
    if (path := names_cache.path_for(names.torch)) is not None:
        names = msgspec.json.decode(path.read_bytes(), type=NameTable)
    return replace(names, packets=frozenset(op.partition(".")[0] for op in names.ops))


def test_every_name_of_the_table_resolves_after_the_imports_it_asks_for() -> None:
    names = names_of_this_torch()
    groups: dict[tuple[str, ...], list[str]] = {}
    for kind, listed in (("fn", names.functions), ("hop", names.hops), ("op", names.ops), ("packet", names.packets)):
        for name in sorted(listed):
            expressions = Expressions(str)
            text = expressions.target({kind: name})
            groups.setdefault(tuple(sorted(expressions.imports)), []).append(text)
    # What needs least is tried first, before an import makes more names appear.
    ordered = sorted(groups.items(), key=lambda item: len(item[0]))
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], input=json.dumps(ordered), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
