"""Where a sampled worker hangs: the innermost call that is on every sample."""

from __future__ import annotations

from fxminify.minifier.sandbox.stacks import ENOUGH, anchor, common


def test_common_calls_are_those_at_the_outer_end() -> None:
    assert common([("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b")]) == ("a", "b")
    assert common([("a", "b"), ("c", "b")]) == ()
    assert common([]) == ()


def test_an_anchor_needs_enough_samples() -> None:
    assert anchor([("a", "b")] * (ENOUGH - 1)) == ""
    assert anchor([*[("a", "b", "c")] * ENOUGH, ("a", "b", "d")]) == "b"
    assert anchor([("a",), *[("b",)] * ENOUGH]) == ""
