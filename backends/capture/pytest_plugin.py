"""`pytest --minify-capture DB`: backend failures in a test suite become rows of a database.

pytest imports this module in every run once fxminify is installed, so it loads nothing else, and without the option it
does nothing. With the option the hook is installed in the process that runs the tests: pytest's own, or each worker of
pytest-xdist; all write into one file. The hook sees backends, not results of tests: a failure that a test expects
(``pytest.raises``, ``xfail``) is captured like any other. The process that prints the summary compares the database
with its earlier content.
"""

from __future__ import annotations

from typing import Any

import pytest

#: Captures that the summary lists; the others are counted.
_LISTED = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fxminify", "captured failures of torch.compile backends")
    group.addoption("--minify-capture", metavar="DB", help="Capture every failure of a torch.compile backend into DB.")
    group.addoption("--minify-check", action="store_true", help="Also compare calls of each compiled graph with eager.")


def pytest_configure(config: pytest.Config) -> None:
    db = config.getoption("--minify-capture")
    if db is None:
        if config.getoption("--minify-check"):
            raise pytest.UsageError("--minify-check needs --minify-capture DB")
        return
    place = db if "://" in db else str(config.invocation_params.dir / db)
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist are given the place, not where pytest was called
        from ...store.errors import StoreError
        from .places import check

        try:
            check(place)
        except StoreError as error:
            raise pytest.UsageError(f"--minify-capture: {error}") from error
        config.pluginmanager.register(Summary(db, place), "fxminify-summary")
        config.option.minify_capture = place
    config.pluginmanager.register(Capturing(place, check=config.getoption("--minify-check")), "fxminify-capturing")


class Capturing:
    """Installs the hook for a session, in the process that runs tests."""

    def __init__(self, db: str, **settings: Any) -> None:
        self._db = db
        self._settings = settings
        self._supervised = _supervised()

    def pytest_sessionstart(self) -> None:
        from . import hook

        if not self._supervised:  # else `minify capture` armed the hook, and says at the end what it caught
            hook.install(self._db, **self._settings)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        from . import hook

        if not self._supervised:
            hook.uninstall()


class Summary:
    """Prints at the end what was captured, from which test, and what to type next."""

    def __init__(self, db: str, place: str) -> None:
        from ...store.errors import without_password
        from ...store.index.changes import Changes
        from ...store.spool.spool import is_server

        self._sent = is_server(place)
        self._db = without_password(db)
        self._changes = Changes(place)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if _supervised():
            return
        if self._sent:
            terminalreporter.write_line(f"fxminify: failures of backends are on the way to {self._db}")
            return
        rows = self._changes.rows()
        if not rows:
            terminalreporter.write_line("fxminify: no failure of a backend was seen")
            return
        new = sum(self._changes.is_new(row) for row in rows)
        from ...store.failure import kind_in_words

        terminalreporter.section("failures of torch.compile backends")
        for row in rows[:_LISTED]:
            where = row.provenance.get("test") or row.provenance.get("program", "")
            kind, backend = _plain(kind_in_words(row.kind)), _plain(row.backend)
            terminalreporter.write_line(f"{row.id} {kind} in {backend}: {_plain(where)}")
        if len(rows) > _LISTED:
            terminalreporter.write_line(f"... and {len(rows) - _LISTED} more: minify list {self._db}")
        known = f", {len(rows) - new} known" if new < len(rows) else ""
        theirs = sum(row.state == "eager_refuses" for row in rows)
        also = f"; eager mode fails, too, for {theirs} of them" if theirs else ""
        then = f"; next: minify run {self._db}" if theirs < len(rows) else ""
        terminalreporter.write_line(f"fxminify: captured {new} new{known}{also}{then}")


def _supervised() -> bool:
    """Does this run under `minify capture`?"""
    from .child import is_armed

    return is_armed()


def _plain(text: object) -> str:
    """Text from a database without control characters."""
    from ...store.text import printable

    return printable(str(text)[:200])
