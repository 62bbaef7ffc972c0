"""How many runs tell a variant that passes from one that was lucky."""

import pytest

from fxminify.minifier.oracle.oracle import Votes, tally
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.reporting.luck import Luck, measuring
from fxminify.store.rates import least_rate, runs_that_tell


@pytest.mark.parametrize(
    ("shown", "runs", "least"), [(1, 1, 0.05), (3, 3, 0.3684), (10, 10, 0.7411), (1, 10, 0.0051), (12, 40, 0.1831)]
)
def test_the_rate_is_at_least_what_the_exact_bound_says(shown: int, runs: int, least: float) -> None:
    assert least_rate(shown, runs) == pytest.approx(least, abs=1e-4)


def test_more_runs_of_the_minimal_case_need_fewer_of_a_variant() -> None:
    assert [runs_that_tell(*shown, 0.001) for shown in ((3, 10), (6, 20), (12, 40), (40, 40))] == [76, 46, 35, 3]
    assert Luck(12, 40).votes == Votes(1, 35)
    assert Luck(12, 40).refusal == ""
    assert Luck(3, 10).refusal == (
        "What matters was not judged: the minimal case fails in 3 of 10 runs, and each variant would take 76 runs."
    )
    with pytest.raises(ValueError, match="has no rate"):
        runs_that_tell(0, 10, 0.001)


def test_a_rate_is_measured_in_about_half_a_minute() -> None:
    assert [measuring(seconds).runs for seconds in (0.0, 0.5, 1.0, 20.0)] == [40, 40, 30, 10]


def test_measuring_makes_every_run() -> None:
    same, passes = Verdict(Outcome.SAME), Verdict(Outcome.PASS)
    votes = Votes(4, 4, whole=True)
    assert tally([passes, same, passes], votes) is None
    final = tally([passes, same, passes, same], votes)
    assert final is not None
    assert (final.outcome, final.counted) == (Outcome.FLAKY, (2, 4))
    none = tally([passes] * 4, votes)
    assert none is not None
    assert (none.outcome, none.counted) == (Outcome.PASS, (0, 4))
    alone = tally([passes], Votes())
    assert alone is not None
    assert alone.counted == (0, 1)
