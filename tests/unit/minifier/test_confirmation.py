"""A used worker is not believed for long: an unused one confirms what the search builds on."""

from __future__ import annotations

from typing import Any

import pytest
from descents import Book, descent
from made import has, ops, tower

from fxminify.minifier.oracle.oracle import Votes
from fxminify.minifier.oracle.scheduler import FRESH
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.session.reduction import BACK, CONFIRM
from fxminify.store.document.case import Case


class Polluted:
    """Fails with ``asinh``. A worker that has answered ``healthy`` queries fails with anything else as well."""

    votes = Votes()

    def __init__(self, healthy: int) -> None:
        self.healthy, self.used = healthy, 0
        self.asked: list[tuple[bool, list[str]]] = []

    def with_votes(self, votes: Votes) -> Polluted:
        raise AssertionError("it never comes and goes")

    def ask(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Verdict:
        self.asked.append((fresh, ops(case)))
        self.used = 0 if fresh else self.used + 1
        wrong = self.used > self.healthy
        return Verdict(Outcome.SAME if wrong or has("asinh")(case) else Outcome.PASS)

    def replace_workers(self) -> None:
        self.used = 0


def reduced(oracle: Any, book: Book | None = None) -> tuple[Case, Book]:
    case, trace = tower(40, {20: "asinh"})
    way, _, written = descent(case, trace, lambda case: 0.0, 0, oracle=oracle, book=book)
    return way.run().case, written


@pytest.mark.parametrize("healthy", [0, 1, 3, 6, 9, 12, 15])
def test_a_worker_that_fails_with_everything_leads_nowhere(healthy: int) -> None:
    found, book = reduced(Polluted(healthy))
    assert "asinh" in ops(found)
    assert [note for note in book.notes if "the workers are replaced" in note] != [] or ops(found) == ["asinh"]
    assert len(book.answers) <= 150


def test_what_is_confirmed_is_asked_of_an_unused_worker() -> None:
    oracle = Polluted(1000)
    found, book = reduced(oracle)
    assert ops(found) == ["asinh"]
    fresh = [names for unused, names in oracle.asked if unused]
    assert fresh[0] == ["asinh"]  # once nothing more can be removed
    confirmed = [key for key, name in book.names.items() if name == CONFIRM]
    assert len(confirmed) == len(fresh) <= 3
    assert all(key.endswith(FRESH) for key in confirmed)
    assert book.notes == []


def test_a_step_that_is_not_confirmed_is_undone_and_never_asked_again() -> None:
    oracle = Polluted(3)
    found, book = reduced(oracle)
    assert BACK in [step.pass_name for step in book.steps]
    keys = [step.key for step in book.steps if step.pass_name != BACK]
    assert len(set(keys)) == len(keys)
    used = [tuple(names) for unused, names in oracle.asked if not unused]
    assert "asinh" in ops(found)
    assert len(used) == len(oracle.asked) - sum(unused for unused, _ in oracle.asked)


def test_a_run_that_goes_on_later_confirms_nothing_again() -> None:
    found, book = reduced(Polluted(5))
    again = Polluted(0)
    assert reduced(again, Book(book.answers))[0] == found
    assert again.asked == []
