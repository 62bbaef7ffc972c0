"""`minify doctor`: check this installation."""

from __future__ import annotations

import sys

import click

from .verbs import as_json, dump


@click.command(short_help="Check this installation.")
@click.option("--synthetic", is_flag=True, help="Plant a failure and take it through capture, run and verify.")
@as_json
def doctor(synthetic: bool, json_: bool) -> None:
    """Check this installation."""
    from ..doctor import examine
    from .terminal import parts

    rows = examine(synthetic=synthetic)
    if json_:
        dump(rows, exact=True)
    else:
        parts.rows(rows)
    if any(row["ok"] is False for row in rows):
        sys.exit(1)
