"""`minify show`: one failure in detail."""

from __future__ import annotations

import click

from .verbs import IndexCommand, as_json, dump, index_argument


@click.command(cls=IndexCommand)
@index_argument(one=True)
@click.option("--minified", is_flag=True, help="Show the minified graph instead of the captured one.")
@click.option("--graph", is_flag=True, help="Draw the minimal graph, in text.")
@as_json
def show(db: str, id_: int, minified: bool, graph: bool, json_: bool) -> None:
    """Show one failure of DB: what failed, where, with which backend, its graph, and what of it matters."""
    from ...store.index import Index
    from ..reporting import explanation
    from ..reporting.details import details
    from . import console

    with Index.open(db, readonly=True) as index:
        if graph and not json_:
            console.drawing(index, id_)
            return
        found = details(index, id_, minified=minified)
        explained = explanation.stored(index, id_)
    if json_:
        dump({**found, **({} if explained is None else {"explanation": explained.to_json()})})
        return
    console.show(found)
    if explained is not None:
        console.explanation(explained)
