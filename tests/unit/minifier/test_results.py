"""The sentence about a minified capture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fxminify.minifier.session.results import STOPPED, outcome
from fxminify.store.index import CaptureInfo


@pytest.mark.parametrize(
    ("before", "reason", "said"),
    [
        (2, "", "none of its 2 nodes can go"),
        (2, f"{STOPPED}; to go on: x", "2 nodes, not minified to the end"),
        (9, f"{STOPPED}; to go on: x", "9 → 2 nodes"),
    ],
)
def test_only_a_search_that_came_to_its_end_says_that_nothing_can_go(before: int, reason: str, said: str) -> None:
    row = SimpleNamespace(
        state="verified", nodes_before=before, nodes_after=2, verified=3, runs=3, queries=5, reason=reason
    )
    runs = "5 queries, 3 of 3 fresh runs of the script show it"
    assert outcome(cast(CaptureInfo, row)) == f"verified: {said}, {runs}" + (f"; {reason}" if reason else "")
