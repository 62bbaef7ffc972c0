"""A program that fails in eager mode as well is told from one whose failure does not show again."""

import pytest

from fxminify.minifier.oracle.replay import Replay
from fxminify.minifier.session.replays import is_refused
from fxminify.store.failure import METADATA, Failure, FailureKind, Phase
from fxminify.store.matching import FailureMatcher

REFUSED = Replay(False, FailureMatcher(()), refused="IndexError: index out of range in self")
CRASH = Failure(FailureKind.CRASH, Phase.FORWARD, message="the process died of SIGABRT")


def test_eager_raised_for_the_values_of_the_program() -> None:
    assert is_refused({"data": "full"}, CRASH, REFUSED)
    assert is_refused({}, CRASH, REFUSED)
    assert not is_refused({}, CRASH, Replay(False, FailureMatcher(()), passes=True))


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.DIVERGENCE])
def test_eager_may_run_the_values_that_were_not_kept(kind: FailureKind) -> None:
    assert not is_refused({"data": METADATA}, Failure(kind, Phase.COMPILE), REFUSED)


def test_eager_ran_the_program_whose_results_diverge() -> None:
    assert not is_refused({}, Failure(FailureKind.DIVERGENCE, Phase.FORWARD), REFUSED)
