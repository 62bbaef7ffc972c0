"""``%load_ext fxminify``: capture in a notebook, and the verbs of `minify` as the magic ``%minify``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...backends.capture.startup import configured, database
from ...store.errors import without_password
from .report import report
from .run import run
from .verbs import IndexCommand, Verbs

if TYPE_CHECKING:
    from ..session.results import MinifyResults


def load(shell: Any, verbs: Sequence[click.Command]) -> None:
    """Capture the failures of every backend in this kernel, and offer ``%minify`` with ``verbs``."""
    from ...backends.capture.hook import install

    db = database()
    install(db, **configured(Path.cwd()))
    shell.register_magic_function(magic(verbs), "line", "minify")
    click.echo(f"Failures of torch.compile backends go to {without_password(db)}; %minify makes scripts of them.")


def unload(shell: Any) -> None:
    from ...backends.capture.hook import uninstall

    uninstall()
    shell.magics_manager.magics["line"].pop("minify", None)


def magic(verbs: Sequence[click.Command]) -> Callable[[str], Any]:
    """``%minify``: minify what was captured and show the scripts. ``%minify VERB ...``: one of the ``verbs``."""
    group = Verbs(name="%minify", commands={verb.name: verb for verb in (*verbs, *_HERE) if verb.name})

    def minify(line: str) -> Any:
        try:
            shown = group.main(shlex.split(line) or ["run"], prog_name="%minify", standalone_mode=False)
        except click.ClickException as error:
            error.show()
        except SystemExit:
            return None  # the verb has said what is wrong
        else:
            return None if isinstance(shown, int) else shown  # an exit code
        return None

    return minify


def _run(db: str, ids: tuple[int, ...], **options: Any) -> MinifyResults:
    """`minify run`, whose results the notebook shows."""
    from ..session.minify import minify as minify_captures
    from ..session.options import MinifyOptions

    return minify_captures(db, ids, options=MinifyOptions(**{**options, "jobs": options["jobs"] or 0}))


def _report(db: str, ids: tuple[int, ...]) -> Any:
    """The page of `minify report`, in a frame of the notebook."""
    from IPython.display import HTML

    from ...repro_templates.report.html import render
    from ...store.index import Index
    from ..reporting.overview import overview

    with Index.open(db, readonly=True) as index:
        page = render(overview(index, ids))
    frame = f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" style="width: 100%; height: 40em"></iframe>'
    return HTML(f"<div>{frame}</div>")


#: Options about what a terminal shows.
_OF_TERMINALS = ("json_", "quiet", "verbose")
_HERE = (
    IndexCommand("run", callback=_run, params=[p for p in run.params if p.name not in _OF_TERMINALS], help=run.help),
    IndexCommand("report", callback=_report, params=[p for p in report.params if p.name in ("db", "ids")],
                 help="Show the page about the failures of DB, or those with the given IDs."),
)  # fmt: skip
