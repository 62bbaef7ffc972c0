"""The formats of a repro, as a table.

A row has the file name of a format, its template, its language, and the way to run it before it is shown. To add a
format, add a template and a row of `OURS`. Another package adds one with an entry point of the group
``fxminify.formats`` that names a `Format`; see ``docs/extending.md``.

A file is run as its receiver would run it: the code cells of a notebook from top to bottom, a test under pytest, which
must report an expected failure and nothing else, a test of PyTorch's style under unittest, a bisection driver until it
answers that the bug is present. `verify` does this in processes of their own and an empty directory.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from ..store import extensions
from ..store.failure import Failure, FailureKind
from .notebook import code
from .verify import Verification, verify

PACKAGE = "fxminify.repro_templates"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,29}\Z")


class UnknownFormat(ValueError):
    """No format has this name, or it cannot be used. The message says why."""


#: Runs the text of a format: ``run(text, shows, files=files, **options)``. ``shows`` says of a failure whether it is
#: the one that the text was made for, ``files`` are written beside the text, ``options`` are the options of `verify`.
Runner = Callable[..., Verification]
Shows = Callable[[Failure], bool]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of reproducers.

    ``file`` is the name of the file, ``template`` the name of a Jinja template in the directory ``templates`` of
    ``package``. ``language`` is the name of a Pygments lexer; text in ``python`` is compiled before it is shown.
    ``summary`` is one sentence for a reader who chooses a format. ``run`` runs the text; it is None if the text
    cannot be run.
    """

    name: str
    file: str
    template: str
    language: str
    summary: str
    run: Runner | None = None
    package: str = PACKAGE


def exits_with(code: int) -> Runner:
    """A runner for a Python program that exits with ``code`` as long as the bug is present."""

    def run(text: str, shows: Shows, **options: Any) -> Verification:
        return verify(text, _left(code), **options)

    return run


def _left(code: int) -> Shows:
    return lambda failure: failure.kind is FailureKind.CRASH and failure.type == f"exit {code}"


def _run_notebook(text: str, shows: Shows, **options: Any) -> Verification:
    return verify(code(text), shows, **options)


def _run_test(text: str, shows: Shows, *, files: Mapping[str, bytes], **options: Any) -> Verification:
    if importlib.util.find_spec("pytest") is None:
        return Verification(0, 0, mismatch="pytest is not installed here")
    return verify(_UNDER_PYTEST, _left(_EXPECTED), files={**files, _TEST: text.encode("ascii")}, **options)


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


def _run_upstream(text: str, shows: Shows, *, files: Mapping[str, bytes], **options: Any) -> Verification:
    if importlib.util.find_spec("expecttest") is None:
        return Verification(0, 0, mismatch="expecttest is not installed here, which torch's own tests import")
    beside = {**files, f"{_UPSTREAM}.py": text.encode("ascii")}
    return verify(_UNDER_UNITTEST, _left(_EXPECTED), files=beside, **options)


_UPSTREAM = "test_upstream"
_UNDER_UNITTEST = f"""\
import sys
import unittest
import {_UPSTREAM}

tests = unittest.defaultTestLoader.loadTestsFromModule({_UPSTREAM})
result = unittest.TextTestRunner().run(tests)
expected = result.wasSuccessful() and (result.testsRun, len(result.expectedFailures)) == (1, 1)
sys.exit({_EXPECTED} if expected else 1)
"""

#: The formats of this package, in the order in which they are listed.
OURS: Mapping[str, Format] = MappingProxyType({f.name: f for f in (
    Format("script", "repro.py", "script.py.j2", "python",
           "A script that fails while the bug is there and exits 0 once it is gone.", run=verify),
    Format("pytest", _TEST, "pytest.py.j2", "python",
           "A regression test that is expected to fail until the bug is gone.", run=_run_test),
    Format("issue", "issue.md", "issue.md.j2", "markdown",
           "The text of a bug report, in Markdown, with the script inside."),
    Format("comment", "comment.md", "comment.md.j2", "markdown",
           "A comment of at most 25 lines of Markdown: the script, and what was measured about it."),
    Format("notebook", "repro.ipynb", "notebook.ipynb.j2", "json",
           "The script as the cells of a Jupyter notebook.", run=_run_notebook),
    Format("bisect", "bisect_repro.py", "bisect.py.j2", "python",
           "A driver for `git bisect run`: 0 means gone, 1 there, 125 cannot tell.", run=exits_with(1)),
    Format("upstream-test", f"{_UPSTREAM}.py", "upstream_test.py.j2", "python",
           "A test in the style of PyTorch's own, which is expected to fail until the bug is gone.", run=_run_upstream),
)})  # fmt: skip


def formats() -> Mapping[str, Format]:
    """Return every usable format by name: ours, then formats of other packages, sorted by name."""
    return _found()[0]


def broken() -> Mapping[str, str]:
    """The formats of other packages that cannot be used, by name, with the reason."""
    return _found()[1]


def find(name: str) -> Format:
    """The format ``name``. Raises `UnknownFormat`."""
    if (format := OURS.get(name) or formats().get(name)) is not None:
        return format
    if name in broken():
        raise UnknownFormat(f"the format {name!r} cannot be used: {broken()[name]}")
    raise UnknownFormat(f"{name!r} is no format; there are {', '.join(formats())}")


@cache
def _found() -> tuple[Mapping[str, Format], Mapping[str, str]]:
    usable, refused = dict(OURS), {}
    for extension in extensions.installed(extensions.FORMATS):
        reason = extension.problem
        try:
            reason = reason or _fault(extension.name, extension.object, usable)
        except Exception as error:  # noqa: BLE001  a package that is not whole must not take the others along
            reason = f"{type(error).__name__}: {error}"
        if reason:
            refused[extension.name] = reason
        else:
            usable[extension.name] = extension.object
    return MappingProxyType(usable), MappingProxyType(refused)


def _fault(name: str, format: object, others: Mapping[str, Format]) -> str:
    """Return why ``format`` of another package cannot be used, or an empty text if it can."""
    if not isinstance(format, Format):
        return f"it is a {type(format).__name__}, not a Format"
    if not _NAME.match(name) or format.name != name:
        return f"the entry point {name!r} names a format called {format.name!r}; use one lower-case name for both"
    if name in others:
        return "there is one of this name already"
    if PurePath(format.file).name != format.file or format.file in {other.file for other in others.values()}:
        return f"its file name {format.file!r} is no plain name, or is taken"
    if not (importlib.resources.files(format.package) / "templates" / format.template).is_file():
        return f"{format.package} has no templates/{format.template}"
    return ""
