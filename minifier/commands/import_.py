"""`minify import`: capture the failures of the code blocks of an issue, and of PyTorch's own repro scripts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ...store.text import count
from .verbs import STANDARD_ERROR, Problem, as_json, ask, database_option, dump, note


@click.command("import", short_help="Capture the failure in an issue's text or a repro file.")
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
def import_(
    files: tuple[Path, ...],
    db: str,
    trust: bool,
    json_: bool,
    check: bool,
    **options: Any,
) -> None:
    """Capture the failures of an issue's text, or of PyTorch's repro.py, minifier_launcher.py or fx_graph_runnable.py.

    Of a Markdown file (.md, or - for standard input) each Python code block is run as a program, until one fails under
    a backend; if none does, all together. Results are compared with eager.

    A file of PyTorch has a graph but no record of its failure, so it is run once, in a process of its own; crashes and
    hangs are captured, too. A file of an accuracy failure is compared with eager.
    """
    from ...backends.capture import foreign_script, issue_text
    from ...store.index import CaptureInfo, Index

    Index.check(db)
    confirm = (lambda _: True) if trust else ask
    options |= {"confirm": confirm, "stdout": STANDARD_ERROR if json_ else None}
    texts = [path for path in files if is_text(path)]
    if texts and len(files) > 1:
        raise Problem(f"{texts[0]} is the text of an issue: import it alone.")
    tried: list[dict[str, Any]] = []
    rows: list[CaptureInfo] = []
    if texts:
        text, name = read_text(texts[0])
        rows, trials = issue_text.take(db, text, name, tell=lambda trial: note(f"{name}: {trial.text()}"), **options)
        tried = [{"file": name, **trial.to_json()} for trial in trials]
        complete = bool(rows)
        if rows:
            ids = " ".join(str(row.id) for row in rows)
            note(f"captured {count(len(rows), 'failure')}; next: minify run {shlex.quote(db)} {ids}")
        else:
            note(f"no block of {name} fails under a backend here; nothing was captured")
    else:
        rows, complete = foreign_script.take(db, files, check=check, **options)
    if json_:
        dump({"captured": [row.to_json() for row in rows], "tried": tried})
    if not complete:
        sys.exit(1)


def is_text(path: Path) -> bool:
    """Whether ``path`` names the text of an issue, and no program."""
    return str(path) == "-" or path.suffix.lower() in (".md", ".markdown")


def read_text(path: Path) -> tuple[str, str]:
    """Return the text of an issue and its name. Raises `Problem` for a file that cannot be read."""
    if str(path) == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace"), "standard input"
    try:
        return path.read_bytes().decode("utf-8", "replace"), str(path)
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}.") from error
