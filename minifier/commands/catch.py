"""`minify catch`: from a failing program to scripts, in one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .capture import Capture, capture_options
from .verbs import Problem, write

if TYPE_CHECKING:
    from ...store.index import CaptureInfo


@click.command(cls=Capture, context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The directory for the scripts, by default the current one.",
)
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for one failure.")
@click.option("--force", is_flag=True, help="Overwrite scripts that are there already.")
@capture_options
def catch(
    db: str,
    output: Path,
    budget: float | None,
    force: bool,
    timeout: float | None,
    module: bool,
    program: str,
    args: tuple[str, ...],
    **settings: Any,
) -> None:
    """Run PROGRAM, minify its backend failures, and write a verified script for each.

    This is `minify capture`, `minify run` and `minify repro` in one. It exits with 1 if a backend failed, else with the
    exit code of the program.
    """
    from ...backends.capture import supervise
    from ...backends.capture.settings import Settings
    from ...store.index import Index
    from ...store.index.changes import Changes
    from ...store.text import count
    from ..reporting.export import ExportRequest, export
    from ..session.options import MinifyOptions
    from . import console
    from .repro import run_command
    from .run import minify_with_progress

    Index.check(db)
    changes = Changes(db)
    code = supervise.run(db, [program, *args], Settings(**settings), module=module, timeout=timeout, hint=False)
    met = changes.ids()
    if not met:
        sys.exit(code)
    minify_with_progress(db, met, MinifyOptions(budget=budget))
    with Index.open(db, readonly=True) as index:
        verified = [capture for capture in index.captures.find(met) if capture.state == "verified"]
    for capture in verified:
        made = export(db, capture.id, ExportRequest())
        path = output / script_name(capture)
        try:
            output.mkdir(parents=True, exist_ok=True)
            write({path: made.text.encode()} | {output / name: data for name, data in made.files.items()}, force=force)
        except (OSError, Problem) as error:
            click.echo(f"minify: {error}", err=True)
            continue
        if len(verified) == 1:
            console.code(made.text)
        click.echo(f"minify: {path} shows failure {capture.id}: {run_command(path, made.search_path)}", err=True)
    if missing := len(met) - len(verified):
        click.echo(f"minify: {count(missing, 'failure')} without a verified script: minify list {db}", err=True)
    sys.exit(1)


def script_name(capture: CaptureInfo) -> str:
    return f"repro_{capture.id}.py"
