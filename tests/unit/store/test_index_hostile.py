"""A file from a stranger: nothing in it runs, nothing in it is believed, and nothing it asks for is out of bounds."""

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from index_tasks import add, small_case

from fxminify.store.index import Index, State, StoreError
from fxminify.store.index.documents import MAX_DOCUMENT

Edit = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True, inline_limit=1000) as index:
        add(index, *small_case())
        add(index, *small_case(1024, os.urandom(4096)))
        reduction = index.reductions.begin(1, {})
        index.verdicts.asked(reduction.id, "a", "nodes")
        index.verdicts.answered(reduction.id, "a", "same", "v1:0", 0.5, "")
        index.repros.save(1, "script", "raise SystemExit", verified=3, runs=3, log="")
    return path


@pytest.fixture
def edit(path: str) -> Edit:
    """Runs SQL on the file, as a stranger may."""

    def edit(*statements: str, values: tuple[Any, ...] = ()) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA writable_schema=ON")
        for statement in statements:
            connection.execute(statement, values)
        connection.close()

    return edit


def refusal(path: str, use: Callable[[Index], object] = lambda index: index.captures.find()) -> str:
    """What reading and writing alike are refused with."""
    said = set()
    for how in ({"readonly": True}, {}):
        with pytest.raises(StoreError) as error, Index.open(path, **how) as index:
            use(index)
        said.add(str(error.value))
    (sentence,) = said
    assert path in sentence
    assert sentence.isprintable()
    return sentence


@pytest.mark.parametrize("table", ["captures", "blobs", "documents", "verdicts", "alembic_version"])
def test_a_view_instead_of_a_table(path: str, edit: Edit, table: str) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x AS id FROM n"
    edit("PRAGMA foreign_keys=OFF", f"DROP TABLE {table}", f"CREATE VIEW {table} AS {endless}")
    assert f"a view named '{table}'" in refusal(path)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER t AFTER UPDATE ON captures BEGIN DELETE FROM captures; END",
        "CREATE TRIGGER t AFTER INSERT ON verdicts BEGIN SELECT 1; END",
        "CREATE TABLE more (x)",
        "CREATE TABLE more (x DEFAULT (randomblob(9)))",
        "CREATE VIRTUAL TABLE more USING fts5(x)",
        "CREATE INDEX more ON captures (state)",
        "CREATE INDEX more ON captures (hex(state))",
        "CREATE INDEX more ON captures (state) WHERE id > 3",
        "ALTER TABLE captures ADD COLUMN more GENERATED ALWAYS AS (hex(zeroblob(99999999)))",
        "ALTER TABLE captures ADD COLUMN more INTEGER",
        "ALTER TABLE captures DROP COLUMN headline",
        "DROP TABLE alembic_version",
        "DROP TABLE repros",
        "DELETE FROM alembic_version",
        "DROP INDEX ix_captures_document",
    ],
)
def test_another_schema(path: str, edit: Edit, sql: str) -> None:
    edit(sql)
    if sql.startswith("DROP INDEX"):  # slower, no more than that
        with Index.open(path, readonly=True) as index:
            assert len(index.captures.find()) == 2
    else:
        refusal(path)


def test_a_check_clause_in_one_of_our_tables(path: str, edit: Edit) -> None:
    edit(
        "UPDATE sqlite_master SET sql = replace(sql, 'state VARCHAR(16) NOT NULL', "
        "'state VARCHAR(16) NOT NULL CHECK (length(hex(zeroblob(99999999))) > id)') WHERE name = 'captures'"
    )
    assert "an expression in the definition of 'captures'" in refusal(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", "'../../x'"),
        ("state", "x'00'"),
        ("state", "3.5"),
        ("kind", "x'ff'"),
        ("headline", "CAST(x'ff41' AS TEXT)"),
        ("occurrences", "'many'"),
        ("occurrences", "2.5"),
        ("nodes_before", "x'01'"),
        ("parent", "'../../x'"),
        ("created", "x'17'"),
        ("failure", "17"),
        ("failure", "'{'"),
        ("failure", "'[]'"),
        ("failure", "'{}'"),
        ("failure", """'{"kind": "crash", "phase": "compile", "frames": 7}'"""),
        ("failure", """'{"kind": "crash", "phase": "compile", "detail": 7}'"""),
        ("failure", """'{"kind": "crash", "kind": "hang", "phase": "compile"}'"""),
        ("failure", """'{"kind": "crash", "phase": "compile", "signal": NaN}'"""),
        ("failure", "printf('%.*c', 300000, '[')"),
        ("provenance", """'"text"'"""),
        ("provenance", "NULL"),
    ],
)
def test_values_we_never_write_in_a_listing(path: str, edit: Edit, column: str, value: str) -> None:
    edit(
        f"UPDATE sqlite_master SET sql = replace(sql, '{column} TEXT NOT NULL', '{column} TEXT') WHERE name='captures'"
    )
    edit("PRAGMA foreign_keys=OFF", f"UPDATE captures SET {column} = {value} WHERE id = 1")
    assert refusal(path, lambda index: index.captures.get(1)).startswith("capture 1 cannot be read: ")
    with Index.open(path, readonly=True) as index:
        bad, good = index.captures.find()
        assert (bad.id, bad.state, bad.problem) == (1, State.BLOCKED, bad.reason)
        assert path in bad.problem
        assert (good.id, good.problem, good.kind) == (2, "", "compile_error")


@pytest.mark.parametrize("column", ["text", "log", "verified"])
def test_values_we_never_write_in_a_script(path: str, edit: Edit, column: str) -> None:
    edit(f"UPDATE repros SET {column} = x'41'")
    refusal(path, lambda index: index.repros.get(1, "script"))


@pytest.mark.parametrize("column", ["outcome", "seconds", "asks", "detail"])
def test_values_we_never_write_in_a_verdict(path: str, edit: Edit, column: str) -> None:
    edit(f"UPDATE verdicts SET {column} = x'41'")
    refusal(path, lambda index: index.verdicts.find(1))


@pytest.mark.parametrize("parts", ["'{}'", "'[1]'", """'{"kind": 7, "version": 1}'""", "3.5"])
def test_a_signature_we_never_write(path: str, edit: Edit, parts: str) -> None:
    edit(f"UPDATE captures SET signature_parts = {parts}")
    refusal(path, lambda index: index.captures.signature(1))


def put_document(edit: Edit, text: bytes, *, size: int | None = None, data: bytes | None = None) -> None:
    """Makes ``text`` the case of capture 1."""
    name = hashlib.sha256(text).hexdigest()
    packed = zlib.compress(text) if data is None else data
    edit("INSERT INTO documents VALUES (?, ?, ?)", values=(name, len(text) if size is None else size, packed))
    edit("UPDATE captures SET document = ? WHERE id = 1", values=(name,))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 200_000,
        b'{"format": 1, "format": 1}',
        b'{"format": NaN}',
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": 99}',
    ],
)
def test_documents_we_never_write(path: str, edit: Edit, text: bytes) -> None:
    put_document(edit, text)
    refusal(path, lambda index: index.captures.case(1))


def test_a_document_that_names_what_it_may_not(path: str, edit: Edit) -> None:
    with Index.open(path, readonly=True) as index, index.database.reading() as session:
        data = session.connection().exec_driver_sql("SELECT data FROM documents LIMIT 1").scalar()
    text = zlib.decompress(data or b"").replace(b"torch.relu", b"torch.load")
    put_document(edit, text)
    assert "capture 1 is not a valid case" in refusal(path, lambda index: index.captures.case(1))


def test_a_document_that_is_a_bomb(path: str, edit: Edit) -> None:
    text = json.dumps({"format": 1, "pad": " " * 100_000}).encode()
    put_document(edit, text, size=100)
    assert "not as long as declared" in refusal(path, lambda index: index.captures.case(1))
    edit("UPDATE documents SET size = ?", values=(MAX_DOCUMENT + 1,))
    assert "the limit is" in refusal(path, lambda index: index.captures.case(1))


@pytest.mark.parametrize("data", [b"", b"not zlib", zlib.compress(b"{}") + b"more", zlib.compress(b"{}")[:-2]])
def test_a_document_that_cannot_be_decompressed(path: str, edit: Edit, data: bytes) -> None:
    put_document(edit, b"{}", data=data)
    refusal(path, lambda index: index.captures.case(1))


def test_a_document_under_a_wrong_name(path: str, edit: Edit) -> None:
    edit("UPDATE captures SET document = (SELECT document FROM captures WHERE id = 2) WHERE id = 1")
    edit(
        "UPDATE documents SET data = (SELECT data FROM documents ORDER BY size LIMIT 1), "
        "size = (SELECT min(size) FROM documents)"
    )
    refusal(path, lambda index: [index.captures.case(1), index.captures.case(2)])


def test_a_number_where_bytes_are_expected_allocates_nothing(path: str, edit: Edit) -> None:
    edit("UPDATE documents SET data = 99999999999")
    assert "int in documents.data" in refusal(path, lambda index: index.captures.case(1))


def storages(index: Index) -> object:
    return [dict(index.blobs.view(case.storages)) for case in (index.captures.case(1), index.captures.case(2))]


@pytest.mark.parametrize(
    "change",
    [
        "data = x'00'",
        "data = x'00', stored = 1",
        "data = x'00', stored = 1, size = 1, codec = 'raw'",
        "data = 'text'",
        "data = 99999999999",
        "data = NULL",
        "data = NULL, stored = -1",
        "codec = 'pickle'",
        "codec = 7",
        "size = size - 1",
        "size = -1",
        "size = 99999999999999",
        "size = 'x'",
        "stored = stored + 1",
    ],
)
def test_storages_we_never_write(path: str, edit: Edit, change: str) -> None:
    edit(f"UPDATE blobs SET {change}")
    refusal(path, storages)


def test_a_storage_that_is_a_bomb(path: str, edit: Edit) -> None:
    bomb = zlib.compress(bytes(1 << 24))
    edit("UPDATE blobs SET data = ?, stored = ?, codec = 'zlib', size = 16", values=(bomb, len(bomb)))
    first = refusal(path, lambda index: dict(index.blobs.view(index.captures.case(1).storages)))
    assert "not as long as declared" in first
    assert "a tensor reaches byte" in refusal(path, lambda index: index.captures.case(2))


def test_a_storage_beside_the_file_with_other_bytes(path: str) -> None:
    (file,) = (p for p in Path(f"{path}.blobs").rglob("*") if p.is_file())
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "does not match its digest" in refusal(path, storages)
    file.write_bytes(whole[:-1])
    assert "not as long as declared" in refusal(path, storages)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_storage_beside_the_file_that_is_no_file(path: str, kind: str) -> None:
    (file,) = (p for p in Path(f"{path}.blobs").rglob("*") if p.is_file())
    whole = file.read_bytes()
    file.unlink()
    if kind == "link":
        target = file.with_name("elsewhere")
        target.write_bytes(whole)
        file.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.mkdir()
    refusal(path, storages)


def test_a_storage_with_the_name_of_another_place(path: str, edit: Edit) -> None:
    edit("PRAGMA foreign_keys=OFF", "UPDATE blobs SET digest = '../../../../etc/passwd' WHERE data IS NULL")
    refusal(path, lambda index: index.blobs.view(["../../../../etc/passwd"])["../../../../etc/passwd"])


def test_a_value_larger_than_any_of_ours(path: str, edit: Edit) -> None:
    edit("UPDATE captures SET graph_text = hex(zeroblob(40000000)) WHERE id = 1")
    alone = refusal(path, lambda index: index.captures.get(1))
    assert "holds a value larger than fxminify ever writes" in alone
