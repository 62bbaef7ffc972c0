"""Nothing is lost, and nothing is sent or told twice, while all that stores and minifies is killed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxminify.benchmarks.fleet import FleetOptions, trial

SMALL = FleetOptions(jobs=6, minutes=1, per_machine=2, bugs=4, pause=2, every=4)


@pytest.mark.slow
@pytest.mark.server
def test_jobs_capture_while_database_server_workers_and_senders_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("server")  # skips where there is none; the trial has its own
    outcome = trial(SMALL, tmp_path)
    assert outcome.wrong == []
    assert {row["part"] for row in outcome.rows["killed"]} == {"database", "server", "worker", "driver", "sender"}
    (captures,) = outcome.rows["captures"]
    assert captures["stored"] > SMALL.bugs
    assert captures["met"] > captures["stored"]
