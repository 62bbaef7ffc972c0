"""The programs of ``tests/failures``: what they say of themselves, and which of them the torch here still fails at."""

import ast
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fxminify.store.versions import order

FOLDER = Path(__file__).parents[1] / "failures"
#: The torch in which a failure was mended.
MENDED = {
    "017_acosh_overflow": "2.14",
    "026_ts_any_graph": "2.14",
    "064_big_resnet_acosh": "2.14",
    "151_cond_acosh": "2.14",
    "207_scheduler_cumsum_scalar": "2.15",
    "215_mae_randperm_take": "2.14",
    "221_molecule_jacfwd_half": "2.14",
}
#: The torch since which eager refuses the program, too.
REFUSED = {
    "008_fractional_maxpool_neg_kernel": "2.14",
    "060_big_densenet_fracpool": "2.14",
    "101_vander_backward": "2.14",
}


def constants(name: str) -> dict[str, Any]:
    """The upper-case names of a failure's program, read without running it."""
    found = {}
    for node in ast.parse((FOLDER / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def why_gone(name: str) -> str:
    """Return why the program no longer fails with the installed torch, or an empty text if it does."""
    here = order(metadata.version("torch"))
    for why, since in (("torch mended it in", MENDED), ("eager refuses it, too, since torch", REFUSED)):
        if name in since and here >= order(since[name]):
            return f"{why} {since[name]}"
    return ""


def skip_if_gone(name: str) -> None:
    """Skip a test of a failure that the torch here does not have."""
    if why := why_gone(name):
        pytest.skip(why)
