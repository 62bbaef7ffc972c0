"""`minify copy`: a whole index in another place."""

from __future__ import annotations

import click

from .verbs import as_json, dump


@click.command(short_help="Copy a database to a server, back, or as a backup.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@as_json
def copy(source: str, target: str, json_: bool) -> None:
    """Copy the index FROM to TO: a new file, or an empty database of a server.

    Ids and signatures stay, and so does what proves that captures are yours. Tokens are left out. Others may use FROM
    meanwhile: the copy is one state of it, which suits a backup. TO can be used when it is whole; interrupted, the same
    command goes on.
    """
    from ...store.errors import without_password
    from ...store.index.copying import copy as copied
    from ...store.text import count

    found = copied(source, target)
    if json_:
        dump(found.to_json())
        return
    rows, captures = sum(found.rows.values()), found.rows.get("captures", 0)
    click.echo(f"Copied {count(captures, 'capture')} to {without_password(target)}, {count(rows, 'row')} in all.")
