"""The verb that hands a failure to somebody else: `report`."""

from __future__ import annotations

from pathlib import Path

import click

from ..verbs import Problem, as_json, dump, write


@click.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.zip",
    help="Write every format, what lies beside them and a manifest into one zip.",
)
@click.option("--to", type=click.Choice(["gh"]), help="Print the command that files the issue; runs nothing.")
@click.option("--force", is_flag=True, help="Overwrite the output; take a script that was not verified.")
@as_json
def report(db: str, id_: int, bundle: Path | None, to: str | None, force: bool, json_: bool) -> None:
    """Hand failure ID to those who can repair it: as one zip, or as an issue.

    What is inside is listed before anything is written.
    """
    from ...store.index import Index
    from .. import bundle as bundles

    if bundle is None and to is None:
        raise Problem("say what to make of it: --bundle OUT.zip, or --to gh.")
    with Index.open(db, readonly=True) as index:
        if to is not None:
            click.echo(bundles.command(index, id_, unverified=force))
        if bundle is None:
            return
        made = bundles.collect(index, id_, unverified=force)
    for line in made.lines():
        click.echo(line, err=json_)
    write({bundle: bundles.zipped(made)}, force=force)
    if json_:
        dump({"bundle": str(bundle), **made.document()})
