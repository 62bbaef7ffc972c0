"""`minify serve`: take captures from other machines, and show over HTTP what is in an index."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import click

from ...minifier.commands.verbs import Problem, index_argument
from .notify import notified, targets

_MB = 1 << 20


@click.command(short_help="Take captures over HTTP and show the bugs in a browser.")
@index_argument()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0 for all.")
@click.option("--port", default=8437, show_default=True, type=click.IntRange(0, 65535), help="0 for any that is free.")
@click.option("--tokens", is_flag=True, help="Ask programs of this machine for tokens, too, as behind a proxy.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="The certificate, for https.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option(
    "--max-upload", default=1024, show_default=True, type=click.IntRange(1), metavar="MB", help="The largest capture."
)
@click.option(
    "--min-free",
    default=512,
    show_default=True,
    type=click.IntRange(0),
    metavar="MB",
    help="Take nothing where less space is left; warn below four times as much.",
)
@click.option(
    "--work", type=click.IntRange(0, 1024), default=0, metavar="N", help="Also minify, N tasks at a time, as a worker."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: an object in a line for each event, on stderr; of a worker on stdout.",
)
@notified
def serve(
    db: str,
    host: str,
    port: int,
    tokens: bool,
    tls_cert: str | None,
    tls_key: str | None,
    max_upload: int,
    min_free: int,
    work: int,
    log_format: str,
    notify: Path | None,
) -> None:
    """Take captures into DB over HTTP, and show its bugs as pages for a browser.

    Other machines send captures with FXMINIFY_DB=http://HOST:PORT. It needs a token (`minify tokens`) but for programs
    of this machine, and runs nothing of a capture: `minify work` does, which --work N starts beside it.
    """
    try:
        from ..http.serve import CannotListen
        from ..http.serve import serve as serving
        from ..http.service import ServeOptions
    except ModuleNotFoundError as error:
        raise Problem(f"{error.name} is not installed: pip install 'fxminify[service]'") from error
    if (tls_cert is None) != (tls_key is None):
        raise Problem("--tls-cert and --tls-key are given together.")
    told, page = targets(notify)
    options = ServeOptions(
        host=host, port=port, certificate=tls_cert or "", key=tls_key or "", max_upload=max_upload * _MB,
        low=4 * min_free * _MB, least=min_free * _MB, tokens=tokens,
        work=work, as_json=log_format == "json", targets=tuple(told), page=page,
    )  # fmt: skip
    try:
        serving(db, options, _json_log() if options.as_json else lambda sentence: click.echo(sentence, err=True))
    except CannotListen as error:
        raise Problem(str(error)) from error


def _json_log() -> Callable[[str], None]:
    """Make every log of this process JSON. Returns what writes a sentence to it."""
    from ..workers.log import json_lines

    json_lines()
    log = logging.getLogger("fxminify")
    return lambda sentence: log.info("%s", sentence, extra={"event": "serve"})
