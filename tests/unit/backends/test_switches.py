"""Switches of compilers, applied to cases as data."""

from __future__ import annotations

import pytest

from fxminify.backends.adapters import adapters
from fxminify.backends.switches import CannotSwitch, Switch, together
from fxminify.store.document.case import Case, Graph

CASE = Case(Graph(()), (), ())
SIMD = Switch("vector code", {"acme.config": {"cpp.simdlen": 1}})
LEVEL = Switch("optimizations", options={"session": {"level": 0}, "fast": False})


def with_options(options: object) -> Case:
    return Case(Graph(()), (), (), backend={"name": "acme", "options": options})


def test_settings_are_added_to_those_of_the_case() -> None:
    before = Case(Graph(()), (), (), context={"config": {"acme.config": {"a": 1}}, "threads": 1})
    after = SIMD.applied(before)
    assert after.context == {"config": {"acme.config": {"a": 1, "cpp.simdlen": 1}}, "threads": 1}
    assert before.context["config"] == {"acme.config": {"a": 1}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [["session", {"dict": [["level", 0]]}], ["fast", False]]),
        ({"dict": [["other", 2]]}, [["other", 2], ["session", {"dict": [["level", 0]]}], ["fast", False]]),
        (
            {"dict": [["fast", True], ["session", {"dict": [["level", 3], ["x", 1]]}]]},
            [["session", {"dict": [["x", 1], ["level", 0]]}], ["fast", False]],
        ),
    ],
)
def test_options_are_added_to_those_of_the_case(before: object, after: object) -> None:
    assert LEVEL.applied(with_options(before)).backend == {"name": "acme", "options": {"dict": after}}


def test_options_that_are_made_by_a_call_are_left_alone() -> None:
    made = {"dict": [["session", {"call": {"func": {"import": ["acme", "Options"]}}}]]}
    with pytest.raises(CannotSwitch, match="not a dictionary"):
        LEVEL.applied(with_options(made))


def test_lines_are_what_a_person_types() -> None:
    assert SIMD.lines == ["acme.config.cpp.simdlen = 1"]
    assert LEVEL.lines == ["torch.compile(..., options={'session': {'level': 0}, 'fast': False})"]
    assert together([SIMD, LEVEL]).lines == [*SIMD.lines, *LEVEL.lines]


def test_switches_of_an_adapter_have_different_lines() -> None:
    for adapter in adapters().values():
        lines = [tuple(switch.lines) for switch in adapter.switches]
        assert len(set(lines)) == len(lines)
        assert all(lines)
