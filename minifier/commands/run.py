"""`minify run`: minify the pending failures of an index."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .verbs import IndexCommand, Problem, as_json, ask, dump, index_argument, quietly, repeated, sandboxed, verbosely

if TYPE_CHECKING:
    from ..session.options import MinifyOptions
    from ..session.results import MinifyResult


@click.command(cls=IndexCommand, short_help="Minify the pending failures.")
@index_argument(ids=True)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    help="Workers at a time; without it as many as processors and memory allow, or as the executor has.",
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
@repeated
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for one capture.")
@click.option("--max-queries", type=click.IntRange(1), help="Oracle calls for one capture.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds for one query; by default derived from the replays.",
)
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Memory cap of a worker.")
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Also find out what of the result matters, by at most 40 further queries: minify show.",
)
@click.option("--embed-data", is_flag=True, help="Keep input data beside the script where no seed reproduces.")
@click.option("--trust", is_flag=True, help="Run captures made elsewhere without asking.")
@sandboxed
@click.option(
    "--min-rate",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="The share of runs in which an accepted graph must fail; by default half the share of the replays.",
)
@click.option("--strict", is_flag=True, help="Stop with an error when a pass itself fails.")
@click.option("--again", is_flag=True, help="Minify captures that were already done, too.")
@click.option("--from-step", type=click.IntRange(1), metavar="N", help="Go on from step N of `minify history`.")
@quietly
@verbosely
@as_json
def run(db: str, ids: tuple[int, ...], json_: bool, quiet: bool, verbose: bool, **options: Any) -> None:
    """Minify every pending failure of DB, or those with the given IDs.

    Interrupted runs resume where they stopped: no query of the search is put to the backend twice.
    """
    if options["from_step"] is not None and len(ids) != 1:
        raise Problem("--from-step is about one failure: give its ID, as in minify run DB ID --from-step N.")
    from ..session.options import MinifyOptions

    asked = MinifyOptions(**{**options, "jobs": options["jobs"] or 0})
    results = minify_with_progress(
        db, ids, asked, quiet=quiet or (json_ and not verbose), verbose=verbose, summary=not json_
    )
    if json_:
        dump([result.capture.to_json() for result in results])
    if not all(result.verified for result in results):
        sys.exit(1)


def minify_with_progress(
    db: str,
    ids: Sequence[int],
    options: MinifyOptions,
    *,
    quiet: bool = False,
    verbose: bool = False,
    summary: bool = True,
) -> list[MinifyResult]:
    """Minify, show the progress and a summary, and ask before a capture that was made elsewhere runs."""
    from ...store.errors import without_password
    from ..sandbox.cluster import NoCluster
    from ..session.minify import minify
    from .terminal import progress as terminal

    asked = {"--match": options.match, "--error-regex": options.error_regex, "--min-rate": options.min_rate,
             "--from-step": options.from_step}  # fmt: skip
    words = [word for name, value in asked.items() if value not in (None, "exact") for word in (name, str(value))]
    resume = shlex.join(["minify", "run", *words, *(["--again"] if options.again else []), without_password(db)])
    script = shlex.join(["minify", "repro", without_password(db)])
    with terminal.RunProgress(resume, script, quiet=quiet, verbose=verbose) as progress:

        def confirm(question: str) -> bool:
            with progress.paused():
                return ask(question)

        try:
            results = minify(db, ids, options=options, listener=progress, confirm=confirm)
        except NoCluster as error:
            raise Problem(str(error)) from error
    if summary:
        terminal.summary(results, db)
    return results
