"""The verbs that run what an index holds to learn more of it: `run` and `ablate`."""

from __future__ import annotations

import sys
from typing import Any

import click

from .verbs import Problem, as_json, ask, database, dump


@click.command()
@database
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    help="Workers at a time; without it 1, or as many as the executor has.",
)
@click.option(
    "--executor",
    metavar="WHERE",
    help="Ask on a Dask cluster: dask://HOST:PORT, or local:N for N processes here. Needs the extra dask.",
)
@click.option(
    "--match",
    type=click.Choice(["exact", "origin", "any"]),
    default="exact",
    show_default=True,
    help="How much of the signature must agree for a failure to be the same one.",
)
@click.option("--error-regex", metavar="REGEX", help="A failure is the same one when its text matches REGEX.")
@click.option("--replays", default=3, show_default=True, type=click.IntRange(1, 100), help="Replays before a search.")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100), help="Fresh runs of a script.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for one capture.")
@click.option("--max-queries", type=click.IntRange(1), help="Oracle calls for one capture.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds for one oracle call; by default derived from the replays.",
)
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Memory cap of a worker.")
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Also find out what of the result matters, by at most 40 further questions: minify show.",
)
@click.option("--embed-data", is_flag=True, help="Keep input data beside the script where no seed reproduces.")
@click.option("--trust", is_flag=True, help="Run captures made elsewhere without asking.")
@click.option(
    "--min-rate",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="The share of its runs in which what is kept must fail; by default half of that of the replays.",
)
@click.option("--strict", is_flag=True, help="Stop with an error when a pass or a simplification itself fails.")
@click.option("--again", is_flag=True, help="Minify captures that were already done, too.")
@click.option("--from-step", type=click.IntRange(1), metavar="N", help="Go on from step N of `minify history`.")
@as_json
def run(db: str, ids: tuple[int, ...], json_: bool, again: bool, **options: Any) -> None:
    """Minify every pending failure of DB, or those with the given IDs.

    Interrupted runs resume where they stopped: no question is put to the backend twice.
    """
    if options["from_step"] is not None and len(ids) != 1:
        raise Problem("--from-step is about one failure: give its ID, as in minify run DB ID --from-step N.")
    from ..sandbox.cluster import NoCluster
    from ..session.options import MinifyOptions
    from ..session.runner import run_pending

    options["jobs"] = options["jobs"] or 0
    try:
        rows = run_pending(db, ids, MinifyOptions(**options), again=again, quiet=json_, confirm=ask)
    except NoCluster as error:
        raise Problem(str(error)) from error
    if json_:
        dump([row.to_json() for row in rows])
    if any(row.state != "verified" for row in rows):
        sys.exit(1)


@click.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("--backend", "names", multiple=True, metavar="NAME", help="Try this one too, instead of all installed.")
@click.option("--timeout", default=300.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run a capture made elsewhere without asking.")
@as_json
def ablate(db: str, id_: int, names: tuple[str, ...], timeout: float, trust: bool, json_: bool) -> None:
    """Run failure ID under other backends: at which layer does it enter?

    The layers are Dynamo, AOTAutograd, its decompositions, and the backend. The issue report shows the answer.
    """
    from ..regression.ablation import ablate
    from . import console

    def done(row: Any) -> None:
        click.echo(f"{row.backend}: {row.result}", err=True)

    found = ablate(db, id_, backends=names, timeout=timeout, trust=trust, confirm=ask, done=done)
    if json_:
        dump(found.to_json())
    else:
        console.ablation(found)
