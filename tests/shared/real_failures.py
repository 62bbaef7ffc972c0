"""The programs of ``tests/failures``: what they say of themselves, and which of them the torch here still fails at."""

import ast
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fxminify.store.versions import order

FOLDER = Path(__file__).parents[1] / "failures"
#: The constants by which a program names the version of torch since which it no longer fails, and why.
GONE = {"MENDED": "torch mended it in {}", "REFUSED": "eager refuses it, too, since torch {}"}


def constants(name: str) -> dict[str, Any]:
    """The upper-case names of a failure's program, read without running it."""
    found = {}
    for node in ast.parse((FOLDER / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def why_gone(name: str) -> str:
    """Why the program no longer fails with the torch that is installed; empty where it does."""
    said = constants(name)
    here = order(metadata.version("torch"))
    return next((why.format(said[key]) for key, why in GONE.items() if key in said and here >= order(said[key])), "")


def skip_if_gone(name: str) -> None:
    """Skip a test of a failure that the torch here does not have."""
    if why := why_gone(name):
        pytest.skip(why)
