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
@click.option("--bisect", nargs=2, metavar="GOOD BAD",
              help="Find the version since which it fails, between one that passes and one that fails.")  # fmt: skip
@click.option("--package", default="torch", show_default=True, metavar="NAME", help="The package to --bisect.")
@click.option("--wheels", default="", metavar="DIR|URL", help="Where --bisect finds the versions; else where pip does.")
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
    bisect: tuple[str, str] | None,
    package: str,
    wheels: str,
    quiet: bool,
    json_: bool,
    **options: Any,
) -> None:
    """Run every minimal case of DB against today's installation: still failing, fixed, changed?

    Results are remembered with the versions of the packages they were had with, so that a later retest can say since
    when, and between which versions, a failure is fixed. Captures without a verified script are skipped.

    With --bisect each version is installed into an environment of its own, which sees all else that is installed here.
    GOOD may be the newer one: then the answer is since when the failure is gone.

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
    if bisect is not None:
        _bisect(db, ids, package, wheels, bisect, quiet=quiet or json_, json_=json_, options=options)
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


def _bisect(
    db: str,
    ids: tuple[int, ...],
    package: str,
    wheels: str,
    ends: tuple[str, str],
    *,
    quiet: bool,
    json_: bool,
    options: dict[str, Any],
) -> None:
    """Print the versions of ``package`` between which one failure begins or ceases to show."""
    from ..printable import shown
    from ..regression.version_range import Environments, VersionAnswer, find_range

    if len(ids) != 1:
        raise Problem("--bisect is about one failure: minify retest DB ID --bisect GOOD BAD.")

    def tell(text: str) -> None:
        if not quiet:
            note(shown(text))

    def done(answer: VersionAnswer) -> None:
        tell(f"{package} {answer.version}: {answer.result}{f' ({answer.message})' if answer.message else ''}")

    given = [f"--runs={options['runs']}", f"--timeout={options['timeout']}"]
    given += [f"--backend={name}" for name in options["backends"]]
    flags = {"--trust": options["trust"], "--sandbox": options["sandbox"], "--no-record": not options["record"]}
    given += [flag for flag, wanted in flags.items() if wanted]
    found = find_range(db, ids[0], Environments(package, wheels, tell), *ends, options=given, done=done)
    dump(found.to_json()) if json_ else click.echo(shown(found.text()))
