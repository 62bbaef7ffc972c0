"""Shared parts of all verbs of `minify`: their order, errors and exit codes, arguments and answers.

Nothing here imports torch, and `minify --help` loads nothing else of this floor.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ...backends.capture.startup import database

#: The exit code if the answer is unknown, because something cannot run here.
UNKNOWN = 3
#: The words of a command in the `meta` of its context.
_TYPED = "fxminify.typed"


class Verbs(click.Group):
    """A group in the order its verbs were added; our errors become exit code 2, Ctrl-C 130. Other signals that end a
    process do what Ctrl-C does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups: dict[str, list[str]] = {}

    def add_group(self, heading: str, verbs: Iterable[click.Command]) -> None:
        """Add verbs that stand under ``heading`` in the help."""
        self.groups[heading] = []
        for verb in verbs:
            self.add_command(verb)
            self.groups[heading].append(str(verb.name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, with one line for each verb. All sections have the same columns."""
        if not self.groups:
            super().format_commands(ctx, formatter)
            return
        width = max(len(name) for name in self.commands)
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), self.commands[name].short_help or "") for name in names])

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run a verb. With ``--json`` an error is JSON on standard output, too, with the same exit code."""
        typed = list(sys.argv[1:] if args is None else args)
        if not self._asks_for_json(typed):
            return super().main(args, *more, **options)
        try:
            sys.exit(super().main(args, *more, **{**options, "standalone_mode": False}) or 0)
        except click.ClickException as error:
            error.show()  # for a person, on standard error
            message, code = error.format_message(), error.exit_code
        except Exception as error:  # noqa: BLE001  a defect: the traceback is for people, the JSON for the caller
            traceback.print_exc()
            message, code = f"{type(error).__name__}: {error}; this is a defect of fxminify: `minify doctor`", 2
        self.print_error(message, typed)
        sys.exit(code)

    def print_error(self, message: str, typed: Sequence[str]) -> None:
        """Print an error as JSON: see `fxminify.minifier.next_step`."""
        from .. import next_step
        from ..printable import shown_json
        from ..printable import typed as known

        with known([*typed, database()]):
            click.echo(json.dumps(shown_json(next_step.document(message, typed, self.commands))))

    def _asks_for_json(self, typed: Sequence[str]) -> bool:
        """Whether ``--json`` is an option of the verb, and no word of a program that it runs."""
        verb = next((word for word in typed if not word.startswith("-")), "")
        command = self.commands.get(verb)
        words = list(typed[: typed.index("--")] if "--" in typed else typed)
        if command is not None and not command.context_settings.get("allow_interspersed_args", True):
            words = _before_program(command, words[words.index(verb) + 1 :])
        return "--json" in words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from ..printable import typed

        with typed([*ctx.meta[_TYPED], database()]):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            with _ended_like_ctrl_c():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as interrupt:
            number = interrupt.number if isinstance(interrupt, _Ended) else signal.SIGINT
            click.echo("Interrupted.", err=True)
            if self._asks_for_json(ctx.meta[_TYPED]):
                self.print_error("interrupted; run the same command again, it goes on where it can", ctx.meta[_TYPED])
            raise click.exceptions.Exit(128 + number) from interrupt
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if isinstance(error, _ours()):
                raise Problem(str(error)) from error
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Problem(_full(error)) from error
            raise


def _before_program(command: click.Command, words: Sequence[str]) -> list[str]:
    """Return the words that are options of a verb which runs a program: those before the program."""
    valued = {o for p in command.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif not word.startswith("-"):
            return list(words[:place])
        else:
            skip = word in valued - {"--check"}
    return list(words)


def _full(error: OSError) -> str:
    """Return advice for a full disk."""
    folder = os.path.dirname(str(error.filename)) if error.filename else tempfile.gettempdir()
    return (
        f"no space is left in {folder}. Free some, or name another directory for temporary files (TMPDIR), "
        "and run the same command again: what is stored stays."
    )


class _Ended(KeyboardInterrupt):
    """A signal that ends a process, and is no Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Raise SIGTERM and SIGHUP as `_Ended` inside the block, unless they are ignored or handled already."""

    def end(number: int, frame: object) -> None:
        raise _Ended(number)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _ours() -> tuple[type[Exception], ...]:
    """The errors whose message is for the user. They are imported where there is one: that takes as long as a list."""
    from ...backends.provenance.spec import InvalidSpec
    from ...backends.running.confinement import NoConfinement
    from ...store.errors import StoreError
    from ..reducer.shrinker import PassFailed

    return StoreError, InvalidSpec, PassFailed, NoConfinement


class FormatName(click.types.StringParamType):
    """The name of a format: ours, or one of an installed package. The table is loaded when it is needed."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ...repro_templates.formats import UnknownFormat, find

        try:
            return find(value).name
        except UnknownFormat as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        from ...repro_templates.formats import formats

        return f"[{'|'.join(formats())}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ...repro_templates.formats import formats

        return [CompletionItem(name) for name in formats() if name.startswith(incomplete)]


class Problem(click.ClickException):
    """A problem, in one sentence with the next command to type."""

    exit_code = 2


class IndexCommand(click.Command):
    """A command with the arguments of `index_argument`. DB is the usual one where the first argument is a number and no
    file has that name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        given = ctx.params
        if str(given["db"]).isdecimal() and not Path(given["db"]).exists():
            first = int(given["db"])
            if "ids" in given:
                given |= {"db": database(), "ids": (first, *given["ids"])}
            elif "id_" in given and given["id_"] is None:
                given |= {"db": database(), "id_": first}
        if "id_" in given and given["id_"] is None and not ctx.resilient_parsing:
            raise click.UsageError("Missing argument 'ID': which failure? `minify list` shows them.", ctx)
        return rest


def index_argument(*, ids: bool = False, one: bool = False, metavar: str = "[DB]") -> Callable[..., Any]:
    """The argument ``DB``, a path or a database URL, and the IDs of failures in it, or the ID of one.

    Without it DB is what ``FXMINIFY_DB`` names, or ``repro.db``.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        if ids:
            command = click.argument("ids", nargs=-1, type=int, metavar="[ID]...")(command)
        if one:
            command = click.argument("id_", required=False, type=int, metavar="ID")(command)
        return click.argument("db", default=database, metavar=metavar)(command)

    return decorate


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option ``--db`` of verbs that store failures."""
    return click.option(
        "--db", default=database, show_default="$FXMINIFY_DB or repro.db", metavar="FILE",
        help="Where failures are stored.",
    )(command)  # fmt: skip


def as_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``--json`` flag of every verb that prints."""
    return click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")(command)


#: With ``--json`` the output of a program goes to this file descriptor.
STANDARD_ERROR = 2


def sandboxed(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``--sandbox`` flag of every verb that runs what captures execute."""
    text = "Run what a capture executes without network and without your files."
    return click.option("--sandbox", is_flag=True, help=text)(command)


def repeated(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``--replays`` and ``--runs`` of verbs that minify."""
    times = click.IntRange(1, 100)
    text = "Runs of a script, each in a process of its own."
    command = click.option("--runs", default=3, show_default=True, type=times, help=text)(command)
    return click.option("--replays", default=3, show_default=True, type=times, help="Replays before a search.")(command)


def quietly(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``-q`` flag of verbs that tell of their progress."""
    return click.option("-q", "--quiet", is_flag=True, help="Tell no progress, only the end.")(command)


def verbosely(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ``-v`` flag of verbs that minify."""
    return click.option("-v", "--verbose", is_flag=True, help="Tell every query and every step.")(command)


def dump(value: Any, *, exact: bool = False) -> None:
    """Print JSON, without what is private in its texts unless it is ``exact``."""
    from ..printable import shown_json

    text = json.dumps(value, indent=2, default=str)
    click.echo(text if exact else json.dumps(shown_json(json.loads(text)), indent=2))


def at_terminal() -> bool:
    """Return whether a person can answer questions. A notebook gives ``!minify`` a terminal that is not shown."""
    return sys.stdin.isatty() and "JPY_PARENT_PID" not in os.environ


def ask(question: str) -> bool:
    """Ask at the terminal; without one the answer is no."""
    if not at_terminal():
        click.echo(question, err=True)
        click.echo("Not asked: there is no terminal to answer at. Add --trust to run it.", err=True)
        return False
    return click.confirm(question, err=True)


def note(sentence: str) -> None:
    """Print a sentence for the person at the terminal."""
    click.echo(f"minify: {sentence}", err=True)


def write(contents: Mapping[Path, bytes], *, force: bool = False) -> None:
    """Write files that a person asked for; the first is the one that was named. No link is followed.

    None is written where one of them is there already, unless ``force``; what lies beside the first may be there with
    the same content.
    """
    from ...store import outputs

    named = next(iter(contents))
    there = [path for path in contents if os.path.lexists(path)]
    same = [path for path in there if path != named and _has(path, contents[path])]
    if not force and (taken := [path for path in there if path not in same]):
        raise Problem(f"{taken[0]} exists; add --force to overwrite it.")
    for path, content in contents.items():
        if path in same:
            continue
        try:
            outputs.write(path, content, force=force)
        except FileExistsError:
            raise Problem(f"{path} exists; add --force to overwrite it.") from None
        except OSError as error:
            raise Problem(f"cannot write {path}: {error.strerror}.") from error


def _has(path: Path, content: bytes) -> bool:
    """Whether a file is at ``path``, and no link, with this content."""
    return not path.is_symlink() and path.is_file() and path.read_bytes() == content
