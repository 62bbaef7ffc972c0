"""Backends of a script come back in another process."""

from __future__ import annotations

import pytest
from recreation import Recreated

EMBEDDED = [
    "function", "registered", "registered_object", "decorated", "instance", "dataclass", "named_lambda", "lambda",
    "closure", "partial", "class_from_script", "aot", "aot_global",
]  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDED)
def test_backend_of_the_script_comes_back(recreated: Recreated, name: str) -> None:
    case = recreated("train.py")[name]
    assert case["here"].endswith("[2.0, 2.0, 2.0]\n")
    assert case["source"] == case["here"]
    assert case["callable"] == case["here"]
    assert case["compile"] == case["here"]
    assert case["unwrapped_spec"] == case["spec"]


def test_a_registered_backend_of_the_script_keeps_its_name(recreated: Recreated) -> None:
    case = recreated("train.py")["registered"]
    assert case["imports"] == ["from torch._dynamo import register_backend"]
    assert case["arguments"] == 'backend="in_script", mode="max-autotune"'


def test_what_the_script_guards_can_be_imported(recreated: Recreated) -> None:
    case = recreated("train.py")["unwritable_global"]
    assert case["imports"] == ["from train import unwritable"]
    assert case["callable"] == case["compile"] == case["here"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unwritable_cell", "the closure cell 'extra' of make.<locals>.inner, a Handle, cannot be written down"),
    ],
)
def test_the_reason_of_a_refusal_names_the_culprit(recreated: Recreated, name: str, reason: str) -> None:
    assert reason in recreated("train.py")[name]["problem"]
