"""What every test may rely on, however the suite was started, and the tier of each test.

The tier is the folder, unless a test among quicker ones has the marker of its own: ``unit`` imports no torch, ``torch``
imports it, ``process`` starts workers or commands, or takes seconds, ``e2e`` goes the whole way from a program to its
script. In ``hostile`` are trials with documents and files that mean harm; they belong to ``process``. Modules that
several tests share are in ``shared``, programs that tests run in ``programs``.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

import fxminify
from fxminify.store.document import names

HERE = Path(__file__).parent
TIERS = ("unit", "torch", "process", "e2e")
#: The tier of folders that are named for what is in them.
TIER_OF = {"hostile": "process"}
#: Among the programs that tests run are tests of users.
collect_ignore = ["programs"]
pytest_plugins = ["desks", "postgres", "recreation"]

# Where Python is told to keep no byte code, as in some containers, each process that a test starts would compile this
# whole package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A suite started in the background (``make test &``, some CI runners) has SIGINT ignored, and so would every process
# that a test starts to press Ctrl-C on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    folder = item.path.relative_to(HERE).parts[0]
    tier = TIER_OF.get(folder, folder)
    assert tier in TIERS, f"{item.path} is in none of the tiers {', '.join(TIERS)}"
    if not any(item.get_closest_marker(other) for other in TIERS):
        item.add_marker(tier)


class NoTorch(MetaPathFinder):
    """Refuses to import torch."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torch":
            raise ImportError("a test of the tier `unit` imports torch; it belongs in `torch`")


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a run of unit tests alone nothing can import torch."""
    if session.items and all(item.get_closest_marker("unit") for item in session.items):
        assert "torch" not in sys.modules, "collecting the tests of the tier `unit` imports torch"
        sys.meta_path.insert(0, NoTorch())


def pytest_sessionstart(session: pytest.Session) -> None:
    """With another torch than that of the shipped table, the names of this one are there from the first test on."""
    if not hasattr(session.config, "workerinput"):  # once, before pytest-xdist starts its processes
        names.grow()


@pytest.fixture
def fresh_dynamo() -> None:
    """Dynamo has compiled nothing yet."""
    import torch

    torch._dynamo.reset()


@pytest.fixture
def own_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """`caplog` that also gets what a capture logs, which goes to no handler of the program."""
    log = logging.getLogger("fxminify")
    log.addHandler(caplog.handler)
    try:
        yield caplog
    finally:
        log.removeHandler(caplog.handler)


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
