"""A server on an index in a file, and on one of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, serving


@pytest.fixture(params=["file", pytest.param("url", marks=[pytest.mark.server, pytest.mark.slow])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "repro.db") if request.param == "file" else str(request.getfixturevalue("url"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def served(place: str, tmp_path: Path) -> Iterator[Served]:
    with serving(place, tmp_path / "uploads") as served:
        yield served
