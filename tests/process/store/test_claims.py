"""Two processes at one index: a capture is claimed by one of them, and by nobody once that is gone."""

import errno
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from indexes import add, chain, failing

from fxminify.minifier.session.events import CaptureFinished
from fxminify.minifier.session.minify import minify
from fxminify.store.index import Index, State

HOLDER = """
import sys
from fxminify.store.index import Index
with Index.open(sys.argv[1]) as index, index.claims() as claims:
    print(claims.take(int(sys.argv[2])), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True) as index:
        for operation in ("sin", "cos"):
            add(index, chain([operation]), failing(f"no {operation}"))
    yield path
    assert [p.name for p in tmp_path.iterdir()] == ["repro.db"]


def holder(db: str, id: int) -> subprocess.Popen[str]:
    """A process that has claimed capture ``id``."""
    command = [sys.executable, "-c", HOLDER, db, str(id)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


@pytest.mark.parametrize("how", ["given back", "closed", "killed"])
def test_a_claim_is_of_one_process_as_long_as_that_holds_it(db: str, how: str) -> None:
    with Index.open(db) as index, index.claims() as claims, holder(db, 1) as other:
        assert not claims.take(1)
        assert claims.take(2)
        assert claims.take(2)
        claims.give_back(2)
        if how == "killed":
            other.kill()
        else:
            other.communicate()
        other.wait()
        assert claims.take(1)
        claims.give_back(1)
        with holder(db, 1) as third:
            third.communicate()


def test_who_has_the_file_open_when_the_last_one_goes_claims_a_new_one(db: str) -> None:
    with Index.open(db) as index, index.claims() as first, index.claims() as second:
        assert first.take(1)
        assert second.take(2)
        first.__exit__(None, None, None)  # one process: its locks do not stand against each other
        assert not Path(f"{db}-claims").exists()
        assert second.take(1)
        with holder(db, 2) as other:
            other.communicate()


def test_a_file_system_without_locks_has_no_claims(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "lockf", refuses)
    with Index.open(db) as index, index.claims() as claims:
        assert claims.take(1)


def test_minify_run_leaves_alone_what_another_process_is_at_work_on(db: str) -> None:
    told: list[object] = []
    with Index.open(db) as index, holder(db, 1) as other:
        index.captures.set_state(1, State.REDUCING)
        (result,) = minify(db, [1], listener=told.append)
        assert result.state is State.REDUCING
        assert told[-1] == CaptureFinished(result.capture, "another process is at work on it")
        other.communicate()


def test_minify_run_does_not_repeat_what_another_process_has_just_done(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fxminify.store.index.claims import Claims

    take = Claims.take

    def late(self: Claims, id: int) -> bool:
        with Index.open(db) as index:
            index.captures.set_state(id, State.VERIFIED)
        return take(self, id)

    monkeypatch.setattr(Claims, "take", late)
    assert [result.state for result in minify(db)] == [State.VERIFIED, State.VERIFIED]
