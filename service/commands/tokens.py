"""`minify tokens`: who may ask `minify serve` for what."""

from __future__ import annotations

import click

from ...minifier.commands.verbs import Problem, as_json, dump, index_argument

#: The scopes of tokens, as in `fxminify.store.index.tokens.TokenScope`, which takes long to import.
SCOPES = ("submit", "run", "read", "triage", "work", "admin")


@click.command(short_help="List, make or revoke the tokens of a server.")
@index_argument()
@click.option("--new", metavar="NAME", help="Make a token and print it: it is stored nowhere.")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="What the new token may do.")
@click.option("--revoke", type=int, metavar="ID", help="End this token.")
@as_json
def tokens(db: str, new: str | None, scopes: tuple[str, ...], revoke: int | None, json_: bool) -> None:
    """List the tokens of DB, make one or revoke one.

    \b
    submit  send captures (FXMINIFY_TOKEN)
    run     have workers run what it sends: the server signs it
            (minify work --trust-key)
    read    see bugs, captures, scripts, tasks and events
    triage  queue a bug again, ignore, merge, split and label bugs
    work    cancel and retry tasks
    admin   all of this but run

    \b
    A token is proved with the key of the user who makes it, so make it as the
    user of the server.
    """
    from ...minifier.commands.terminal import listings
    from ...store.index import Index, TokenScope

    if new is not None and revoke is not None:
        raise Problem("make a token or revoke one, not both at once.")
    if bool(scopes) != (new is not None):
        raise Problem("--new NAME takes one --scope or more, which say what the token may do.")
    if new is None and revoke is None:
        with Index.open(db, readonly=True) as index:
            rows = index.tokens.find()
        if json_:
            dump([row.to_json() for row in rows])
        else:
            listings.tokens(rows, db)
        return
    with Index.open(db, create=new is not None) as index:
        if new is not None:
            info, text = index.tokens.new(new, [TokenScope(scope) for scope in scopes])
            if json_:
                dump({**info.to_json(), "token": text}, exact=True)
            else:
                click.echo(text)
        elif revoke is not None:
            info = index.tokens.revoke(revoke)
            if json_:
                dump(info.to_json())
            else:
                click.echo(f"Token {revoke} is revoked.")
