"""What every test may rely on, however the suite was started."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fxminify

sys.path.insert(0, str(Path(__file__).parent))  # `indexes`: what several floors read

# A suite started in the background (``make test &``, some CI runners) has SIGINT ignored, and so would every process
# that a test starts to press Ctrl-C on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[str]:
    """The path of an index that does not exist yet; Dynamo and the hook are fresh before and after."""
    import torch

    torch._dynamo.reset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield str(tmp_path / "repro.db")
    fxminify.uninstall()
    torch._dynamo.reset()
    torch.set_num_threads(threads)
