"""`minify formats`: what a failure can be handed out as."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .verbs import as_json, dump


@click.command(short_help="List the formats of `minify repro --format`.")
@as_json
def formats(json_: bool) -> None:
    """List the formats of `minify repro --format`, including formats of other packages."""
    from ...repro_templates.formats import PACKAGE, broken
    from ...repro_templates.formats import formats as known

    rows: list[dict[str, Any]] = [{**asdict(row), "run": row.run is not None} for row in known().values()]
    if json_:
        dump({"formats": rows, "broken": dict(broken())})
        return
    width, wide = (max(len(row[key]) for row in rows) for key in ("name", "file"))
    for row in rows:
        origin = "" if row["package"] == PACKAGE else f" From {row['package']}."
        click.echo(f"{row['name']:{width}}  {row['file']:{wide}}  {row['summary']}{origin}")
    for name, reason in broken().items():
        click.echo(f"{name}: cannot be used: {reason}", err=True)
