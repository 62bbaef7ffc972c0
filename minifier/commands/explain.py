"""`minify explain`: find the part of the compiler in which a failure arises, and a way around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .verbs import IndexCommand, as_json, ask, dump, index_argument, note, sandboxed

if TYPE_CHECKING:
    from ..reporting.cause import SwitchRow


@click.command(cls=IndexCommand, short_help="Find the part of the backend, and a way around.")
@index_argument(one=True)
@click.option("--budget", default=60, show_default=True, metavar="N", help="The most queries.")
@click.option("--timeout", default=300.0, show_default=True, metavar="S", help="Seconds for one query.")
@click.option("--trust", is_flag=True, help="Run a capture made elsewhere without asking.")
@sandboxed
@as_json
def explain(db: str, id_: int, budget: int, timeout: float, json_: bool, **asked: bool) -> None:
    """Find the part of the compiler in which failure ID arises, and a way around it.

    Each switch of the backend is turned for the minimal case: an optimization off, a pass off, other code. What makes
    the failure go is named, and is tried on the captured graph. A search that was interrupted goes on.
    """
    from ...store.index import Index
    from ..reporting import find_cause
    from ..reporting.gathering import gather
    from .terminal import detail

    def done(row: SwitchRow) -> None:
        click.echo(f"{'; '.join(row.lines)}: {row.result}", err=True)

    find_cause.explain(db, id_, budget=budget, timeout=timeout, confirm=ask, tell=note, done=done, **asked)
    with Index.open(db, readonly=True) as index:
        found = gather(index, id_)
    if json_:
        dump(found.to_json())
    else:
        detail.cause(found)
