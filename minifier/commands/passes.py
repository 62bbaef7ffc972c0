"""`minify passes`: the passes of the minifier."""

from __future__ import annotations

import click

from .verbs import as_json, dump


@click.command(short_help="List the passes of the minifier.")
@as_json
def passes(json_: bool) -> None:
    """List the passes of the minifier: what each removes, and why that keeps the failure."""
    from ..passes import installed
    from .terminal import parts

    table = installed()
    rows = [
        {"pass": p.name, "stage": p.stage.value, "from": table.sources.get(p.name, "fxminify"), "what": p.summary}
        for p in table.passes
    ]
    for problem in table.problems:
        click.echo(f"passes that could not be loaded: {problem}", err=True)
    if json_:
        dump(rows)
    else:
        parts.rows(rows)
