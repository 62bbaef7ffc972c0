"""Questions that wait at the same time are asked together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fxminify.service.http.together import Together
from fxminify.store.errors import StoreError, full

SECONDS = 20


class Halting:
    """Answers with ``answer``, the first time when it is told to. Remembers what was asked."""

    def __init__(self, answer: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._answer = answer
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.asked: list[list[Any]] = []

    def __call__(self, questions: Sequence[Any]) -> Sequence[Any]:
        self.asked.append(list(questions))
        self.begun.set()
        assert self.goes_on.wait(SECONDS)
        return self._answer(questions)


def asked(together: Together[Any, Any], halting: Halting, *questions: Any) -> list[Any]:
    """The answers to the first question, and to the others, which come while it is being asked: or what they raise."""
    futures = [together.ask(questions[0])]
    assert halting.begun.wait(SECONDS)
    futures += [together.ask(question) for question in questions[1:]]
    halting.goes_on.set()
    return [future.exception(SECONDS) or future.result(SECONDS) for future in futures]


def test_what_waits_is_asked_in_one_go_and_not_more_than_may_be() -> None:
    double = Halting(lambda numbers: [2 * number for number in numbers])
    together: Together[int, int] = Together("doubling", double, most=6, size=lambda number: number)
    assert asked(together, double, 1, 3, 3, 2, 9, 1) == [2, 6, 6, 4, 18, 2]
    assert double.asked == [[1], [3, 3], [2], [9], [1]]
    assert together.ask(5).result(SECONDS) == 10


def test_one_that_fails_fails_alone() -> None:
    def upper(texts: Sequence[str]) -> Sequence[str]:
        if "bad" in texts:
            raise StoreError("bad is no question")
        return [text.upper() for text in texts]

    halting = Halting(upper)
    answers = asked(Together("answering", halting, most=10), halting, "first", "good", "bad", "fine")
    assert [*answers[:2], *answers[3:]] == ["FIRST", "GOOD", "FINE"]
    assert str(answers[2]) == "bad is no question"
    assert halting.asked == [["first"], ["good", "bad", "fine"], ["good"], ["bad"], ["fine"]]


@pytest.mark.parametrize("cause", [OSError(28, "No space left on device"), ConnectionError("it went away")])
def test_where_it_is_not_their_fault_nobody_is_asked_again(cause: OSError) -> None:
    def fail(texts: Sequence[str]) -> Sequence[str]:
        raise StoreError(full("the disk")) from cause

    halting = Halting(fail)
    answers = asked(Together("answering", halting, most=10), halting, "first", "second", "third")
    assert [type(answer) for answer in answers] == [StoreError] * 3
    assert halting.asked == [["first"], ["second", "third"]]
