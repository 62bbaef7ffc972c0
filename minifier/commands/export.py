"""`minify export`: a scrubbed index with some failures, to give away."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from .verbs import IndexCommand, Problem, as_json, dump, index_argument


@click.command(cls=IndexCommand, short_help="Write a scrubbed copy of failures to give away.")
@index_argument(ids=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("share.db"),
    show_default=True,
    help="The new file.",
)
@click.option("--force", is_flag=True, help="Overwrite the output.")
@as_json
def export(db: str, ids: tuple[int, ...], output: Path, force: bool, json_: bool) -> None:
    """Write the failures of DB, or those with the given IDs, into a new DB that can be given away.

    Texts are masked, what is only of use here is left out, and code stays as it is: what is private in it is listed.
    Every verb works on the new DB, and asks before it runs anything of it.
    """
    from ...store.index import Index
    from ...store.index.sharing import LEFT_OUT, Masks
    from ...store.privacy import revealing, shareable, shareable_script
    from ...store.private_values import here
    from ...store.text import count

    if output.exists() and not force:
        raise Problem(f"{output} exists; add --force to overwrite it.")
    if output.exists() and Path(db).exists() and output.samefile(db):
        raise Problem(f"{output} is the DB itself; choose another name.")
    with Index.open(db, readonly=True) as index:
        made = index.share(output, ids, Masks(shareable, here().mask, shareable_script, revealing), force=force)
    if json_:
        dump({"output": str(output), **asdict(made), "left_out": LEFT_OUT, "looked_for": here().described()})
        return
    click.echo(f"{output}: {count(len(made.captures), 'failure')}, {made.bytes:,} bytes")
    listed = ", ".join(f"{number:,} {name}" for name, number in sorted(made.rows.items()) if name != "captures")
    click.echo(f"Inside: {listed}")
    click.echo("Left out:")
    for line in (*LEFT_OUT, *(f"failure {id}, which cannot be read: {why}" for id, why in made.unreadable.items())):
        click.echo(f"  {line}")
    click.echo(f"Looked for: {here().described()}, absolute paths, secrets and addresses by their shape")
    if not made.found:
        click.echo("Found: nothing.")
        return
    click.echo("Look at this before you send it; it is code or a value, so it was not changed:")
    for place, what in made.found.items():
        click.echo(f"  {place}: {', '.join(what)}")
