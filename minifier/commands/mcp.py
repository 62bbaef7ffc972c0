"""`minify mcp`: the tools of an agent, over standard input and output."""

from __future__ import annotations

from pathlib import Path

import click

from .verbs import Problem, database_option


@click.command(short_help="Serve the tools of an agent (Model Context Protocol).")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The directory whose files an agent may name, by default the current one.",
)
@database_option
def mcp(root: Path, db: str) -> None:
    """Serve the tools of an agent over standard input and output, with the Model Context Protocol.

    An agent starts this command. Its tools capture a program, minify, explain, write scripts and comments, verify and
    retest. A path outside the root is refused, and so is a call that would execute a file without consent. Needs the
    extra mcp.
    """
    try:
        from ..agents.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise Problem("minify mcp needs the package mcp: pip install 'fxminify[mcp]'.") from error
    make_server(root, db).run()
