"""`minify list`: the failures of an index."""

from __future__ import annotations

import click

from .verbs import as_json, dump, index_argument

#: Rows of one listing for a person.
PAGE = 200


@click.command("list", short_help="List the failures, a row for each bug.")
@index_argument()
@click.option("--each", is_flag=True, help="A row for each failure, not for each bug.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"The most rows: {PAGE} by default, with --json all."
)
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Go on where a listing before ended.")
@as_json
def list_(db: str, each: bool, limit: int | None, after: int, json_: bool) -> None:
    """List the failures of DB, a row for each bug: failures of one backend with one signature.

    The state is *fixed* where the last `minify retest` that could run did not show the failure any more. A bug that
    known.toml names has a line with its place and state; the file lies beside DB or in the current directory.
    """
    from ...store.index import Index
    from ..reporting import groups, known
    from ..reporting.standing import last_results
    from .terminal import listings

    with Index.open(db, readonly=True) as index:
        if json_:
            captures = index.captures.find(after=after, limit=limit)
            where = last_results(index, captures)
            dump([row.to_json() | {"standing": where[row.id].text() if row.id in where else ""} for row in captures])
            return
        most = limit or PAGE
        if each:
            rows = [groups.alone(row) for row in index.captures.find(after=after, limit=most + 1)]
        else:
            rows = index.bugs.page(after=after, limit=most + 1)
        ids = [id for row in rows[:most] for id in row.ids]
        captures = index.captures.find(ids) if ids else []
        results = {id: where.result for id, where in last_results(index, captures).items()}
    more = ""
    if len(rows) > most:
        last = rows[most - 1].ids[0] if each else rows[most - 1].id
        more = " ".join(["--each"] * each + [f"--limit {limit}"] * (limit is not None) + [f"--after {last}"])
    listings.table(rows[:most], db, results=results, known=known.beside(db), more=more)
