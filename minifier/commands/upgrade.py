"""`minify upgrade`: bring an index of an older fxminify up to date."""

from __future__ import annotations

import click

from .verbs import as_json, dump, index_argument


@click.command(short_help="Bring a database of an older fxminify up to date.")
@index_argument()
@as_json
def upgrade(db: str, json_: bool) -> None:
    """Bring a DB of an older fxminify up to date.

    It happens in one step: a full disk or a killed process leaves the DB as it was. A copy of the old file stays
    beside it.
    """
    from ...store.index.upgrade import upgrade as upgraded

    backup = upgraded(db)
    if json_:
        dump({"backup": None if backup is None else str(backup)})
    elif backup is None:
        click.echo("It is up to date.")
    else:
        click.echo(f"It is up to date now; the old file is {backup}.")
