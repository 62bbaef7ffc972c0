"""`minify ablate`: run a failure under other backends."""

from __future__ import annotations

from typing import Any

import click

from .verbs import IndexCommand, as_json, ask, dump, index_argument, note, sandboxed


@click.command(cls=IndexCommand, short_help="Run a failure under other backends, to find the layer.")
@index_argument(one=True)
@click.option("--backend", "names", multiple=True, metavar="NAME", help="Try this one, too.")
@click.option("--all", "everything", is_flag=True, help="Try all layers, and all other backends that are installed.")
@click.option("--timeout", default=300.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run a capture made elsewhere without asking.")
@sandboxed
@as_json
def ablate(db: str, id_: int, names: tuple[str, ...], timeout: float, json_: bool, **asked: bool) -> None:
    """Run failure ID under other backends: at which layer does it enter?

    The layers are Dynamo, AOTAutograd, its decompositions, and the backend. The first that fails is the answer, and the
    issue report shows it.
    """
    from ..oracle.ablation import ablate
    from .terminal import detail

    def done(row: Any) -> None:
        click.echo(f"{row.backend}: {row.result}", err=True)

    found = ablate(db, id_, backends=names, timeout=timeout, confirm=ask, tell=note, done=done, **asked)
    if json_:
        dump(found.to_json())
    else:
        detail.ablation(found)
