"""`minify tasks`: what `minify work` is to do, is at, and has done."""

from __future__ import annotations

import click

from ...minifier.commands.list import PAGE
from ...minifier.commands.verbs import Problem, as_json, dump, index_argument

#: The states of tasks, as in `fxminify.store.index.tables.TaskState`, which takes long to import.
STATES = ("queued", "leased", "waiting", "done", "failed", "cancelled", "quarantined")


@click.command(short_help="List, cancel or retry the tasks of workers.")
@index_argument()
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only tasks in this state.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help=f"The most rows: {PAGE} by default.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Go on where a listing before ended.")
@click.option("--cancel", type=int, metavar="ID", help="End this task, also where a worker is at it.")
@click.option("--retry", type=int, metavar="ID", help="Queue this task again, whatever became of it.")
@as_json
def tasks(
    db: str,
    states: tuple[str, ...],
    limit: int | None,
    after: int,
    cancel: int | None,
    retry: int | None,
    json_: bool,
) -> None:
    """List the tasks of DB: what `minify work` is to do, is at and has done, and why a task waits.

    A cancelled task is not queued again by itself, a task that is retried begins with all its attempts.
    """
    from ...minifier.commands.terminal import listings
    from ...store.index import Index, TaskState

    if cancel is not None and retry is not None:
        raise Problem("cancel a task or retry one, not both at once.")
    changed = cancel if cancel is not None else retry
    if changed is not None:
        with Index.open(db) as index:
            if cancel is not None:
                index.tasks.cancel(changed)
            else:
                index.tasks.retry(changed)
            found = index.tasks.get(changed)
        if json_:
            dump(found.to_json())
        else:
            click.echo(f"Task {changed} is {found.state}.")
        return
    most = limit or PAGE
    with Index.open(db, readonly=True) as index:
        rows = index.tasks.page([TaskState(state) for state in states], after=after, limit=most + 1)
        counts, workers = index.tasks.counts(), index.tasks.workers()
    if json_:
        dump([row.to_json() for row in rows[:most]])
        return
    more = ""
    if len(rows) > most:
        words = [f"--state {state}" for state in states] + [f"--limit {limit}"] * (limit is not None)
        more = " ".join([*words, f"--after {rows[most - 1].id}"])
    listings.tasks(rows[:most], counts, workers, db, more=more)
