"""An empty index for the tests of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fxminify.store.index import Index


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "repro.db")


@pytest.fixture
def index(path: str) -> Iterator[Index]:
    with Index.open(path, create=True) as index:
        yield index
