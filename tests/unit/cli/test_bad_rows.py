"""A row that cannot be read is a sentence that names it, and the others still get their turn."""

from __future__ import annotations

import copy
import hashlib
import json
import sqlite3
import zlib
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
    ["report", "1", "--what-is-inside"], ["report", "1", "--to", "gh"], ["verify", "1"], ["retest", "1"],
]  # fmt: skip


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


@pytest.mark.parametrize(
    "what", ["source that does not parse", "a module that is a number", "options that are no dict"]
)
def test_every_verb_says_so_in_a_sentence(small: Desk, what: str) -> None:
    put(small.db, document(BAD[what]))
    for verb in VERBS:
        done = small.invoke(verb[0], "repro.db", *verb[1:])
        assert isinstance(done.exception, SystemExit | None), (verb, done.exc_info)
        assert "Traceback" not in done.output
    listed = small.invoke("list", "repro.db")
    assert (listed.exit_code, len(listed.stdout.splitlines())) == (0, 5)
    page = small.invoke("report", "repro.db", "-o", "page.html")
    assert (page.exit_code, "1 is not a valid case" in (small.path / "page.html").read_text()) == (0, True)


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
