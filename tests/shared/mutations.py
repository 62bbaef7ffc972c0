"""Documents and files as somebody who means harm may change them, drawn from a seed.

`document` changes a JSON document in a few places; `database` changes a SQLite file: bytes, rows, tables and documents.
The same `random.Random` makes the same changes, so a seed repeats a trial.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

Json = dict[str, Any]
#: A module that lies beside the files of a trial. Importing it leaves a mark.
STRANGER = "a_module_of_a_stranger"

#: Names that lead to code, as a target, a module, an option or a setting may have them.
PATHS = (
    "os.system", "subprocess.Popen", "importlib.import_module", "builtins.eval", "builtins.exec", "torch.os.system",
    "torch._dynamo.config.os", "pickle.loads", "torch.load", "torch.ops.load_library", "runpy.run_path", STRANGER,
    f"{STRANGER}.run", "operator.methodcaller", "functools.partial", "builtins.__import__", "__main__.x", "..", "a..b",
    "torch.utils.cpp_extension.load_inline", "ctypes.CDLL", "sys.modules", "x.__class__.__mro__", "/etc/passwd",
)  # fmt: skip
#: Texts that try to leave their place.
TEXTS = (
    "", " ", "\0", "\n", "\r\n", "\x1b[2J\x1b]0;owned\x07", "\u2028", "\u202e", "\ud800", "\udfff\ud800", "\ufeff",
    "é", "x'; import os; os.system('id') #", '"""\nimport os\n"""', "{{ 7 * 7 }}", "{% include 'x' %}",
    "[red]x[/red]",
    "[/]", "</script><script>alert(1)</script>", "```\n# x\n```", "%s%n%x", "${x}", "-1", "1e999", "0x10", "NaN",
    "a" * 5_000, "a-" * 20_000, "(" * 3_000, "[" * 100_000, "a.b:" * 1_000, "lambda: 1", f"import {STRANGER}",
    f"from {STRANGER} import *", f"__import__('{STRANGER}')", "import os; os.system('id')", "import", "#", "def (",
    "s0 + 1", "f32[2]", "cuda:0", "meta", "float32", "int64", "aten::sin.default", "torch.sin", "x", "self", "class",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 7, 255, 1 << 31, -(1 << 31), 1 << 48, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 10**40, 0.5, -0.0,
    1e308, 5e-324, 1.5,
)  # fmt: skip
TAGS = (
    "ref", "tuple", "size", "dict", "set", "frozenset", "float", "complex", "slice", "range", "ellipsis", "dtype",
    "layout", "memory_format", "finfo", "device", "enum", "target", "tensor", "sym", "bytes", "return_type",
    "generator", "object", "import", "module", "call", "get", "embedded", "op", "fn", "packet", "hop", "graph",
    "value", "class",
)  # fmt: skip

Place = tuple[Any, Any]


def places(doc: Any) -> Iterator[Place]:
    """Each place in a document, as its container and the key there."""
    waiting = [doc]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else []
        for key in keys:
            yield holder, key
            waiting.append(holder[key])


def value(draw: Random, doc: Any) -> Any:
    """Any value that a document may hold, at times one from another place of it."""
    kind = draw.randrange(9)
    if kind == 0:
        return draw.choice(NUMBERS)
    if kind == 1:
        return draw.choice(TEXTS)
    if kind == 2:
        return draw.choice(PATHS)
    if kind == 3:
        return draw.choice([None, True, False, [], {}, [[]], {"": 0}, [None]])
    if kind == 4:
        return {draw.choice(TAGS): draw.choice([draw.choice(PATHS), draw.choice(NUMBERS), [], {}, value(draw, doc)])}
    if kind == 5:
        return _deep(draw)
    if kind == 6:
        called = draw.choice([{"import": [STRANGER, "run"]}, {"import": ["os", "system"]}, {"module": STRANGER}])
        return {"call": {"func": called, "args": ["id"], "kwargs": {}}}
    holder, key = draw.choice(list(places(doc)) or [([0], 0)])
    return copy.deepcopy(holder[key])


def _deep(draw: Random) -> Any:
    made: Any = draw.choice(NUMBERS)
    tag = draw.choice([None, *TAGS])
    for _ in range(draw.choice([3, 30, 70, 150])):
        made = [made] if tag is None else {tag: [made]}
    return made


def document(draw: Random, doc: Json) -> Json:
    """``doc`` with one to four changes. Half of the documents keep the types of their values, so that many are read."""
    doc = copy.deepcopy(doc)
    change = draw.choice([_change, _exchange])
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        found = list(places(doc))
        if not found:
            break
        change(draw, doc, *draw.choice(found))
    return doc


def _exchange(draw: Random, doc: Json, holder: Any, key: Any) -> None:
    """Put a value of the same type, from elsewhere in the document or near it, in the place of another."""
    old = holder[key]
    alike = [held[at] for held, at in places(doc) if type(held[at]) is type(old)]
    if type(old) is int and draw.random() < 0.5:
        holder[key] = old + draw.choice([-1, 1, 3, 100, 1 << 20])
    elif type(old) is bool:
        holder[key] = not old
    else:
        holder[key] = copy.deepcopy(draw.choice(alike))


def _change(draw: Random, doc: Json, holder: Any, key: Any) -> None:
    kind = draw.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif kind == 1:
        name = draw.choice([draw.choice(TEXTS), draw.choice(TAGS), draw.choice(PATHS)])
        holder[name] = holder.pop(key)
    elif kind == 2 and isinstance(holder, list):
        holder[:] = holder * draw.choice([2, 50])
    elif kind == 2:
        holder[draw.choice([*TAGS, *TEXTS])] = value(draw, doc)
    elif kind == 3 and isinstance(holder[key], str):
        old, text = holder[key], draw.choice([*TEXTS, *PATHS])
        cut = draw.randrange(len(old) + 1)
        holder[key] = old[:cut] + text + old[cut:]
    elif kind == 3 and type(holder[key]) is int:
        holder[key] += draw.choice([-1, 1, 1 << 20, -(1 << 20), 1 << 62])
    else:
        holder[key] = value(draw, doc)


def text(draw: Random, doc: Json) -> bytes:
    """The JSON of a changed document, at times with a byte that is no JSON or a key that is there twice."""
    written = json.dumps(document(draw, doc), sort_keys=True, separators=(",", ":")).encode()
    kind = draw.randrange(16)
    at = draw.randrange(len(written))
    if kind == 0:
        return written[:at]
    if kind == 1:
        return written[:at] + bytes([draw.randrange(256)]) + written[at + 1 :]
    if kind == 2:
        return b'{"format":1,' + written[1:]
    if kind == 3:
        return written.replace(b"[", b"[" * draw.choice([2, 900, 100_000]), 1)
    if kind == 4:
        return written.replace(b"1", draw.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 5000]), 1)
    return written


def database(draw: Random, path: Path) -> str:
    """Change the file at ``path``. Returns what was done, for the message of a failing trial."""
    name, change = draw.choice(_CHANGES)
    change(draw, path)
    return name


def _flip(draw: Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 3, 30, 300])):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(data)


def _flip_schema(draw: Random, path: Path) -> None:
    """Change bytes in the first pages, which have the header and the definitions of the tables."""
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 2, 8])):
        data[draw.randrange(100 if draw.random() < 0.2 else 16, min(8192, len(data)))] = draw.randrange(256)
    path.write_bytes(data)


def _flip_in_definitions(draw: Random, path: Path) -> None:
    """Change bytes inside the words of ``CREATE TABLE``."""
    data = bytearray(path.read_bytes())
    starts = [at for at in range(len(data) - 12) if data[at : at + 12] == b"CREATE TABLE"] or [0]
    for _ in range(draw.choice([1, 2])):
        data[draw.choice(starts) + draw.randrange(200)] = draw.randrange(256)
    path.write_bytes(data)


def _cut(draw: Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def _page(draw: Random, path: Path) -> None:
    """Put one page in the place of another, or zeros."""
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    to, of = draw.randrange(pages) * 4096, draw.randrange(pages) * 4096
    data[to : to + 4096] = bytes(4096) if draw.random() < 0.3 else data[of : of + 4096]
    path.write_bytes(data)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("PRAGMA foreign_keys=OFF")
    return connection


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _cell(draw: Random, path: Path) -> None:
    """Write values of any type into columns of a row."""
    with closing(_open(path)) as connection:
        for _ in range(draw.choice([1, 1, 3])):
            table = draw.choice([*_tables(connection), *["captures"] * 6, *["bugs", "repros", "reductions"] * 2])
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            rows = [row[0] for row in connection.execute(f'SELECT rowid FROM "{table}"')]
            new = draw.choice([
                None, draw.choice(NUMBERS[:10]), draw.choice(NUMBERS[14:]), draw.choice(TEXTS[:8]), draw.choice(PATHS),
                b"\xff\x00", b"", "{", "[]", "{}", '{"a":1,"a":2}', "x" * 100_000, draw.choice(TEXTS[10:]),
                "[" * 100_000,
            ])  # fmt: skip
            new = new.encode("utf-8", "replace").decode() if isinstance(new, str) else new
            if rows:
                with suppress(sqlite3.Error):  # what a constraint does not let through changes nothing
                    column = draw.choice(columns)
                    connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (new, draw.choice(rows)))


def _undecodable(draw: Random, path: Path) -> None:
    """Put text into a column that is no UTF-8."""
    with closing(_open(path)) as connection:
        table = draw.choice(_tables(connection))
        column = draw.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
        with suppress(sqlite3.Error):
            connection.execute(f'UPDATE "{table}" SET "{column}" = CAST(x\'ff41fe\' AS TEXT)')


def _json_cell(draw: Random, path: Path) -> None:
    """Change the JSON in a column that has some."""
    with closing(_open(path)) as connection:
        table, column = draw.choice([
            ("captures", "failure"), ("captures", "provenance"), ("captures", "signature_parts"),
            ("artifacts", "content"), ("reductions", "config"), ("environments", "versions"), ("retests", "versions"),
        ])  # fmt: skip
        query = f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL"
        if rows := connection.execute(query).fetchall():
            row, old = draw.choice(rows)
            doc = json.loads(old)
            new = text(draw, doc if isinstance(doc, dict) else {"x": doc}).decode("utf-8", "replace")
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))


def _table(draw: Random, path: Path) -> None:
    """Take a table away, or put a view, another table, a trigger or an expression in its place."""
    with closing(_open(path)) as connection, suppress(sqlite3.Error):
        name = draw.choice(_tables(connection))
        kind = draw.randrange(6)
        if kind <= 2:
            connection.execute(f'DROP TABLE "{name}"')
        if kind == 1:
            connection.execute(f'CREATE VIEW "{name}" AS SELECT 1 AS id')
        if kind == 2:
            connection.execute(f'CREATE TABLE "{name}" (x)')
        if kind == 3:
            connection.execute(f'DELETE FROM "{name}"')
        if kind == 4:
            connection.execute(f'CREATE TRIGGER t AFTER UPDATE ON "{name}" BEGIN DELETE FROM captures; END')
        if kind == 5:
            new = draw.choice(["sql = NULL", "sql = 'CREATE TABLE'", "rootpage = 3", "rootpage = 'x'", "type = 'view'",
                               "tbl_name = 'x'", "name = x'ff'", "sql = CAST(x'ff' AS TEXT)"])  # fmt: skip
            connection.execute(f"UPDATE sqlite_master SET {new} WHERE name = ?", (name,))


def put(path: Path, written: bytes, capture: int) -> None:
    """Make ``written`` the document of a capture, of its minimal case and of its script."""
    key = hashlib.sha256(written).hexdigest()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = (key, len(written), zlib.compress(written))
        connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", row)
        connection.execute("UPDATE captures SET document = ? WHERE id = ?", (key, capture))
        connection.execute("UPDATE reductions SET best = ? WHERE capture = ?", (key, capture))
        connection.execute("UPDATE repros SET document = ? WHERE capture = ? AND format = 'script'", (key, capture))


def documents(path: Path) -> list[tuple[int, Json]]:
    """The documents of the captures of an index, read as they are."""
    query = "SELECT c.id, d.data FROM captures c JOIN documents d ON d.digest = c.document ORDER BY c.id"
    with closing(sqlite3.connect(path)) as connection:
        return [(id, json.loads(zlib.decompress(data))) for id, data in connection.execute(query)]


def _document(draw: Random, path: Path) -> None:
    id, doc = draw.choice(documents(path))
    put(path, text(draw, doc), id)


def _blob(draw: Random, path: Path) -> None:
    """Change a storage or a document, or its row."""
    with closing(_open(path)) as connection, suppress(sqlite3.Error):
        table = draw.choice(["blobs", "documents", "document_blobs"])
        change = draw.choice(["data = x'00'", "data = zeroblob(9)", "size = size + 1", "size = 99999999999999",
                              "codec = 'pickle'", "stored = -1", "digest = '../../x'", "place = 'file:///etc/passwd'",
                              "data = NULL", "place = 'http://127.0.0.1:9/x'"])  # fmt: skip
        connection.execute(f"UPDATE {table} SET {change}")


def _script(draw: Random, path: Path) -> None:
    with closing(_open(path)) as connection:
        connection.execute("UPDATE repros SET text = ?", (draw.choice(TEXTS[8:]).encode("utf-8", "replace").decode(),))


_CHANGES: tuple[tuple[str, Callable[[Random, Path], None]], ...] = (
    ("bytes", _flip), ("bytes of the first pages", _flip_schema), ("bytes of definitions", _flip_in_definitions),
    ("cut", _cut), ("a page", _page), ("cells", _cell), ("cells", _cell), ("cells", _cell), ("text", _undecodable),
    ("JSON in a cell", _json_cell), ("JSON in a cell", _json_cell), ("a table", _table), ("a document", _document),
    ("a document", _document), ("a document", _document), ("a storage", _blob), ("a script", _script),
)  # fmt: skip
