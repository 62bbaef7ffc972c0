"""Every name of the shipped table prints as an expression that a fresh process can evaluate."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fxminify.repro_templates.source.expressions import Expressions
from fxminify.repro_templates.source.naming import identifier
from fxminify.store.document.names import table

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


def test_every_name_of_the_table_resolves_after_the_imports_it_asks_for() -> None:
    names = table()
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


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("self___param_groups_0__params___0", "self_param_groups_0_params_0"),
        ("self___state_list_dict_keys_L__self___state___1___exp_avg", "state_1_exp_avg"),
        ("L__self___layers_3", "l_self_layers_3"),
        ("__ABS__", "ABS"),
        ("3d", "v3d"),
        ("___", "v"),
    ],
)
def test_identifiers_have_no_more_underscores_than_words(given: str, name: str) -> None:
    assert identifier(given) == name


def test_public_spellings_are_the_objects_dynamo_records() -> None:
    import torch

    from fxminify.repro_templates.source.expressions import _PUBLIC

    for private, (public, only) in _PUBLIC.items():
        holder = _resolve(torch, private.rpartition(".")[0])
        prefix = private.rpartition(".")[2]
        for name in only or [n.removeprefix(prefix) for n in dir(holder) if n.startswith(prefix)]:
            assert getattr(holder, prefix + name) is _resolve(torch, public + name)


def _resolve(torch: object, dotted: str) -> object:
    found = torch
    for part in dotted.split(".")[1:]:
        found = getattr(found, part)
    return found
