"""DB is repro.db where it is not given: a number alone is the ID of a failure."""

from __future__ import annotations

import indexes
import pytest
from desks import Desk


@pytest.mark.parametrize("verb", ["show", "history", "repro"])
def test_a_number_alone_is_a_failure_of_the_usual_index(desk: Desk, verb: str) -> None:
    indexes.small(desk.db)
    done = desk.invoke(verb, 1)
    assert (done.exit_code, done.stdout) == (0, desk.invoke(verb, "repro.db", 1).stdout)
    assert done.stdout


@pytest.mark.parametrize("verb", ["show", "history", "repro", "ablate"])
def test_a_verb_about_one_failure_says_that_it_needs_its_id(desk: Desk, verb: str) -> None:
    indexes.small(desk.db)
    for given in ((), ("repro.db",)):
        done = desk.invoke(verb, *given)
        assert done.exit_code == 2
        assert "Missing argument 'ID': which failure? `minify list` shows them." in done.stderr


def test_ids_alone_are_failures_of_the_usual_index(desk: Desk) -> None:
    indexes.small(desk.db)
    done = desk.invoke("report", 1, 2)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("repro.html: 2 failures, ")
    assert desk.invoke("list").stdout == desk.invoke("list", "repro.db").stdout


def test_a_file_whose_name_is_a_number_is_a_database(desk: Desk) -> None:
    indexes.small(desk.path / "7")
    assert desk.invoke("show", "7", 1).stdout.startswith("   failure  compile error in compile")
    assert desk.invoke("report", "7").stdout.startswith("7.html: 4 failures")
