"""`minify passes`: the passes of the minifier."""

from __future__ import annotations

import click

from .verbs import as_json, dump


@click.command()
@as_json
def passes(json_: bool) -> None:
    """List the passes of the minifier: what each removes, and why that keeps the failure."""
    from ..passes import listing
    from . import console

    rows = listing()
    if json_:
        dump(rows)
    else:
        console.rows(rows)
