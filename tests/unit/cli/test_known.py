"""`known.toml`: the bugs that a team knows, in listings, in details and in the report."""

from __future__ import annotations

import json
import re

import indexes
import pytest
from desks import Desk
from reading import ROOT, blocks

from fxminify.minifier.reporting import known
from fxminify.minifier.reporting.gathering import gather
from fxminify.minifier.reporting.report import LEFT_OUT, published
from fxminify.store.index import Index


@pytest.fixture
def told(desk: Desk) -> Desk:
    """A desk with the file of the document, about its first bug."""
    indexes.small(desk.db)
    (block,) = (b for b in blocks(ROOT / "docs" / "guide.md") if (b.heading, b.language) == (HEADING, "toml"))
    first = json.loads(desk.invoke("list", "repro.db", "--json").stdout)[0]
    text = block.text.replace("v3:cdc198222a8e", first["signature"]).replace('"acosh"', json.dumps(first["operators"]))
    (desk.path / known.FILE).write_text(text)
    return desk


HEADING = "Bugs that you know"
PLACE = "https://github.com/pytorch/pytorch/issues/1"


def test_the_known_bug_of_the_document_is_printed(told: Desk) -> None:
    lines = told.invoke("list", "repro.db").stdout.splitlines()
    assert [line for line in lines if "known" in line] == [f"     known: {PLACE} (fixed in 2.14)"]
    assert lines[3].strip().startswith("known: ")
    shown = " ".join(told.invoke("show", "repro.db", "1").stdout.split())
    assert f"known {PLACE} fixed in 2.14 works around: torch._inductor.config.cpp.simdlen = 1" in shown
    assert "known" not in told.invoke("show", "repro.db", "4").stdout


def test_the_report_has_it_and_what_is_handed_on_has_not(told: Desk) -> None:
    with Index.open(str(told.db), readonly=True) as index:
        found = gather(index, 1, folders=[told.path])
        assert gather(index, 1).known is None
    assert found.known is not None
    assert (found.known.url, found.known.state) == (PLACE, "fixed in 2.14")
    handed_on = published(found)
    assert (handed_on.known, handed_on.absent["known"]) == (None, LEFT_OUT)


def test_operators_tell_bugs_with_one_signature_apart() -> None:
    every, one = known.KnownBug("v3:1", url="a"), known.KnownBug("v3:1", "acosh", url="b")
    assert known.find([every, one], "v3:1", "acosh") == one
    assert known.find([one, every], "v3:1", "tanh") == every
    assert known.find([one], "v3:1", "tanh") is None
    assert known.find([every], "v3:2", "acosh") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[known]]\nurl = 1\n", "known 1 of .* cannot be read"),
        ('[[known]]\nsignature = "v3:1"\nsince = "2.1"\n', "known 1 of .* has 'since'; known are .*way_around"),
        ("[known]\n", "something else than entries"),
        ("known = [", "is not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_named(text: str, said: str, told: Desk) -> None:
    (told.path / known.FILE).write_text(text)
    done = told.invoke("list", "repro.db")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    with Index.open(str(told.db), readonly=True) as index:
        (problem,) = gather(index, 1, folders=[told.path]).problems
    assert re.search(said, done.stderr)
    assert re.search(said, problem)
