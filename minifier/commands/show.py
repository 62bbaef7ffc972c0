"""`minify show`: one failure in detail."""

from __future__ import annotations

from pathlib import Path

import click

from .verbs import IndexCommand, as_json, dump, index_argument


@click.command(cls=IndexCommand, short_help="Show one failure: its graph, what matters, the next command.")
@index_argument(one=True)
@click.option("--captured", is_flag=True, help="Show the captured graph, whole, instead of the minimal one.")
@click.option("--graph", is_flag=True, help="Draw the minimal graph, in text.")
@click.option("--details", "more", is_flag=True, help="Also show frames, standard error, where it was captured.")
@as_json
def show(db: str, id_: int, captured: bool, graph: bool, more: bool, json_: bool) -> None:
    """Show one failure of DB: what failed, its minimal graph, what of it matters, and the next command.

    Of a failure that has no verified script, the details are always shown.
    """
    from ...store.index import Index
    from ..oracle import first_node
    from ..reporting.gathering import gather
    from .terminal import detail

    with Index.open(db, readonly=True) as index:
        if graph and not json_:
            detail.drawing(index, id_, str((first_node.stored(index, id_) or {}).get("node", "")))
            return
        found = gather(index, id_, captured=captured, folders={Path(), Path(db).parent})
    if json_:
        dump(found.to_json())
    else:
        detail.show(found, db, details=more, whole=captured)
