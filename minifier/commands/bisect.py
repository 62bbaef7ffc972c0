"""`minify bisect`: find the graphs, and the nodes of them, that must be compiled for a program to fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from .verbs import as_json, database_option, dump, note, quietly

#: The calls that the last run compares with eager.
_CHECK = "first:20,every:20"


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Find the graph that must be compiled for a program to fail.",
)
@click.option("--oracle", "oracle_name", default="", metavar="MODULE:FUNCTION",
              help="Judge a run by this function, instead of by its exit code.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True,
              help="Runs that must pass before the program passes.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="A run that takes longer than S seconds is ended.")  # fmt: skip
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The file of answers; by default DB with the ending .bisect.jsonl.")  # fmt: skip
@click.option("--again", is_flag=True, help="Start anew instead of going on with the answers in that file.")
@database_option
@quietly
@as_json
@click.option("-m", "module", is_flag=True, help="Run a module, as python -m does.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def bisect(
    db: str,
    oracle_name: str,
    runs: int,
    timeout: float | None,
    log: Path | None,
    again: bool,
    quiet: bool,
    json_: bool,
    module: bool,
    program: str,
    args: tuple[str, ...],
) -> None:
    """Find out which compiled graph makes PROGRAM fail, where the graph itself shows nothing.

    PROGRAM fails by its exit code: a test that fails, an assertion that the loss goes down. It is run again and again,
    each time with fewer graphs compiled, and then with fewer nodes of the graph that is left; eager runs the rest. A
    last run compares what is left with eager: a difference is stored, and minified as any other failure.

    Exit code 125 of PROGRAM, or None from FUNCTION, says that a run cannot tell. FUNCTION gets a run with code, stdout
    and stderr, and returns whether it failed. An interrupted bisection goes on where it was.
    """
    from ...backends.capture import places, supervise
    from ...backends.capture.settings import Settings
    from ...store.index.changes import Changes
    from ..bisection import program as programs
    from ..bisection.bisect import BisectOptions
    from ..bisection.bisect import bisect as search
    from .terminal import bisections

    places.check(db)
    words = programs.arguments([program, *args], module=module)
    oracle = programs.oracle_named(oracle_name) if oracle_name else None
    file = log or (Path("bisect.jsonl") if "://" in db else Path(db).with_suffix(".bisect.jsonl"))
    options = BisectOptions(tuple(words), file, oracle, oracle_name, runs, timeout, again)
    found = search(options, bisections.BisectProgress(quiet=quiet))
    rows = []
    if found.found:
        changes = Changes(db)
        if not quiet:
            note("one more run compares what is left with eager")
        with open(os.devnull, "w") as nowhere:
            settings, output = Settings(check=_CHECK), nowhere.fileno()
            supervise.run(db, words, settings, timeout=timeout, stdout=output, selection=found.selection)
        rows = changes.rows()
    if json_:
        dump({**found.to_json(), "log": str(file), "captured": [row.to_json() for row in rows]})
    else:
        bisections.result(found)
    sys.exit(0 if found.found else 1)
