"""An index in which every text that a person may read holds facts that must not leave: values of a machine, and shapes.

They are written into the rows, as an index of somebody else has them, so that no mask of a capture is in the way.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes import add, chain, failing, minify

from fxminify.store.document.case import Graph
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.index import Index, RetestResult, TokenScope
from fxminify.store.index.deliveries import NEW, WHATS

#: The machine of the reader.
PERSON = {
    "HOME": "/home/zbigniew", "USER": "zbigniew", "LOGNAME": "zbigniew", "HOSTNAME": "box7.zbigniew-lab.example",
    "SECRET_THING": "hunter2-long-value",
}  # fmt: skip
#: A text for each fact, and what of it must be nowhere.
FACTS: Mapping[str, str] = {
    "user Zbigniew": "zbigniew", "host BOX7": "box7", "in /home/zbigniew/model.py": "zbigniew",
    "value hunter2-long-value": "hunter2", "password=sh0rt": "sh0rt", "secret: 'an0ther'": "an0ther",
    "https://a.example/x?token=inUrl99": "inurl99", "tool --x-key=inOption9": "inoption9",
    "Authorization: Basic aW5CYXNpYw==": "aw5cyxnpyw", "AIzaSyA-1234567890abcdefghijklmnopqrstu": "aizasya",
    "https://me:inUserInfo9@b.example/x": "inuserinfo9", "db7.inhost.example:5432": "inhost",
    "10.11.12.13 refused": "10.11.12.13", "[2001:db8::8a2e:370:7334]:1": "8a2e:370", "jane@inmail.example": "inmail",
    "open /data/inpath/x.bin": "inpath",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq+inpem/x\n-----END RSA PRIVATE KEY-----": "inpem",
}  # fmt: skip
LINE = "; ".join(text for text in FACTS if "\n" not in text)
TEXT = "\n".join(FACTS)
_SCRIPT = '"""It fails."""\nimport torch\n\ntorch.compile(torch.sin)(x)\n'


def left(output: str) -> list[str]:
    """The facts that an output still has."""
    lower = output.lower()
    return [text for text, needle in FACTS.items() if needle in lower]


def planted(db: Path) -> None:
    """Two captures, the first one minified, with a row in each table that has text for people."""
    with Index.open(str(db), create=True) as index:
        frames = (Frame(f"{LINE}.py", LINE, 3),)
        failure = failing(TEXT, causes=(("KeyError", TEXT),), frames=frames, diagnostics=f"error: {TEXT}")
        case = chain(["relu", "sin"])
        for number in (1, 2):
            add(index, case if number == 1 else chain(["cos"]), replace(failure, message=f"{number} {TEXT}"),
                provenance={"program": LINE, "argv": [TEXT], "host": LINE}, graph_text=TEXT)  # fmt: skip
        minify(index, 1, chain(["sin"]), script=_SCRIPT)
        _document(index, db, case.graph)
        for kind, content in _artifacts(failure).items():
            index.artifacts.save(1, kind, content)
        index.retests.add(1, "planted", RetestResult.CHANGED, message=TEXT, shown=0, runs=2, seconds=1.0,
                          versions={"torch": "2.13.0", "planted": LINE[:90]})  # fmt: skip
        index.tokens.new("t", [TokenScope.READ])
        index.tasks.join("w", {"backend=planted"})
        index.deliveries.collect("team", WHATS)
        add(index, chain(["tan"]), failing("no tan"))
        _divergence(index)
        index.deliveries.collect("team", (NEW, *WHATS))
    _raw(db)


def _divergence(index: Index) -> None:
    """A minified divergence, number 4, with values, a layer and a cause."""
    from fxminify.minifier.oracle.ablation import OWN, PASSES, SAME, Ablation, AblationRow
    from fxminify.minifier.reporting import cause, record

    row = {"item": 0, "where": LINE, "elements": 1, "of": 2, "error": "0.5", "at": [0], "actual": LINE,
           "expected": LINE, "dtype": LINE, "expected_dtype": "float32", "shape": [2], "expected_shape": [2],
           "values": [{"at": [n], "actual": LINE, "expected": LINE} for n in (0, 1)]}  # fmt: skip
    detail = {"class": "value", "where": LINE, "dtype": LINE, "error": "0.5", "eager_error": "0.1", "measured": [row]}
    wrong = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message=TEXT, detail={**detail, "said": TEXT})
    case = chain(["sin"])
    id = add(index, chain(["relu", "sin"]), wrong)
    minify(index, id, case, script=_SCRIPT)
    reduction, capture = index.reductions.last(id), index.captures.get(id)
    assert reduction is not None
    record.keep(index, id, record.make_header(capture, case, wrong, queries=7, timeout=60, runs="3 of 3"))
    rows = (cause.SwitchRow((LINE,), (LINE,), cause.CURES, TEXT),)
    found = cause.Cause(cause.key_of(case, "2.13.0"), rows, ways=(cause.WayAround((LINE,), 2, cause.HELPS),))
    index.artifacts.save(id, cause.ARTIFACT, found.to_json())
    layers = (AblationRow("eager", "Dynamo", PASSES, TEXT), AblationRow("planted", OWN, SAME, TEXT))
    index.artifacts.save(id, "ablation", Ablation(layers, LINE, "2.13.0", reduction.id).to_json())


def _artifacts(failure: Any) -> dict[str, Any]:
    from fxminify.store import codec
    from fxminify.store.index.documents import plain

    size = {"aspect": "size", "name": "x.shape[0]", "now": "8", "answers": [{"value": TEXT, "outcome": "pass"}]}
    rows = [{"backend": "eager", "layer": "Dynamo", "result": "passes", "message": TEXT, "seconds": 0.1}]
    installed = {"local": [LINE], "packages": [], "system": [["OS", LINE]], "platform": "Linux x86_64",
                 "python": "3.11.7", "torch": "2.13.0"}  # fmt: skip
    record = {"backend": "", "failure": plain(codec.dump(failure)), "installed": installed, "inputs": 1, "nodes": 6,
              "queries": 2, "platform": LINE, "python": "3.11.7", "replays": "", "runs": "3 of 3", "summed": False,
              "tentative": "", "timeout": 10, "torch": "2.13.0"}  # fmt: skip
    return {
        "explanation": {"features": [size], "asked": 1, "complete": True, "reduction": 1},
        "ablation": {"rows": rows, "enters": LINE},
        "first-node": {"node": "sin_1", "position": 1, "of": 2, "message": TEXT},
        "rest": {"without": [LINE], "nodes": 2, "outcome": "other"},
        "illustrations": {"heading": LINE, "items": [{"name": "k.py", "text": TEXT, "picture": "", "error": TEXT}]},
        "comes-from": LINE,
        "record": record,
    }


def _document(index: Index, db: Path, graph: Graph) -> None:
    """Lines of the program that the nodes come from, in the documents of all cases."""
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        for digest, data in connection.execute("SELECT digest, data FROM documents").fetchall():
            doc = json.loads(zlib.decompress(data))
            for node in doc["graph"]["nodes"]:
                node["meta"] = {**node.get("meta", {}), "stack": LINE[:500], "module": LINE[:200]}
            text = json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
            from hashlib import sha256

            new = sha256(text).hexdigest()
            connection.execute("INSERT INTO documents VALUES (?, ?, ?)", (new, len(text), zlib.compress(text)))
            for table, column in (("captures", "document"), ("reductions", "best"), ("repros", "document"),
                                  ("steps", "document")):  # fmt: skip
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, digest))


#: Texts that are written as they are.
_COLUMNS = {
    "captures": {"headline": LINE, "reason": TEXT, "graph_text": TEXT}, "bugs": {"headline": LINE},
    "steps": {"difference": f"- {LINE}\n+ {LINE}"}, "repros": {"log": TEXT}, "retests": {"message": TEXT},
    "tasks": {"why": LINE}, "events": {"text": LINE, "actor": LINE}, "deliveries": {"text": LINE, "answer": LINE},
    "tokens": {"name": LINE}, "workers": {"name": LINE},
}  # fmt: skip


def _raw(db: Path) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        for table, columns in _COLUMNS.items():
            for column, text in columns.items():
                assert connection.execute(f"UPDATE {table} SET {column} = ?", (text,)).rowcount > 0, table
        connection.execute("INSERT INTO verdicts VALUES (1, 'problem/x', 'nodes', 1, 'same', 'v1:0', 1.0, ?)", (TEXT,))
        connection.execute("INSERT INTO triage VALUES (2, 'ignored', NULL, NULL, ?, '2026-11-01', NULL)", (LINE,))
        for name in ("failure", "provenance"):  # what was masked when it was stored
            rows = connection.execute(f"SELECT id, {name} FROM captures WHERE {name} IS NOT NULL").fetchall()
            assert all(rows)
