"""`minify history`: how a failure was minified."""

from __future__ import annotations

import click

from .verbs import IndexCommand, Problem, as_json, dump, index_argument


@click.command(cls=IndexCommand, short_help="Show the steps by which a failure was minified.")
@index_argument(one=True)
@click.option("--step", "number", type=click.IntRange(1), metavar="N", help="Show all that step N changed.")
@click.option("--brief", is_flag=True, help="Leave out what the steps changed.")
@as_json
def history(db: str, id_: int, number: int | None, brief: bool, json_: bool) -> None:
    """Show how failure ID was minified: every step with its changes, and the queries and results of each pass.

    `minify run DB ID --from-step N` continues from a step.
    """
    from ...store.index import Index
    from ..reducer.history import stored
    from .terminal import detail

    with Index.open(db, readonly=True) as index:
        left = index.captures.get(id_).operators
        found = stored(index, id_)
        db = index.name
    if found is None:
        raise Problem(f"capture {id_} was not minified yet: minify run {db} {id_}")
    steps = {step.number: step for step in found.steps}
    if number is not None and number not in steps:
        raise Problem(f"there is no step {number}; `minify history {db} {id_}` lists the {len(steps)} there are.")
    if json_:
        dump(found.to_json() if number is None else steps[number].to_json())
    elif number is not None:
        detail.step(steps[number])
    else:
        detail.history(found, left=left, differences=not brief)
