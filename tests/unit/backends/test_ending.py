"""The sentences at the end of a capture."""

from __future__ import annotations

import pytest

from fxminify.backends.capture.ending import Facts, failures, interrupted, unchecked, watched
from fxminify.store.failure import Phase

NOTED = {
    "captured": ["1 compile_error", "3 divergence", "3 divergence", "4 compile_error"],
    "refused": ["2 ValueError: no such gradient", "5 IndexError: index 9"],
    "watched": ["inductor", "eager", "inductor"],
    "compared": ["inductor", "inductor"],
    "lost": ["E: no kernel: the disk is full", "E: no space: the disk is full"],
    "unchecked": ["no float64", "it communicates", "no float64"],
}


def facts(*names: str, complete: bool = True) -> Facts:
    return Facts.read(lambda name: NOTED[name] if name in names else [], complete=complete)


def test_each_capture_is_counted_once_and_the_next_command_is_named() -> None:
    assert failures(facts("captured"), "my repro.db") == [
        "captured 3 failures (2 compile errors, 1 divergence); next: minify run 'my repro.db'"
    ]
    assert failures(facts("captured"), "repro.db", hint=False) == [
        "captured 3 failures (2 compile errors, 1 divergence)"
    ]
    assert failures(facts("captured"), "repro.db", ids=True)[0].endswith("; next: minify run repro.db 1 3 4")
    (sent,) = failures(facts("captured"), "http://127.0.0.1:8437")
    assert sent.endswith("; on the way to http://127.0.0.1:8437")


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (["2 ValueError: no such gradient"], "1 failing graph (ValueError: no such gradient)"),
        (NOTED["refused"], "2 failing graphs (ValueError: no such gradient, and 1 other error)"),
        ([f"2 ValueError: {'gradient ' * 40}"], f"1 failing graph (ValueError: {'gradient ' * 16}...)"),
    ],
)
def test_what_eager_has_as_well_is_no_failure_of_a_backend(refused: list[str], said: str) -> None:
    found = Facts.read(lambda name: refused if name == "refused" else [])
    assert failures(found, "repro.db") == [
        f"eager mode fails, too, for {said}; the program is wrong, not the backend: minify show repro.db 2"
    ]
    assert failures(found, "https://there") == [
        f"eager mode fails, too, for {said}; the program is wrong, not the backend"
    ]


@pytest.mark.parametrize(
    ("noted", "checks", "said"),
    [
        ([], False, "nothing captured: no graph reached a backend of torch.compile"),
        (["watched"], False, "1 graph compiled by eager, 2 graphs compiled by inductor, none failed; "
                             "compared: no (--check compares calls with eager)"),
        (["watched"], True, "1 graph compiled by eager, 2 graphs compiled by inductor, none failed; compared: 0 calls"),
        (["watched", "compared"], True,
         "1 graph compiled by eager, 2 graphs compiled by inductor, none failed; compared: 2 calls"),
    ],
)  # fmt: skip
def test_what_was_watched_where_nothing_failed(noted: list[str], checks: bool, said: str) -> None:
    assert watched(facts(*noted), checks=checks, ended="") == said
    outside = f"{said}; the program ended with ValueError outside every watched compilation and call"
    assert watched(facts(*noted), checks=checks, ended="ValueError") == outside


@pytest.mark.parametrize(("checks", "waits"), [(False, "--check"), (True, "CUDA_LAUNCH_BLOCKING=1 in the environment")])
def test_a_fault_of_a_device_outside_of_a_call_has_the_way_to_find_the_call(checks: bool, waits: str) -> None:
    said = watched(facts("watched"), checks=checks, ended="AcceleratorError")
    assert said.endswith(f"a device reports a fault after the call that met it, unless the call waits for it: {waits}")


def test_the_last_reason_why_a_call_could_not_be_compared_stands_for_the_others() -> None:
    assert unchecked(facts()) == ""
    said = "not all could be judged against eager: it communicates (and 1 other reason)"
    assert unchecked(facts("unchecked")) == said


def test_a_failure_that_could_not_be_stored_is_one_with_its_reason() -> None:
    assert failures(facts("lost"), "repro.db") == [
        "2 failures could not be stored: E: no kernel: the disk is full (and 1 other)"
    ]
    later = {**NOTED, "found": NOTED["lost"][:1]}
    found = Facts.read(lambda name: later[name] if name in ("lost", "found") else [])
    assert failures(found, "repro.db") == ["1 failure could not be stored: E: no space: the disk is full"]


def test_where_not_all_could_be_noted_the_index_says_what_was_captured() -> None:
    assert failures(facts("watched", complete=False), "repro.db") == [
        "not all that happened could be noted, because the disk is full or cannot be written: minify list repro.db"
    ]


def test_the_largest_difference_that_was_let_pass_is_named() -> None:
    lines = {
        "let_pass": ["2.5 output 1", "7.08 output 0 (add, model.py:3 f)"],
        "watched": ["mine"],
        "compared": ["mine"] * 2,
    }
    found = Facts.read(lambda name: lines.get(name, []))
    assert watched(found, checks=True, ended="") == (
        "1 graph compiled by mine; compared: 2 calls, which differ from eager by up to 7.1 times what "
        "torch.testing.assert_close allows at output 0 (add, model.py:3 f) (10 times are let pass, "
        "--check strict reports it)"
    )


@pytest.mark.parametrize(
    ("phase", "seconds", "said"),
    [
        (Phase.COMPILE, 221.4, "interrupted in a compilation after 221 s; if it hangs, --timeout 110 captures that as a"
         " failure"),
        (Phase.BACKWARD, 12.0, "interrupted in a backward call after 12 s; if it hangs, --timeout 10 captures that as a"
         " failure"),
        (Phase.FORWARD, 9.9, ""),
    ],
)  # fmt: skip
def test_what_lasts_long_before_it_is_interrupted_may_be_a_hang(phase: Phase, seconds: float, said: str) -> None:
    assert interrupted(phase, seconds) == said
