"""`minify verify`: run stored scripts, or the script in a file, again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .verbs import UNKNOWN, IndexCommand, Problem, as_json, ask, dump, index_argument, note, sandboxed


@click.command(cls=IndexCommand, short_help="Run the scripts again: does each still show its failure?")
@index_argument(ids=True, metavar="[DB|FILE]")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100), help="Fresh runs of each script.")
@click.option("--timeout", default=600.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run scripts of captures made elsewhere without asking.")
@sandboxed
@as_json
def verify(db: str, ids: tuple[int, ...], runs: int, timeout: float, trust: bool, sandbox: bool, json_: bool) -> None:
    """Run the scripts of DB again: does each still show its failure?

    Or run the script in FILE, which ends in .py: does it show the failure whose signature it names?

    Exit codes: 0 every script shows its failure; 1 one does not; 3 one cannot run here, for example because its
    backend is missing or it is not trusted.
    """
    from ..printable import shown
    from ..reporting.emit import verify_stored
    from ..reporting.script_file import verify_file

    if db.endswith(".py"):
        if ids:
            raise Problem(f"{db} is one script, it has no failure {ids[0]}.")
        answers = [verify_file(Path(db), runs=runs, timeout=timeout, sandbox=sandbox)]
    else:
        answers = verify_stored(
            db, ids, runs=runs, timeout=timeout, trust=trust, sandbox=sandbox, confirm=ask, tell=note
        )
    if json_:
        dump(answers)
    else:
        for answer in answers:
            name = answer["id"] if "id" in answer else answer["file"]
            if answer["cannot_run"]:
                click.echo(f"{name}: cannot run: {shown(answer['cannot_run'])}")
                continue
            mismatch = shown(f" ({answer['mismatch']})") if answer["mismatch"] else ""
            click.echo(f"{name}: {answer['shown']} of {answer['runs']} runs show {answer['signature']}{mismatch}")
    if any(answer["shown"] == 0 and not answer["cannot_run"] for answer in answers):
        sys.exit(1)
    if any(answer["cannot_run"] for answer in answers):
        sys.exit(UNKNOWN)
