"""`pytest repro.db`: the minimal cases of an index as tests, each run as `minify retest` runs it.

Only files that are named on the command line are collected. By default no bug may get worse: a fixed bug passes, a bug
that fails as before is an expected failure (``x``), and a bug that was fixed before or fails in a new way is a failure
of the suite. ``--minify-expect`` changes this. pytest imports this module in every run, so it imports the rest of the
package only when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .retest import RetestAnswer, RetestCase, RetestOptions

#: The `Processes` in which the cases of a session run.
_PROCESSES = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fxminify-cases", "minimal cases of torch.compile failures (pytest repro.db)")
    group.addoption(
        "--minify-expect", choices=["known", "fixed", "failing"], default="known",
        help="known (the default): no result is worse than the stored ones; fixed or failing: every case is.",
    )  # fmt: skip
    group.addoption("--minify-backend", action="append", default=[], metavar="NAME",
                    help="Run the cases under NAME, not the backend they failed with.")  # fmt: skip
    group.addoption("--minify-timeout", type=float, default=600.0, metavar="S", help="Seconds for one run of a case.")
    group.addoption("--minify-record", action="store_true", help="Remember the results in the file.")
    group.addoption("--minify-trust", action="store_true", help="Run cases that were made elsewhere.")
    group.addoption("--minify-sandbox", action="store_true", help="Run without network and without your files.")


def pytest_unconfigure(config: pytest.Config) -> None:
    if (processes := config.stash.get(_PROCESSES, None)) is not None:
        processes.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".db" or not parent.session.isinitpath(file_path):
        return None
    from ...store.index.sqlite import is_index

    found: pytest.Collector = RetestFile.from_parent(parent, path=file_path)
    return found if is_index(file_path) else None


class RetestFile(pytest.File):
    """An index whose minimal cases are tests."""

    def collect(self) -> Iterator[pytest.Item]:
        from ...backends.provenance.spec import InvalidSpec
        from ...store.errors import StoreError
        from ...store.index import Index
        from ..consent import refuse
        from .retest import collect

        try:
            with Index.open(str(self.path), readonly=True) as index:
                cases, skipped = collect(index, (), self.options(), refuse)
                self.known = index.retests.find()
        except (StoreError, InvalidSpec) as error:
            raise self.CollectError(str(error)) from error
        found = [(case, "") for case in cases] + [(answer.case, answer.message) for answer in skipped]
        for case, reason in sorted(found, key=lambda pair: pair[0].capture.id):
            yield RetestItem.from_parent(self, name=case.name, case=case, reason=reason)

    def options(self) -> RetestOptions:
        from ..reporting.standing import Expect
        from .retest import RetestOptions

        given = self.config.getoption
        return RetestOptions(
            backends=tuple(given("--minify-backend")), expect=Expect(given("--minify-expect")),
            timeout=given("--minify-timeout"), trust=given("--minify-trust"), record=given("--minify-record"),
            sandbox=given("--minify-sandbox"),
        )  # fmt: skip


class NotAsExpected(Exception):
    """The result of a case is not the expected one. The text is shown in the report."""


class RetestItem(pytest.Item):
    """A minimal case under a backend. ``reason`` says why it cannot be run; empty if it can."""

    parent: RetestFile

    def __init__(self, *, case: RetestCase, reason: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case
        self.reason = reason
        self.extra_keyword_matches |= {case.backend, case.capture.kind, case.capture.phase}

    def runtest(self) -> None:
        from ...backends.running.confinement import wanted
        from ...repro_templates.processes import Processes
        from ...store.index import Index, RetestResult
        from .retest import judge, keep, run

        if self.reason:
            pytest.skip(self.reason)
        options = self.parent.options()
        if _PROCESSES not in self.config.stash:
            self.config.stash[_PROCESSES] = Processes(wanted(options.sandbox))
        processes = self.config.stash[_PROCESSES]
        found, log = run(self.case, options.timeout, processes)
        if options.record:
            with Index.open(str(self.path)) as index:
                found = keep(index, self.case, found)
        answer = judge(self.case, found, self.parent.known, options.expect)
        self.add_report_section("call", "log of the case", log)
        self.user_properties += [("result", answer.result), *((f"version:{k}", v) for k, v in found.versions.items())]
        if found.result is RetestResult.CANNOT_RUN:
            pytest.skip(f"{answer.result}: {answer.message}")
        if not answer.expected:
            raise NotAsExpected(self.explain(answer))
        if found.result is not RetestResult.FIXED:
            pytest.xfail(f"{answer.result}: {answer.message or self.case.capture.headline}")

    def explain(self, answer: RetestAnswer) -> str:
        from .junit import details

        command = f"minify repro {self.path.name} {self.case.capture.id}"
        return f"{details(answer)}\nexpected: {self.config.getoption('--minify-expect')}\nthe script: {command}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(NotAsExpected) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
