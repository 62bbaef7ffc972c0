"""Programs and the corpus that tests of graph kinds use stand beside the tests, or among those of the store."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fxminify

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "programs"), str(HERE.parent / "store")]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[str]:
    """The path of an index that does not exist yet; Dynamo and the hook are fresh before and after."""
    torch._dynamo.reset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield str(tmp_path / "repro.db")
    fxminify.uninstall()
    torch._dynamo.reset()
    torch.set_num_threads(threads)
