"""`minify catch`: from a failing program to scripts, in one command."""

from __future__ import annotations

import sys
from itertools import count as count_up
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .capture import Capture, capture_options, note_misplaced
from .verbs import STANDARD_ERROR, Problem, as_json, dump, quietly, verbosely, write

if TYPE_CHECKING:
    from ...store.index import CaptureInfo


@click.command(
    cls=Capture,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a program, minify its failures and write a script for each.",
)
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
@quietly
@verbosely
@as_json
@capture_options
@click.pass_context
def catch(
    ctx: click.Context,
    /,
    db: str,
    output: Path,
    budget: float | None,
    force: bool,
    quiet: bool,
    verbose: bool,
    timeout: float | None,
    module: bool,
    program: str,
    args: tuple[str, ...],
    json_: bool,
    **settings: Any,
) -> None:
    """Run PROGRAM, minify its backend failures, and write a verified script for each.

    This is `minify capture`, `minify run` and `minify repro` in one. It exits with 1 if a backend failed, else with the
    exit code of the program: also where eager mode fails as the backend does, or the backend is not installed. With
    --json the output of the program goes to standard error.
    """
    from rich.console import Console

    from ...backends.capture import supervise
    from ...backends.capture.settings import Settings
    from ...store.index import Index
    from ...store.index.changes import Changes
    from ...store.text import count
    from ..printable import shown
    from ..reporting import groups
    from ..reporting.export import ExportRequest, export
    from ..reporting.privacy_summary import warnings
    from ..session.options import MinifyOptions
    from ..session.results import outcome
    from .repro import run_command
    from .run import minify_with_progress
    from .terminal import listings, parts

    Index.check(db)
    changes = Changes(db)
    code = supervise.run(
        db, [program, *args], Settings(**settings), module=module, timeout=timeout, hint=False,
        stdout=STANDARD_ERROR if json_ else None,
    )  # fmt: skip
    met = [
        row.id for row in changes.rows() if row.state != "eager_refuses" and not (row.failure and row.failure.absent)
    ]
    scripts: dict[int, str] = {}

    def told() -> None:
        if json_:
            rows = changes.rows()
            dump({"exit_code": code, "captured": [row.to_json() | {"script": scripts.get(row.id)} for row in rows]})

    if not met:
        note_misplaced(ctx, args)
        told()
        sys.exit(code)
    minify_with_progress(db, met, MinifyOptions(budget=budget), quiet=quiet or json_, verbose=verbose, summary=False)
    with Index.open(db, readonly=True) as index:
        captures = index.captures.find(met)
    verified = [capture for capture in captures if capture.state == "verified"]
    for capture in verified:
        made = export(db, capture.id, ExportRequest())
        try:
            output.mkdir(parents=True, exist_ok=True)
            path = script_path(output, capture, made.text, force=force)
            beside = {output / name: data for name, data in made.files.items()}
            write({path: made.text.encode()} | beside, force=force or path.exists())
        except (OSError, Problem) as error:
            click.echo(f"minify: {error}", err=True)
            continue
        scripts[capture.id] = str(path)
        if len(verified) == 1 and not json_:
            parts.code(made.text)
        for line in warnings({str(path): made.text.encode()}):
            click.echo(f"minify: {line}", err=True)
        click.echo(f"minify: {path} shows failure {capture.id}: {run_command(path, made.search_path)}", err=True)
    if missing := [capture for capture in captures if capture not in verified]:
        click.echo(f"minify: {count(len(missing), 'failure')} without a verified script:", err=True)
        listings.table([groups.alone(capture) for capture in missing], db, console=Console(stderr=True))
        for capture in missing if quiet or json_ else ():  # else the progress has said why
            click.echo(f"minify: {shown(f'{capture.id} {outcome(capture)}')}", err=True)
    told()
    sys.exit(1)


def script_path(folder: Path, capture: CaptureInfo, text: str, *, force: bool) -> Path:
    """``repro_ID.py``, or with a further number where another script is there."""
    for number in count_up(1):
        path = folder / (f"repro_{capture.id}.py" if number == 1 else f"repro_{capture.id}-{number}.py")
        if force or not path.exists() or path.read_bytes() == text.encode():
            return path
    raise AssertionError
