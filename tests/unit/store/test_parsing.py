"""Python source is parsed by one thread at a time, because CPython fails now and then where several do."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

import pytest

import fxminify
from fxminify.store.parsing import parse

SOURCE = "\n".join(f"def f{i}(x):\n    return [a + {i} for a in x if (a, {{'k': [x, (1, 2)]}})]" for i in range(200))


class Yielding:
    """When it is collected, in the middle of another thread's work, it lets other threads run."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def eager_switches() -> object:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


def test_threads_that_parse_at_the_same_time_do_not_disturb_one_another(eager_switches: object) -> None:
    """`ast.parse` itself raises SystemError here once in some seconds."""
    errors: list[BaseException] = []
    until = time.monotonic() + 3

    def work() -> None:
        while time.monotonic() < until and not errors:
            Yielding()
            try:
                parse(SOURCE)
            except SystemError as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_nothing_in_the_package_parses_otherwise() -> None:
    root = Path(fxminify.__file__).parent
    floors = [
        path
        for floor in ("store", "backends", "repro_templates", "minifier", "service")
        for path in (root / floor).rglob("*.py")
    ]
    assert len(floors) > 100
    found = [str(path.relative_to(root)) for path in floors if "ast.parse(" in path.read_text()]
    assert found == [str(Path("store", "parsing.py"))]
