"""`minify list`: the failures of an index."""

from __future__ import annotations

import click

from .verbs import as_json, dump, index_argument


@click.command("list")
@index_argument()
@click.option("--each", is_flag=True, help="A row for each failure, not for each bug.")
@as_json
def list_(db: str, each: bool, json_: bool) -> None:
    """List the failures of DB, a row for each bug: failures of one backend with one signature."""
    from ...store.index import Index
    from . import console

    with Index.open(db, readonly=True) as index:
        rows = index.captures.find()
    if json_:
        dump([row.to_json() for row in rows])
    else:
        console.table(rows, db, each=each)
