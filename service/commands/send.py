"""`minify send`: send what programs of this user captured for a server, and could not send yet."""

from __future__ import annotations

from dataclasses import asdict

import click

from ...minifier.commands.verbs import Problem, as_json, dump


@click.command(short_help="Send captures that wait in the spool to their server.")
@click.argument("server", required=False, metavar="[URL]")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0,
    metavar="S",
    help="Try for S seconds more where it does not answer.",
)
@click.option("--again", is_flag=True, help="Also send what the server did not want before.")
@as_json
def send(server: str | None, wait: float, again: bool, json_: bool) -> None:
    """Send captures that wait in the spool of this user to the server at URL; without it, to each one's own.

    A program that is captured with FXMINIFY_DB=URL never waits for the server. A process in the background sends
    the captures; this command does so now, for example at the end of a job whose machine goes away. FXMINIFY_TOKEN
    is the token of the server at URL, or, without URL, of the server that FXMINIFY_DB names. No other server gets
    it. Exit code 1: a capture still waits, or the server refused it.
    """
    from ...store.errors import without_password
    from ...store.spool.sender import CannotSend, Sender, Sending, token_for
    from ...store.spool.spool import Spool, is_server, spools
    from ...store.text import count

    if server is not None and not is_server(server):
        raise Problem(f"{server} is no address of a server: give http://HOST:PORT.")
    found = spools() if server is None else [Spool(server)]
    answers = []
    for spool in found:
        if again:
            spool.take_back()
        try:
            done = Sender(spool, token_for(spool.server, named=server)).run(wait)
        except CannotSend as error:
            done = Sending(left=len(spool.items()), why=str(error))
        answers.append({"server": without_password(spool.server), **asdict(done), "unwanted": len(spool.refused())})
        if not json_:
            place = answers[-1]["server"]
            click.echo(f"{place}: {count(done.sent, 'capture')} sent, {done.counted} counted, {done.left} left.")
            for sentence in dict.fromkeys(done.refused):
                click.echo(f"not wanted, and kept in {spool.folder / 'refused'}: {sentence}", err=True)
            if done.left and done.why:
                click.echo(done.why, err=True)
    if json_:
        dump(answers)
    elif not found:
        click.echo("Nothing waits.")
    if any(answer["left"] or answer["refused"] for answer in answers):
        raise click.exceptions.Exit(1)
