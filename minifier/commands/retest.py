"""`minify retest`: run the minimal cases of an index again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .verbs import UNKNOWN, IndexCommand, Problem, as_json, ask, dump, index_argument, note, quietly, sandboxed


@click.command(cls=IndexCommand, short_help="Run the minimal cases with what is installed now.")
@index_argument(ids=True)
@click.option("--backend", "backends", multiple=True, metavar="NAME",
              help="Run the cases under NAME instead of the backend they failed with. May be given again.")  # fmt: skip
@click.option(
    "--expect",
    type=click.Choice(["known", "fixed", "failing"]),
    default="known",
    show_default=True,
    help="known: nothing is worse than the index remembers; fixed or failing: every case is.",
)
@click.option("-j", "--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Cases at a time.")
@click.option("--runs", default=2, show_default=True, type=click.IntRange(2, 100), help="Fresh runs of each script.")
@click.option("--timeout", default=600.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--matrix", "matrix_", is_flag=True, help="Run nothing: show the last results by backend and version.")
@click.option("--again", is_flag=True, help="Start anew instead of going on with a retest that was interrupted.")
@click.option("--no-record", "record", is_flag=True, default=True, flag_value=False, help="Remember no results in DB.")
@click.option("--trust", is_flag=True, help="Run scripts of captures made elsewhere without asking.")
@sandboxed
@quietly
@as_json
def retest(
    db: str,
    ids: tuple[int, ...],
    expect: str,
    junit: Path | None,
    matrix_: bool,
    quiet: bool,
    json_: bool,
    **options: Any,
) -> None:
    """Run every minimal case of DB against today's installation: still failing, fixed, changed?

    Results are remembered with the versions of the packages they were had with, so that a later retest can say since
    when, and between which versions, a failure is fixed. Captures without a verified script are skipped.

    Exit codes: 0 everything is as expected; 1 something is not (marked with !): with --expect known, a failure that
    was fixed before, or one that no retest has seen; 3 what ran is as expected, but nothing was run or a case cannot
    run here (its backend is not installed, eager refuses it); 2 an error; 130 interrupted, run it again to go on.
    """
    from ...store import outputs
    from ...store.index import Index
    from ..regression.junit import junit as document
    from ..regression.retest import RetestOptions, retest
    from ..reporting import known
    from ..reporting.standing import Expect, matrix
    from .terminal import retests
    from .terminal.progress import RetestProgress

    if matrix_:
        with Index.open(db, readonly=True) as index:
            found = matrix(index, ids)
        dump(found) if json_ else retests.matrix(found)
        return
    if junit is not None:  # said before any case runs
        try:
            outputs.check(junit)
        except OSError as error:
            raise Problem(f"cannot write {junit}: {error.strerror}.") from error
    progress = RetestProgress(quiet=quiet or json_)
    chosen = RetestOptions(expect=Expect(expect), **options)
    answers = retest(db, ids, chosen, confirm=ask, tell=note, begin=progress.begin, done=progress.done)
    if junit is not None:
        try:
            outputs.write(junit, document(answers, f"minify retest {Path(db).name}"), force=True)
        except OSError as error:
            raise Problem(f"cannot write {junit}: {error.strerror}.") from error
    if json_:
        dump([answer.to_json() for answer in answers])
    else:
        retests.answers(answers, known=known.beside(db))
    ran = [answer for answer in answers if answer.result not in ("cannot run", "not minified")]
    if not all(answer.expected for answer in ran):
        sys.exit(1)
    if not ran or any(answer.result == "cannot run" for answer in answers):
        sys.exit(UNKNOWN)
