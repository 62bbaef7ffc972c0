"""What the history of a case says: since when, between which versions, and what is worse than it was."""

from __future__ import annotations

from typing import Any

import pytest

from fxminify.minifier.reporting.standing import Expect, as_expected, history, standing
from fxminify.store.index import CaptureInfo, Retest, RetestResult, State
from fxminify.store.versions import order

OLD, NEW = "2.13.0+cpu", "2.14.0"
FAILING, FIXED, CHANGED, CANNOT = (
    RetestResult.FAILING,
    RetestResult.FIXED,
    RetestResult.CHANGED,
    RetestResult.CANNOT_RUN,
)


def captured(torch: str = OLD) -> CaptureInfo:
    some: dict[str, Any] = dict.fromkeys(CaptureInfo.__dataclass_fields__)
    return CaptureInfo(**{
        **some, "id": 1, "state": State.VERIFIED, "backend": "inductor", "signature": "v1:a",
        "created": "2026-10-01T08:00:00+00:00", "provenance": {"torch": torch},
    })  # fmt: skip


def retests(*found: tuple[Any, ...]) -> list[Retest]:
    """``(result, version of torch, backend = inductor, signature of another failure, other versions)``, a day each."""
    rows = []
    usual: tuple[Any, ...] = ("inductor", "", {})
    for number, (result, torch, *rest) in enumerate(found, 1):
        day = f"2026-11-{number:02}T00"
        backend, other, more = [*rest, *usual[len(rest) :]]
        rows.append(Retest(number, 1, backend, result, "", other, 0, 2, 1.0, {"torch": torch, **more}, day))
    return rows


def text(*found: tuple[Any, ...], torch: str = "") -> str:
    where = standing(captured(), "inductor", retests(*found), torch=torch)
    assert where is not None
    return where.text()


def test_the_capture_is_the_first_retest_under_its_own_backend_only() -> None:
    assert text() == "failing since 2026-10-01 with torch 2.13.0+cpu, first seen 2026-10-01"
    assert standing(captured(), "aot_eager", []) is None
    where = standing(captured(), "aot_eager", retests((FIXED, NEW, "aot_eager")))
    assert where is not None
    assert where.text() == "passes since 2026-11-01 with torch 2.14.0, first seen 2026-10-01"


def test_between_which_versions_it_was_fixed() -> None:
    assert text((FAILING, OLD), (FIXED, NEW)) == "fixed in torch 2.14.0 (failed with 2.13.0+cpu), first seen 2026-10-01"


def test_who_tries_an_older_torch_again_learns_nothing_about_the_newer_one() -> None:
    both = [(FIXED, NEW), (FAILING, OLD), (FAILING, OLD), (FIXED, NEW)]
    assert text(*both) == "fixed in torch 2.14.0 (failed with 2.13.0+cpu), first seen 2026-10-01"
    assert text(*both, torch=OLD) == "failing since 2026-10-01 with torch 2.13.0+cpu, first seen 2026-10-01"


def test_a_package_besides_torch_may_be_what_changed() -> None:
    old, new = {"onnxruntime": "1.20"}, {"onnxruntime": "1.21"}
    found = text((FAILING, OLD, "inductor", "", old), (FIXED, OLD, "inductor", "", new))
    assert found == "fixed in onnxruntime 1.21 (failed with 1.20), first seen 2026-10-01"


def test_it_may_change_though_no_version_did() -> None:
    found = text((FAILING, OLD), (FIXED, OLD), (FAILING, OLD))
    assert found == (
        "failing since 2026-11-03 with torch 2.13.0+cpu; it was fixed with the same versions, first seen 2026-10-01"
    )


def test_what_could_not_run_says_nothing() -> None:
    assert text((CANNOT, NEW)) == "failing since 2026-10-01 with torch 2.13.0+cpu, first seen 2026-10-01"


KNOWN = [
    ((), FIXED, True),
    ((), FAILING, True),
    ((), CHANGED, False),
    (((CHANGED, OLD, "inductor", "v1:b"),), CHANGED, True),
    (((CHANGED, OLD, "inductor", "v1:c"),), CHANGED, False),
    (((FIXED, OLD),), FAILING, False),
    (((FIXED, OLD), (FAILING, OLD)), FAILING, False),
    (((FIXED, OLD), (CHANGED, OLD, "inductor", "v1:b")), CHANGED, False),
    (((FIXED, "2.15"),), FAILING, True),
    (((FIXED, OLD, "aot_eager"),), FAILING, True),
]


@pytest.mark.parametrize(("before", "result", "expected"), KNOWN)
def test_nothing_worse_than_known(before: tuple[Any, ...], result: RetestResult, expected: bool) -> None:
    """A regression stays one until it is fixed again; a retest with a newer torch does not count for an older one."""
    (found,) = retests((result, NEW, "inductor", "v1:b" if result is CHANGED else ""))
    rows = history(captured(), "inductor", retests(*before), torch=NEW)
    assert as_expected(found, rows, True, Expect.KNOWN) is expected


def test_under_another_backend_the_first_retest_says_what_is_known() -> None:
    (found,) = retests((CHANGED, NEW, "aot_eager", "v1:b"))
    assert as_expected(found, [], False, Expect.KNOWN)
    assert not as_expected(found, retests((FIXED, NEW, "aot_eager")), False, Expect.KNOWN)


@pytest.mark.parametrize(("expect", "right"), [(Expect.FIXED, FIXED), (Expect.FAILING, FAILING)])
def test_who_knows_what_every_case_must_do_can_say_so(expect: Expect, right: RetestResult) -> None:
    for result in (FIXED, FAILING, CHANGED):
        (found,) = retests((result, NEW))
        assert as_expected(found, [], True, expect) is (result is right)


def test_versions_of_torch_sort_as_they_were_released() -> None:
    released = ["", "2.9.1", "2.10.0+cpu", "2.13.0.dev20261001", "2.13.0a0+git1", "2.13.0rc2", "2.13", "2.13.1"]
    assert sorted(released[4:] + released[:4], key=order) == released
    assert order("2.13.0+cpu") == order("2.13")
    assert order("unknown") == order("")
