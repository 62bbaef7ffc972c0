"""`minify notify`: send notifications of events, and list them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...minifier.commands.list import PAGE
from ...minifier.commands.verbs import Problem, as_json, dump, index_argument

if TYPE_CHECKING:
    from ..workers.targets import Target


def notified(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``--notify`` option of verbs that go on until they are ended."""
    return click.option(
        "--notify", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="Tell those whom this TOML file names what happens; docs/service.md describes it.",
    )(command)  # fmt: skip


def targets(path: Path | None) -> tuple[list[Target], str]:
    """The targets of a file and the address of the pages, none without a file. Raises `Problem`."""
    from ..workers.targets import BadTargets, read

    if path is None:
        return [], ""
    try:
        return read(path)
    except BadTargets as error:
        raise Problem(str(error)) from error


@click.command(short_help="List notifications, or send those that are due.")
@index_argument()
@click.option(
    "--send", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Tell those whom this TOML file names what is due, once.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help=f"The most rows: {PAGE} by default.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Go on where a listing before ended.")
@as_json
def notify(db: str, send: Path | None, limit: int | None, after: int, json_: bool) -> None:
    """List the notifications of DB, and with --send send those that are due.

    `minify work --notify FILE` and `minify serve --notify FILE` send them all the time.
    """
    from ...minifier.commands.terminal import listings
    from ...store.errors import without_password
    from ...store.index import Index

    if send is not None:
        from ..workers.notify import Notifier

        told, page = targets(send)
        with Index.open(db) as index:
            Notifier(index, told, page, lambda event, text: click.echo(text, err=True)).step()
    most = limit or PAGE
    with Index.open(db, readonly=True) as index:
        rows = index.deliveries.page(after=after, limit=most + 1)
    if json_:
        dump([row.to_json() for row in rows[:most]])
        return
    more = ""
    if len(rows) > most:
        words = [f"--limit {limit}"] * (limit is not None) + [f"--after {rows[most - 1].id}"]
        more = " ".join([shlex.quote(without_password(db)), *words])
    listings.deliveries(rows[:most], more=more)
