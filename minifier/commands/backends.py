"""`minify backends`: the backends that torch.compile knows here."""

from __future__ import annotations

import click

from .verbs import Problem, as_json, dump


@click.command(short_help="List the backends of torch.compile, or try each.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--test", is_flag=True, help="Compile a small module with each, forward and backward, in a process each.")
@as_json
def backends(names: tuple[str, ...], test: bool, json_: bool) -> None:
    """List the backends torch.compile knows here: where each comes from, what it needs, whether it works.

    With NAMEs only these.
    """
    from ...backends import adapters
    from ...backends.provenance import catalog
    from .terminal import listings

    rows = catalog.listing()
    if unknown := set(names) - {row["name"] for row in rows}:
        raise Problem(f"no backend is registered as {min(unknown)!r}; `minify backends` lists those that are.")
    rows = [row for row in rows if not names or row["name"] in names]
    for name, reason in adapters.broken().items():
        click.echo(f"the adapter {name} cannot be used: {reason}", err=True)
    if test:
        catalog.try_each(rows, done=lambda row: click.echo(f"{row['name']}: {row['test']}", err=True))
    if json_:
        dump(rows)
    else:
        listings.backends(rows)
