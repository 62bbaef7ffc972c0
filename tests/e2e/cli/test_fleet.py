"""Nothing is lost, and nothing is sent or told twice, while all that stores and minifies is killed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from indexes import add, chain, failing

from fxminify.benchmarks.fleet import FleetOptions, FleetTrial, Outcome, trial
from fxminify.store.index import Index

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


def test_what_is_lost_or_counted_twice_is_said(tmp_path: Path) -> None:
    place, outcome = str(tmp_path / "repro.db"), Outcome()
    with Index.open(place, create=True) as index:
        for operations in (["sin"], ["sin"], ["cos"], ["cos"], ["tanh"]):
            add(index, chain(operations), failing("no kernel"))
        add(index, chain(["sin"], backend="other"), failing("no kernel"))
    fleet = FleetTrial(SMALL, tmp_path, place, None)
    met = [{"graph": graph} for graph in ("sin", "sin", "sin", "cos", "relu", "relu")]
    with fleet.webhook, Index.open(place, readonly=True) as index:
        row = fleet._captures(index, met, outcome)
    assert outcome.wrong == [
        "1 captures are lost: ['relu']",
        "1 captures are stored twice: ['sin']",
        "1 captures are of failures that did not occur: ['tanh']",
        "2 occurrences are lost",
        "2 occurrences are counted twice",
    ]
    assert (row["captures lost"], row["captures twice"], row["occurrences lost"], row["occurrences twice"]) == (
        1,
        1,
        2,
        2,
    )
