"""`minify export`: a new index that can be given away."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from desks import Desk
from indexes import add, chain, failing, minify, one_relu, small, texts

from fxminify.store.document.case import Case
from fxminify.store.index import BugStatus, Index, State

SECRET = "kx-31-veryhidden"
SCRIPT = f'''"""It fails for {SECRET} in /data/acme/x.cpp.

Signature v2:0.
"""
import torch  # {SECRET}

torch.compile(torch.sin)(x)
'''


def private(db: Path, **backend: object) -> Case:
    """A capture of an older fxminify, which masked nothing, with all that is local to a machine."""
    case, blobs = one_relu(target="eager", search_path=["/data/acme/lib"], **backend)
    with Index.open(str(db), create=True) as index:
        failure = failing(f"no key {SECRET} in /data/acme/x.cpp:7", diagnostics=f"started\nerror: {SECRET}\nmore of it")
        id = index.captures.add(
            case=case, blobs=blobs, failure=failure, signature=None, provenance={"program": f"{SECRET}.py"}, ours=True
        )
        reduction = index.reductions.begin(id, {}, ours=True)
        index.reductions.accept(reduction.id, case, blobs)
        index.verdicts.asked(reduction.id, "one", "slices")
        index.verdicts.answered(reduction.id, "one", "same", None, 1.0, f"a worker said {SECRET}")
        index.repros.save(
            id, "script", SCRIPT, verified=3, runs=3, log=f"log of {SECRET}", case=case, blobs=blobs, ours=True
        )
        index.repros.save(id, "issue", f"about {SECRET}", verified=0, runs=0, log="")
        index.artifacts.save(id, "explanation", {"text": f"about {SECRET}"})
        index.captures.set_state(id, State.VERIFIED, f"because of {SECRET}")
    return case


def test_every_text_is_masked_and_what_is_local_left_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    private(desk.db)
    monkeypatch.setenv("SOME_KEY", SECRET)
    assert SECRET in texts(desk.db)
    done = desk.invoke("export", "repro.db", "--json")
    assert done.exit_code == 0, done.output
    kept = texts(desk.path / "share.db")
    assert SECRET not in kept
    assert "/data/acme" not in kept
    assert json.loads(done.stdout)["found"] == {}
    with Index.open(str(desk.db), readonly=True) as old, Index.open(str(desk.path / "share.db"), readonly=True) as new:
        script = new.repros.get(1)
        assert script is not None
        assert script.text == SCRIPT.replace(SECRET, "<masked>").replace("/data/acme", "/masked")
        assert (script.log, script.origin, new.repros.get(1, "issue")) == ("", None, None)
        assert old.stored(1).ours
        shared = new.stored(1)
        assert not shared.captured().ours
        assert not shared.minimal().ours
        assert new.captures.get(1).failure == failing(
            "no key <masked> in /masked/x.cpp:7", diagnostics="error: <masked>"
        )
        assert new.captures.case(1).graph == old.captures.case(1).graph
        assert new.captures.case(1).storages == old.captures.case(1).storages
        assert [len(new.blobs.read(key)) for key in new.captures.case(1).storages] == [16]
        assert [v.detail for v in new.verdicts.find(1).values()] == [""]


def test_code_is_kept_and_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    case = private(desk.db, options={"dict": [["key", SECRET]]})
    monkeypatch.setenv("SOME_KEY", SECRET)
    done = desk.invoke("export", "repro.db")
    assert done.exit_code == 0, done.output
    listed = done.stdout[done.stdout.index("Look at this") :].splitlines()[1:]
    what = "the value of the environment variable SOME_KEY"
    assert listed == [
        f"  failure 1: the captured graph and its backend: {what}",
        f"  failure 1: the minimal graph and its backend: {what}",
    ]
    assert SECRET not in done.output
    with Index.open(str(desk.path / "share.db"), readonly=True) as index:
        assert index.captures.case(1).backend["options"] == case.backend["options"]


def test_a_part_of_an_index_is_an_index_of_its_own(desk: Desk) -> None:
    small(desk.db)
    with Index.open(str(desk.db)) as index:
        add(index, chain(["exp"]), failing("no exp"), parent=2)
        minify(index, 2, chain(["sin"]))
    done = desk.invoke("export", "repro.db", 1, 3, 5, "-o", "part.db")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("part.db: 3 failures, ")
    with Index.open(str(desk.db), readonly=True) as old, Index.open(str(desk.path / "part.db"), readonly=True) as new:
        kept = {row.id: row for row in old.captures.find([1, 3, 5])}
        rows = new.captures.find()
        assert [row.id for row in rows] == [1, 3, 5]
        assert [(r.signature, r.bug, r.headline) for r in rows] == [
            (r.signature, r.bug, r.headline) for r in kept.values()
        ]
        assert [row.parent for row in rows] == [None, None, None]
        assert [(bug.ids, bug.captures, bug.occurrences) for bug in new.bugs.page()] == [
            ((1,), 1, 1), ((3,), 1, 1), ((5,), 1, 1),
        ]  # fmt: skip
        assert new.reductions.steps(1) == old.reductions.steps(1)
        assert [s.count for s in new.bugs.sightings(rows[0].bug)] == [1]
    for verb in (["list", "part.db"], ["show", "part.db", 1], ["history", "part.db", 1], ["repro", "part.db", 1]):
        assert desk.invoke(*verb).exit_code == 0, verb
    with Index.open(str(desk.path / "part.db")) as new:  # what is captured again is counted, and not stored anew
        assert add(new, chain(["relu", "sin", "cos", "tanh"]), failing("no kernel for sin")) == 1
        assert add(new, chain(["tan"]), failing("no tan")) == 6


def test_what_people_said_of_bugs_is_not_given_away(desk: Desk) -> None:
    small(desk.db)
    with Index.open(str(desk.db)) as index:
        index.triage.set(1, BugStatus.IGNORED)
        index.triage.label(1, add=["ask-ann"])
    done = desk.invoke("export", "repro.db")
    assert done.exit_code == 0, done.output
    assert "the status and labels of bugs" in done.stdout
    with Index.open(str(desk.path / "share.db"), readonly=True) as index:
        bug = index.bugs.get(1)
        assert (bug.captures, bug.status, bug.labels) == (2, BugStatus.OPEN, ())
    assert "ask-ann" in texts(desk.db)
    assert "ask-ann" not in texts(desk.path / "share.db")


def test_nothing_is_overwritten_and_nothing_is_left_half(desk: Desk) -> None:
    small(desk.db)
    (desk.path / "share.db").write_text("mine")
    refused = desk.invoke("export", "repro.db")
    assert (refused.exit_code, "--force" in refused.output) == (2, True)
    assert (desk.path / "share.db").read_text() == "mine"
    assert desk.invoke("export", "repro.db", "--force").exit_code == 0
    assert desk.invoke("export", "repro.db", "-o", "repro.db", "--force").exit_code == 2
    missing = desk.invoke("export", "repro.db", 77, "-o", "other.db")
    assert (missing.exit_code, "has no capture 77" in missing.output) == (2, True)
    nowhere = desk.invoke("export", "repro.db", "-o", "nowhere/other.db")
    assert nowhere.exit_code == 2, nowhere.output
    assert sorted(path.name for path in desk.path.glob("*share*")) == ["share.db"]
    assert sorted(path.name for path in desk.path.glob("*other*")) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE captures SET failure = '{\"kind\": 3}' WHERE id = 2", ""),
        ("UPDATE sightings SET environment = 'x' WHERE capture = 2", "it names 'x' in the table environments, which"),
        ("UPDATE captures SET bug = 99 WHERE id = 2", "it names 99 in the table bugs, which has no such row"),
        ("UPDATE captures SET bug = NULL WHERE id = 2", ""),
    ],
)
def test_a_row_that_cannot_be_read_is_left_out_and_named(desk: Desk, change: str, why: str) -> None:
    small(desk.db)
    with sqlite3.connect(desk.db) as connection:
        connection.execute(change)
    connection.close()
    done = desk.invoke("export", "repro.db")
    assert done.exit_code == 0, done.output
    assert f"  failure 2, which cannot be read: {why}" in done.stdout
    with Index.open(str(desk.path / "share.db"), readonly=True) as index:
        assert [row.id for row in index.captures.find()] == [1, 3, 4]
