"""`minify import`: capture the failures of PyTorch's own repro scripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .verbs import STANDARD_ERROR, as_json, ask, database_option, dump


@click.command("import", short_help="Capture the failure of a repro file of PyTorch.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, dir_okay=False))
@database_option
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import MODULE first: it registers the backend, or operators. May be given again.",
)
@click.option("--backend", metavar="NAME", help="Use this backend instead of the one the file names.")
@click.option("--check", is_flag=True, help="Also compare with eager; done where the file is about accuracy.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Take a compilation or a call that lasts longer than S seconds as a hang.",
)
@click.option("--trust", is_flag=True, help="Run the files without asking.")
@as_json
def import_(files: tuple[Path, ...], db: str, trust: bool, json_: bool, **options: Any) -> None:
    """Capture the failures of PyTorch's repro.py, minifier_launcher.py or fx_graph_runnable.py.

    Such a file has a graph but no record of its failure, so it is run once, in a process of its own; crashes and
    hangs are captured, too. A file of an accuracy failure is compared with eager.
    """
    from ...backends.capture import foreign_script
    from ...store.index import Index

    Index.check(db)
    confirm = (lambda _: True) if trust else ask
    rows, complete = foreign_script.take(
        db, files, confirm=confirm, stdout=STANDARD_ERROR if json_ else None, **options
    )
    if json_:
        dump([row.to_json() for row in rows])
    if not complete:
        sys.exit(1)
