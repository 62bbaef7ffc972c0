"""The versions of a package between which a failure begins or ends, with a case whose answers are known."""

from __future__ import annotations

import pytest

from fxminify.minifier.regression.version_range import Environments, VersionAnswer, search
from fxminify.store.errors import StoreError
from fxminify.store.versions import order

VERSIONS = [f"{major}.{minor}.0" for major in (1, 2, 10) for minor in (0, 2, 10)]


class Case:
    """Fails from ``since`` on. ``silent`` versions give no answer."""

    def __init__(self, since: str, *silent: str, before: bool = False) -> None:
        self.since, self.silent, self.before = since, silent, before
        self.asked: list[str] = []

    def __call__(self, version: str) -> VersionAnswer:
        self.asked.append(version)
        if version in self.silent:
            return VersionAnswer(version, "cannot run", "no wheel")
        fails = (order(version) >= order(self.since)) is not self.before
        return VersionAnswer(version, "still failing" if fails else "fixed")


@pytest.mark.parametrize("since", VERSIONS[1:])
def test_the_first_version_that_fails_is_found_by_bisection(since: str) -> None:
    case = Case(since)
    found = search("acme", VERSIONS, VERSIONS[0], VERSIONS[-1], case)
    before = VERSIONS[VERSIONS.index(since) - 1]
    assert (found.passes, found.fails, found.between) == (before, since, ())
    assert found.text() == f"fails since acme {since} ({before} passes)"
    assert len(case.asked) == len(set(case.asked)) <= 2 + 3


def test_where_the_good_version_is_the_newer_one_it_is_the_first_that_passes() -> None:
    found = search("acme", VERSIONS, VERSIONS[-1], VERSIONS[0], Case("2.2.0", before=True))
    assert (found.passes, found.fails) == ("2.2.0", "2.0.0")
    assert found.text() == "passes since acme 2.2.0 (2.0.0 fails)"


def test_versions_without_an_answer_are_named_where_they_lie_between() -> None:
    found = search("acme", VERSIONS, VERSIONS[0], VERSIONS[-1], Case("2.2.0", "2.0.0", "10.0.0"))
    assert (found.passes, found.fails, found.between) == ("1.10.0", "2.2.0", ("2.0.0",))
    assert found.text() == "fails since acme 2.2.0 (1.10.0 passes; 2.0.0 gave no answer)"
    assert found.to_json()["answers"][0] == {"version": "1.0.0", "result": "fixed", "message": ""}
    silent = search("acme", VERSIONS, VERSIONS[0], VERSIONS[-1], Case("2.2.0", *VERSIONS[1:-1]))
    assert (silent.passes, silent.fails, silent.between) == (VERSIONS[0], VERSIONS[-1], tuple(VERSIONS[1:-1]))


def test_only_versions_between_the_two_are_asked_about() -> None:
    case = Case("2.2.0")
    search("acme", VERSIONS, "1.10.0", "2.10.0", case)
    assert set(case.asked) <= {"1.10.0", "2.0.0", "2.2.0", "2.10.0"}


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("2.2.0", "10.0.0", "the case does not pass with acme 2.2.0, it is still failing"),
        ("1.0.0", "1.2.0", "the case does not fail with acme 1.2.0, it is fixed"),
        ("1.10.0", "2.2.0", "the case does not pass with acme 1.10.0, it is cannot run: no wheel"),
    ],
)
def test_the_two_ends_are_run_first(good: str, bad: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        search("acme", VERSIONS, good, bad, Case("2.2.0", "1.10.0"))


@pytest.mark.parametrize("version", ["--index-url=x", "", "1.0; rm", "git+https://x", "v" * 3])
def test_what_is_no_version_is_never_given_to_pip(version: str) -> None:
    with pytest.raises(StoreError, match="is no version of a package"):
        Environments("acme").check(version)


@pytest.mark.parametrize("name", ["--pre", "", "../acme", "a b"])
def test_what_is_no_package_is_never_given_to_pip(name: str) -> None:
    with pytest.raises(StoreError, match="is no name of a package"):
        Environments(name)
