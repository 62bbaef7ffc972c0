"""`minify capture`: run a program and store its backend failures in an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ...store.text import printable
from .verbs import STANDARD_ERROR, Problem, as_json, database_option, dump, note

DEFAULT_CHECK = "first:2"
#: The beginnings of a value of ``--check``.
_SPEC = re.compile(r"first:|every:|strict(,|$)")


class Capture(click.Command):
    """The command `minify capture`.

    ``--check`` may stand alone before PROGRAM: the next word is its value only if it begins like one. Settings that
    are not given come from ``[tool.fxminify]`` in ``pyproject.toml``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ...backends.capture.startup import configured

        try:
            ctx.default_map = {**configured(Path.cwd()), **(ctx.default_map or {})}
        except ValueError as error:
            raise click.UsageError(f"{error}.", ctx) from error
        valued = {o for p in self.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            following = args[index + 1] if index + 1 < len(args) else ""
            if args[index] == "--check" and not _SPEC.match(following):
                args[index] = f"--check={DEFAULT_CHECK}"
            index += 1 + (args[index] in valued)
        return super().parse_args(ctx, args)


class Setting(click.ParamType[Any]):
    """A value of the field of this name of `fxminify.backends.capture.settings.Settings`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ...backends.capture.settings import Settings

        try:
            Settings(**{self.name: value})
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return value


def _is_there(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the path of the program. Raise `click.BadParameter` if it does not exist; the name of a module may not."""
    if not ctx.params.get("module") and not Path(value).exists():
        raise click.BadParameter(f"there is no file {printable(value)}; -m before a name runs a module.", ctx, param)
    return value


def note_misplaced(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Name the options of the command among the arguments of the program, which the command did not get."""
    own = {name for param in ctx.command.params if isinstance(param, click.Option) for name in param.opts}
    if given := [word for word in args if word.partition("=")[0] in own and word.startswith("--")]:
        named = printable(" ".join(given))
        note(f"{named} went to the program: options of minify {ctx.info_name} stand before PROGRAM")


def capture_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options and arguments of a verb that runs a program and captures its failures."""
    options = (
        database_option,
        click.option(
            "--check",
            type=Setting("check"),
            default=False,
            metavar="[SPEC]",
            help="Also compare calls of each graph with eager: the first two, or as SPEC says (first:2,every:1000). "
            "Up to ten times what torch.testing.assert_close allows is let pass, and named at the end. "
            "strict in SPEC: once, and also where tiny changes of the inputs change a result as much "
            "(x % 3 of a large x).",
        ),
        click.option(
            "--tolerance",
            default="",
            type=Setting("tolerance"),
            metavar="DTYPE=T,...",
            help="What may differ, relative to 1 + the value; without it as torch.testing.assert_close.",
        ),
        click.option(
            "--level",
            type=click.Choice(["auto", "dynamo", "aot"]),
            default="auto",
            show_default=True,
            help="Keep a graph as Dynamo made it, or as AOTAutograd did; auto: only where Dynamo's cannot be stored.",
        ),
        click.option(
            "--data",
            type=click.Choice(["auto", "full", "none"]),
            default="auto",
            show_default=True,
            help="The values of tensors to keep: auto keeps 1 GB, and only small ones of compile errors.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="Take a compilation or a call that lasts longer than S seconds as a hang.",
        ),
        click.option("-m", "module", is_flag=True, help="Run a module, as python -m does."),
        click.argument("program", callback=_is_there),
        click.argument("args", nargs=-1, type=click.UNPROCESSED),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    cls=Capture,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a program and store its backend failures.",
)
@as_json
@capture_options
@click.pass_context
def capture(
    ctx: click.Context,
    /,
    db: str,
    timeout: float | None,
    module: bool,
    program: str,
    args: tuple[str, ...],
    json_: bool,
    **settings: Any,
) -> None:
    """Run PROGRAM with ARGS; every backend failure in it becomes a row of the database.

    The program needs no edit. Its output and exit code are its own; a line at the end says what was captured, or what
    was watched where nothing failed. FILE may also be the URL of a database, or the address of a `minify serve`. With
    --json the output of the program goes to standard error.
    """
    from ...backends.capture import places, supervise
    from ...backends.capture.settings import Settings
    from ...store.index.changes import Changes
    from ...store.spool.spool import is_server

    places.check(db)
    run = partial(supervise.run, db, [program, *args], Settings(**settings), module=module, timeout=timeout)
    if not json_:
        code = run()
        note_misplaced(ctx, args)
        sys.exit(code)
    if is_server(db):
        raise Problem(f"--json lists the failures of an index, and {db} is a server: capture without --json.")
    changes = Changes(db)
    code = run(stdout=STANDARD_ERROR)
    dump({"exit_code": code, "captured": [row.to_json() for row in changes.rows()]})
    sys.exit(code)
