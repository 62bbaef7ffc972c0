"""`minify hunt`: run the programs of suites under a backend, and store what fails."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from .verbs import UNKNOWN, Problem, as_json, database_option, dump, quietly, write

_FILE = click.Path(dir_okay=False, path_type=Path)


class _Names(click.ParamType[Any]):
    """Names that are separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(filter(None, (name.strip() for name in value.split(",")))) if isinstance(value, str) else value
        return names or self.fail("names nothing.", param, ctx)


class _Dtypes(_Names):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from ..hunting.campaign import DTYPES

        names = super().convert(value, param, ctx)
        if unknown := [name for name in names if name not in DTYPES]:
            self.fail(f"{unknown[0]!r} is not one of {', '.join(DTYPES)}.", param, ctx)
        return names


class _Regex(click.ParamType[Any]):
    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}.", param, ctx)
        return str(value)


@click.command(short_help="Run torch's operators under a backend, and store what fails.")
@click.argument("backend")
@click.option("--suite", "suites", type=_Names(), default="ops", show_default=True, metavar="NAME,...",
              help="The suites whose programs are run.")  # fmt: skip
@click.option("--dtype", "dtypes", type=_Dtypes(), default="float32", show_default=True, metavar="DTYPE,...",
              help="The dtypes of the inputs.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="The device of the inputs, such as cuda.")
@click.option("--grad", is_flag=True, help="Also compute gradients.")
@click.option("--dynamic", is_flag=True, help="Also compile with symbolic sizes.")
@click.option("--only", type=_Regex(), default="", metavar="REGEX", help="Only programs whose name has a match.")
@click.option("--calls", type=click.IntRange(1, 400), default=5, show_default=True, help="The most calls of a program.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Draws the calls, and their values.")  # fmt: skip
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="End after S seconds; the same command goes on.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True, metavar="S",
              help="A program that takes longer than S seconds hangs.")  # fmt: skip
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Memory cap of a worker.")
@click.option("-j", "--jobs", type=click.IntRange(1, 1024), default=1, show_default=True, help="Workers at a time.")
@click.option("--import", "module", default="", metavar="MODULE", help="Import MODULE first: it registers BACKEND.")
@database_option
@click.option("--log", type=_FILE, help="The file of results; by default DB with the ending .BACKEND.hunt.jsonl.")
@click.option("--again", is_flag=True, help="Start anew instead of going on with the results in that file.")
@click.option("--expect", type=_FILE, metavar="TOML", help="Expected failures: exit code 1 only for others.")
@click.option("--against", type=_FILE, metavar="FILE",
              help="Compare with the results of an earlier hunt: exit code 1 only for others.")  # fmt: skip
@click.option("--write-expect", "written", type=_FILE, metavar="TOML",
              help="Write all failures of the hunt as a file for --expect.")  # fmt: skip
@click.option("--report", "page", type=_FILE, metavar="HTML", help="Write an HTML page.")
@click.option("--junit", "xml", type=_FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--force", is_flag=True, help="Overwrite the files of --report, --junit and --write-expect.")
@quietly
@as_json
def hunt(
    backend: str,
    db: str,
    log: Path | None,
    dtypes: tuple[str, ...],
    device: str,
    grad: bool,
    dynamic: bool,
    calls: int,
    seed: int,
    expect: Path | None,
    against: Path | None,
    written: Path | None,
    page: Path | None,
    xml: Path | None,
    force: bool,
    quiet: bool,
    json_: bool,
    **options: Any,
) -> None:
    """Run programs under BACKEND in workers, compare each call with eager, and store what fails in the database.

    BACKEND is a name of torch.compile, or MODULE:ATTRIBUTE. The suite ops has the samples of torch's operator database.
    An operator that crashes, hangs or fills the memory is a result, and the hunt goes on. Each bug is one row; known
    ones are counted. Interrupted, or at the end of its budget, the same command goes on where it was.

    Exit codes: 0 nothing failed but what is expected; 1 something did; 2 an error; 3 nothing could be judged; 130
    interrupted.
    """
    from ..hunting import campaign, expected
    from ..hunting import log as results_file
    from ..hunting.cells import CellState
    from ..hunting.programs import Selection
    from .terminal import hunts

    for path in (written, page, xml):
        if path is not None and path.exists() and not force:
            raise Problem(f"{path} exists; add --force to overwrite it.")
    known = () if expect is None else expected.read(expect)
    earlier = None if against is None else results_file.read(against)
    gradient, symbolic = (False, True) if grad else (False,), (False, True) if dynamic else (False,)
    wanted = Selection(dtypes=dtypes, gradient=gradient, dynamic=symbolic, seed=seed, calls=calls, device=device)
    chosen = campaign.HuntOptions(backend, log or campaign.log_of(db, backend), wanted=wanted, **options)
    with hunts.HuntProgress(chosen, quiet=quiet or json_) as progress:
        result, programs = campaign.run(db, chosen, progress, known, earlier)
    if written is not None:
        write({written: expected.written(programs.values()).encode()}, force=force)
    if page is not None:
        from ..hunting.page import render

        write({page: render(result, db).encode("utf-8", "replace")}, force=force)
    if xml is not None:
        from ..hunting.junit import junit

        write({xml: junit(result, programs, db)}, force=force)
    if json_:
        dump({**result.to_json(), "db": db, "log": str(chosen.log)})
    else:
        hunts.result(result, db)
    if result.new:
        sys.exit(1)
    if not any(result.totals[state] for state in (CellState.OK, CellState.FAILS, CellState.REFUSED)):
        sys.exit(UNKNOWN)
