"""Indexes that are made by hand and read back, without torch."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import zlib
from pathlib import Path
from typing import Any

from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import CaptureInfo, Index, State, StepInfo
from fxminify.store.signature import signature


def captures(db: str | Path) -> list[CaptureInfo]:
    """The rows of an index, none where it does not exist."""
    if not Path(db).exists():
        return []
    with Index.open(str(db), readonly=True) as index:
        return index.captures.find()


def failing(message: str, type: str = "RuntimeError", **more: Any) -> Failure:
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, type, message, **more)


def chain(operations: list[str], backend: str = "planted", **more: Any) -> Case:
    """``x`` through one function of torch after the other."""
    meta = {"dtype": "float32", "shape": [2, 8]}
    nodes = [Node("x", "placeholder", "L_x_", meta=meta)]
    for number, name in enumerate(operations):
        target = {"fn": f"torch.{name}"}
        nodes.append(Node(f"{name}_{number}", "call_function", target, ({"ref": nodes[-1].name},), meta=meta))
    nodes.append(Node("output", "output", "output", ({"tuple": [{"ref": nodes[-1].name}]},)))
    spec = TensorSpec("float32", (2, 8), (8, 1), init={"fn": "randn"})
    named = {"name": backend, "how": "registered", "target": backend}
    return Case(Graph(tuple(nodes)), ({"tensor": 0},), (spec,), backend=named, torch="2.13.0", **more)


def one_relu(**backend: Any) -> tuple[Case, dict[str, bytes]]:
    """A case of one node and the storage of its input; ``backend`` is added to how its backend is found."""
    data = bytes(16)
    key = hashlib.sha256(data).hexdigest()
    nodes = (
        Node("x", "placeholder", "x"),
        Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
        Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
    )
    spec = TensorSpec("float32", (4,), (1,), storage=key)
    named = {"name": "eager", "how": "registered", **backend}
    return Case(Graph(nodes), ({"tensor": 0},), (spec,), backend=named), {key: data}


def add(index: Index, case: Case | None, failure: Failure | None, **more: Any) -> int:
    known = signature(failure) if failure is not None else None
    provenance = {"program": "train.py", "torch": "2.13.0", "python": "3.11.7"} | more.pop("provenance", {})
    return index.captures.add(case=case, blobs={}, failure=failure, signature=known, provenance=provenance, **more)


def minify(index: Index, id: int, best: Case, *, script: str = "raise SystemExit(1)\n", verified: int = 3) -> None:
    """As if ``best`` was what `minify run` found, with a script that ``verified`` of 3 fresh runs showed."""
    reduction = index.reductions.begin(id, {})
    before, after = index.captures.case(id).graph.count, best.graph.count
    halved = StepInfo(1, "slices", "one", (before + after) // 2, 1, queries=3, seconds=0.5, difference="- gone = f(x)")
    index.reductions.add_step(reduction.id, halved)
    index.reductions.add_step(reduction.id, StepInfo(2, "nodes", "two", after, 1, queries=7, seconds=1.5), best, {})
    index.reductions.finish(reduction.id, queries=7, nodes_before=before, nodes_after=after, seconds=1.5)
    index.repros.save(id, "script", script, verified=verified, runs=3, log="")
    index.captures.set_state(id, State.VERIFIED if verified else State.UNVERIFIED)


def small(db: Path) -> None:
    """Two bugs: one in three graphs of two backends, one of them minified, and one in a graph that was not stored."""
    with Index.open(str(db), create=True) as index:
        first = add(index, chain(["relu", "sin", "cos", "tanh"]), failing("no kernel for sin"))
        add(index, chain(["sin", "exp"]), failing("no kernel for sin"))
        add(index, chain(["sin", "exp"], backend="other"), failing("no kernel for sin"))
        add(index, None, failing("cannot store"), reason="node 'f' calls a function without a name", graph_text="f(x)")
        best = chain(["sin"])
        minify(index, first, best, script='"""It fails."""\nimport torch\n\ntorch.compile(torch.sin)(x)\n')


def texts(db: Path) -> str:
    """All that is in an index, decompressed."""
    found = []
    with contextlib.closing(sqlite3.connect(db)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}"):
                for value in row:
                    packed = table == "documents" and isinstance(value, bytes)
                    found.append(zlib.decompress(value).decode() if packed else str(value))
    return "\n".join(found)


def multiply(db: Path, count: int) -> None:
    """Copy the rows of captures until there are ``count``; every tenth copy is a bug of its own, in its own words."""
    with contextlib.closing(sqlite3.connect(db)) as connection, connection:
        have = connection.execute("SELECT count(*) FROM captures").fetchone()[0]
        captures, bugs = (_columns(connection, table) for table in ("captures", "bugs"))
        for number in range(have, count):
            source = number % have + 1
            connection.execute(
                f"INSERT INTO captures (identity, {captures}) SELECT ?, {captures} FROM captures WHERE id = ?",
                (f"copy {number}", source),
            )
        own = "id > ? AND id % 10 = 0"
        words = f"UPDATE captures SET signature = 'v1:' || id, headline = headline || ' in place ' || id WHERE {own}"
        connection.execute(words, (have,))
        for id, bug in connection.execute(f"SELECT id, bug FROM captures WHERE {own}", (have,)).fetchall():
            made = connection.execute(
                f"INSERT INTO bugs (identity, {bugs}) SELECT ?, {bugs} FROM bugs WHERE id = ?", (f"copy {id}", bug)
            )
            connection.execute("UPDATE captures SET bug = ? WHERE id = ?", (made.lastrowid, id))


def _columns(connection: sqlite3.Connection, table: str) -> str:
    found = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name for name in found if name not in ("id", "identity"))
