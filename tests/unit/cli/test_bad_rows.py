"""A row that cannot be read is a sentence that names it, and the others still get their turn."""

from __future__ import annotations

import copy
import hashlib
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import indexes
import pytest
from desks import Desk

from fxminify.store.document.case import Json, to_json
from fxminify.store.document.decode import InvalidDocument, validate
from fxminify.store.index import Index

PLAIN = to_json(indexes.chain(["sin"]))
SOURCE = {"name": "x", "how": "source", "target": {"embedded": "f"}}
GOOD = {"imports": ["import math"], "text": "def f(gm, inputs):\n    return gm", "file": "a.py"}


def source(**changes: Any) -> Json:
    return {"backend": {**SOURCE, "source": {**GOOD, **changes}}}


def imports(**item: Any) -> Json:
    return {"imports": [item]}


#: Fields of a document that look like ours and cannot be read.
BAD: dict[str, Json] = {
    "source that does not parse": source(text="def f(: pass"),
    "source with a null byte": source(text="\0"),
    "source that nests too deeply": source(text="(" * 5000),
    "source that is too deep for the stack": source(text="f=" + "-" * 50000 + "1"),
    "an empty import line": source(imports=[""]),
    "an import line that is a comment": source(imports=["#"]),
    "half an import line": source(imports=["import"]),
    "an import line that does more": source(imports=["import os; os.system('id')"]),
    "two import lines in one": source(imports=["import os\nimport sys"]),
    "source as text": {"backend": {**SOURCE, "source": "x"}},
    "options that are no dict": {"backend": {"name": "x", "target": "x", "options": [1]}},
    "a target that is no expression": {"backend": {"name": "x", "target": {"foo": 1}}},
    "an entry point of three parts": {"backend": {"name": "x", "target": "x", "entry_point": "a:b:c"}},
    "a module that is no name": {"backend": {"name": "x", "target": "x", "module": "a b"}},
    "no kind of import": imports(),
    "two kinds of import": imports(module="a", library="b"),
    "a module that is a number": imports(module=7),
    "a library that is a path": imports(library="/a/b.so"),
    "an operator without a namespace": imports(module="a", ops=["nope"]),
    "a search path as text": imports(module="a", search_path="x"),
    "imported source that does not parse": imports(source="def (", imports=[]),
    "a rank outside of its group": imports(processes={"size": 2, "rank": 2}),
}
VERBS = [
    ["show", "1"], ["show", "1", "--captured"], ["show", "1", "--graph"], ["history", "1"], ["repro", "1", "--force"],
    ["repro", "1", "--format", "issue", "--force"], ["repro", "1", "--format", "pytest", "--force"],
    ["repro", "1", "--format", "notebook", "--force", "-o", "out.ipynb"], ["repro", "1", "--rename", "--force"],
    ["report", "1", "--what-is-inside"], ["report", "1", "--to", "gh"],
    ["report", "1", "--bundle", "out.zip", "--force"], ["report", "1", "-o", "one.html", "--force"],
    ["history", "1", "--step", "1"], ["show", "1", "--json"],
    ["verify", "1"], ["verify"], ["retest", "1"], ["retest"], ["retest", "--matrix"], ["list", "--each"],
    ["list", "--json"], ["ablate", "1"], ["run", "1", "--again"], ["run", "1", "--from-step", "2"], ["run"],
    ["export", "1", "-o", "one.db", "--force"], ["export", "-o", "all.db", "--force"], ["tasks"],
    ["tokens"],
]  # fmt: skip
#: What may become of the rows of capture 1, as SQL.
BAD_ROWS = {
    "a failure that is no JSON": "UPDATE captures SET failure = '{' WHERE id = 1",
    "a failure of another form": "UPDATE captures SET failure = '{\"kind\": 7}' WHERE id = 1",
    "provenance that is a list": "UPDATE captures SET provenance = '[]' WHERE id = 1",
    "bytes as a kind": "UPDATE captures SET kind = x'00' WHERE id = 1",
    "an unknown state": "UPDATE captures SET state = 'odd' WHERE id = 1",
    "no failure, and no kind of one": "UPDATE captures SET failure = NULL, kind = '' WHERE id = 1",
    "text that is no UTF-8": "UPDATE captures SET headline = CAST(x'ff41' AS TEXT) WHERE id = 1",
    "text as a number of nodes": "UPDATE captures SET nodes_before = 'x' WHERE id = 1",
    "a document that is cut": "UPDATE documents SET data = substr(data, 1, 40) WHERE digest IN "
    "(SELECT document FROM captures WHERE id = 1)",
    "a document that is gone": "UPDATE captures SET document = 'x' WHERE id = 1",
    "a script of bytes": "UPDATE repros SET text = x'41' WHERE capture = 1",
    "a count of runs as text": "UPDATE repros SET runs = 'x' WHERE capture = 1",
    "a configuration that is no JSON": "UPDATE reductions SET config = '[' WHERE capture = 1",
    "a step of bytes": "UPDATE steps SET pass_name = x'41' WHERE reduction = 1 AND number = 1",
    "an artifact that is no JSON": "UPDATE artifacts SET content = '{' WHERE capture = 1",
    "a status of a bug that is none": "INSERT INTO triage VALUES (1, 'odd', NULL, NULL, '', '', NULL)",
    "a label of a bug that is none": "INSERT INTO labels VALUES (1, 'two words')",
    "a label of bytes": "INSERT INTO labels VALUES (1, x'7031')",
    "a retest with an odd result": "UPDATE retests SET result = 'x' WHERE capture = 1",
}


def document(changes: Json) -> Json:
    return {**copy.deepcopy(PLAIN), **changes}


@pytest.fixture
def small(desk: Desk) -> Desk:
    with Index.open(str(desk.db), create=True) as index:
        for name in ("sin", "exp"):
            indexes.minify(index, indexes.add(index, indexes.chain([name]), indexes.failing(f"no {name}")),
                           indexes.chain([name]))  # fmt: skip
    return desk


def put(db: Path, doc: Json) -> None:
    """Make ``doc`` the case of capture 1, whatever it says."""
    text = json.dumps(doc, sort_keys=True, separators=(",", ":")).encode()
    key = hashlib.sha256(text).hexdigest()
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute("INSERT INTO documents VALUES (?, ?, ?)", (key, len(text), zlib.compress(text)))
    connection.execute("UPDATE captures SET document = ? WHERE id = 1", (key,))
    connection.execute("UPDATE reductions SET best = ? WHERE capture = 1", (key,))
    connection.close()


@pytest.mark.parametrize("what", BAD)
def test_it_is_refused_when_it_is_read(what: str) -> None:
    validate(document({}))
    validate(document(source()))
    with pytest.raises(InvalidDocument, match=r"^(backend|imports)"):
        validate(document(BAD[what]))


def every_verb(desk: Desk) -> None:
    """Each ends with a code of `minify --help`, and with a sentence if that is 2."""
    for verb in VERBS:
        done = desk.invoke(verb[0], "repro.db", *verb[1:])
        assert isinstance(done.exception, SystemExit | None), (verb, done.exc_info)
        assert done.exit_code in (0, 1, 2, 3), (verb, done.output)
        if done.exit_code == 2:
            assert done.stderr.splitlines()[-1].startswith("Error: "), (verb, done.stderr)


@pytest.mark.process
@pytest.mark.parametrize("what", BAD)
def test_every_verb_says_so_in_a_sentence(small: Desk, what: str) -> None:
    put(small.db, document(BAD[what]))
    every_verb(small)
    listed = small.invoke("list", "repro.db")
    assert (listed.exit_code, len(listed.stdout.splitlines())) == (0, 5)
    page = small.invoke("report", "repro.db", "-o", "page.html")
    assert (page.exit_code, "1 is not a valid case" in (small.path / "page.html").read_text()) == (0, True)


@pytest.mark.process
@pytest.mark.parametrize("what", BAD_ROWS)
def test_every_verb_goes_on_with_the_other_rows(small: Desk, what: str) -> None:
    with closing(sqlite3.connect(small.db, isolation_level=None)) as connection:
        connection.execute("INSERT INTO artifacts VALUES (1, 'ablation', '{}', '')")
        connection.execute(
            "INSERT INTO retests VALUES (1, NULL, 1, 'planted', 'fixed', '', '', 0, 2, 1.0, '{}', '2026-11-01')"
        )
        assert connection.execute(BAD_ROWS[what]).rowcount == 1, what
    every_verb(small)
    listed = small.invoke("list", "repro.db", "--each")
    assert (listed.exit_code, "no exp" in listed.stdout) == (0, True)
    page = small.invoke("report", "repro.db", "-o", "page.html", "--force")
    assert (page.exit_code, "no exp" in (small.path / "page.html").read_text()) == (0, True)
    for verb in ("verify", "retest"):
        answers = json.loads(small.invoke(verb, "repro.db", "--json").stdout)
        assert 2 in [answer["id"] for answer in answers], verb
    if "UPDATE captures" in BAD_ROWS[what]:
        shown = small.invoke("show", "repro.db", 1)
        assert shown.exit_code == 0 or "capture 1 " in shown.stderr


@pytest.mark.process
def test_a_tensor_outside_of_its_storage_is_refused_when_it_is_read(small: Desk) -> None:
    case, blobs = indexes.one_relu()
    with Index.open(str(small.db)) as index:
        id = index.captures.add(case=case, blobs=blobs, failure=indexes.failing("no relu"), signature=None,
                                provenance={})  # fmt: skip
    doc = to_json(case)
    doc["tensors"][0] |= {"shape": [5]}
    with closing(sqlite3.connect(small.db, isolation_level=None)) as connection:
        (key,) = connection.execute("SELECT digest FROM blobs").fetchone()
        put(small.db, doc)
        connection.execute("INSERT INTO document_blobs SELECT document, ? FROM captures WHERE id = 1", (key,))
    shown = small.invoke("show", "repro.db", 1)
    assert (shown.exit_code, "a tensor reaches byte 20 of a storage of 16" in shown.stderr) == (2, True)
    assert small.invoke("show", "repro.db", id).exit_code == 0
    every_verb(small)


@pytest.mark.process
def test_a_damaged_definition_of_a_table_is_a_sentence_about_the_file(small: Desk) -> None:
    whole = small.db.read_bytes()
    for damage in (b"CREATE TABLE capt\xffres", b"CREATE TABXE captures", b"CREATE TABLE captunes"):
        small.db.write_bytes(whole.replace(b"CREATE TABLE captures", damage))
        every_verb(small)
        listed = small.invoke("list", "repro.db")
        assert (listed.exit_code, listed.stderr.startswith("Error: repro.db ")) == (2, True)


def test_the_others_are_run(small: Desk) -> None:
    put(small.db, document(BAD["source that does not parse"]))
    for verb in ("verify", "retest"):
        done = small.invoke(verb, "repro.db", "--trust", "--json")
        answers = json.loads(done.stdout)
        answers = answers if isinstance(answers, list) else answers["cases"]
        assert [answer["id"] for answer in answers] == [1, 2], verb
        assert "is not a valid case" in json.dumps(answers[0])
        assert "is not a valid case" not in json.dumps(answers[1])
        assert answers[1]["runs"] > 0


def test_a_call_without_arguments_is_printed(small: Desk) -> None:
    node = PLAIN["graph"]["nodes"][1] | {"target": {"fn": "_operator.getitem"}, "args": []}
    doc = document({})
    doc["graph"]["nodes"][1] = node
    put(small.db, doc)
    shown = small.invoke("show", "repro.db", 1)
    assert (shown.exit_code, "getitem()" in shown.stdout) == (0, True)
