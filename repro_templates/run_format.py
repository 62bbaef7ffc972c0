"""Running a format as its receiver would: does it do with the failure what it says it does?

A notebook is run as its code cells from top to bottom. For pytest a test must be an expected failure and nothing else.
A bisection driver must answer that the bug is there. All of it goes through `verify`: fresh processes, an empty
directory.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from ..store.failure import Failure, FailureKind
from .notebook import code
from .verify import Verification, verify

#: The formats that run; the script itself is verified by who makes it.
RUN = ("script", "pytest", "notebook", "bisect")
_TEST = "test_repro.py"
#: The exit code of `_UNDER_PYTEST` where the one test is an expected failure.
_EXPECTED = 70
_UNDER_PYTEST = f"""\
import sys
import pytest

class Outcomes(list):
    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.append(report.outcome if hasattr(report, "wasxfail") else "another outcome")

outcomes = Outcomes()
code = pytest.main(["-q", "-p", "no:cacheprovider", "{_TEST}"], plugins=[outcomes])
sys.exit({_EXPECTED} if (code, outcomes) == (0, ["skipped"]) else 1)
"""


def run_format(
    format: str, text: str, shows: Callable[[Failure], bool], *, files: Mapping[str, bytes], **options: Any
) -> Verification:
    """Run ``text``, which is of ``format``; ``shows`` says of a failure whether it is the one, ``files`` lie beside
    it, and ``options`` are those of `verify`."""
    if format == "notebook":
        return verify(code(text), shows, files=files, **options)
    if format == "bisect":
        return verify(text, _leaves(1), files=files, **options)
    if format == "pytest":
        if importlib.util.find_spec("pytest") is None:
            return Verification(0, 0, instead="pytest is not installed here")
        return verify(_UNDER_PYTEST, _leaves(_EXPECTED), files={**files, _TEST: text.encode("ascii")}, **options)
    return verify(text, shows, files=files, **options)


def _leaves(code: int) -> Callable[[Failure], bool]:
    """Whether a process ended with this exit code."""
    return lambda failure: failure.kind is FailureKind.CRASH and failure.type == f"exit {code}"
