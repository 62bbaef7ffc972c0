"""The worker beside a server, without the server. What it does with one is in `tests/e2e/cli/test_serve.py`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fxminify.service.workers.local import LocalWorker


def test_a_worker_that_can_never_work_is_not_started_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = LocalWorker(str(tmp_path / "none.db"), 1)
    while not (sentence := worker.revive()):
        time.sleep(0.05)
    assert sentence == "the worker cannot work here, and is not started again"
    assert worker.revive() == ""
    worker.end()
    assert "none.db does not exist" in capfd.readouterr().err
