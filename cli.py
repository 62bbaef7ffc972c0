"""The ``minify`` command: one short function a verb, no work of its own.

Exit codes, the same for every verb: 0 done, 1 done but the answer is no (a capture was not minified to a verified
script, a script no longer shows its bug), 2 an error that the message explains, 130 interrupted. ``capture`` returns
the exit code of the program it ran.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click

from . import __version__
from .minifier.verbs import DEFAULT_DB, Problem, Verbs, as_json, ask, database, dump

DEFAULT_CHECK = "first:2"


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="minify")
def main() -> None:
    """Turn a torch.compile backend failure into a verified, minimal, standalone script.

    \b
    minify capture train.py --epochs 1    run a program; its failures land in repro.db
    minify run repro.db                   minify every pending failure
    minify repro repro.db 3 -o repro.py   write the script of failure 3
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal has no character for becomes "?"
            stream.reconfigure(errors="replace")


class Capture(click.Command):
    """``--check`` may stand alone before PROGRAM: what follows it is its value only if that begins like one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = {o for p in self.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            following = args[index + 1] if index + 1 < len(args) else ""
            if args[index] == "--check" and not following.startswith(("first:", "every:")):
                args[index] = f"--check={DEFAULT_CHECK}"
            index += 1 + (args[index] in valued)
        return super().parse_args(ctx, args)


class Setting(click.ParamType[Any]):
    """A value of the field of this name of `fxminify.backends.settings.Settings`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from .backends.settings import Settings

        try:
            Settings(**{self.name: value})
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return value


@main.command(cls=Capture, context_settings={"allow_interspersed_args": False})
@click.option("--db", default=DEFAULT_DB, show_default=True, metavar="FILE", help="Where failures are stored.")
@click.option("--check", type=Setting("check"), default=False, metavar="[SPEC]",
              help="Also compare calls of each graph with eager: the first two, or as SPEC says (first:2,every:1000).")
@click.option("--tolerance", default="", type=Setting("tolerance"), metavar="DTYPE=T,...",
              help="What may differ, relative to 1 + the value; without it as torch.testing.assert_close.")
@click.option("--level", type=click.Choice(["auto", "dynamo", "aot"]), default="auto", show_default=True,
              help="Keep a graph as Dynamo made it, or as AOTAutograd did; auto: only where Dynamo's cannot be stored.")
@click.option(
    "--data",
    type=click.Choice(["auto", "full", "none"]),
    default="auto",
    show_default=True,
    help="Which values of tensors to keep; auto leaves out those of compile errors, shapes and ranges stay.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Take a compilation or a call that lasts longer than S seconds as a hang.",
)
@click.option("-m", "module", is_flag=True, help="Run a module, as python -m does.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def capture(db: str, timeout: float | None, module: bool, program: str, args: tuple[str, ...], **settings: Any) -> None:
    """Run PROGRAM with ARGS; every backend failure in it becomes a row of the database.

    The program needs no edit. Its output and exit code are its own.
    """
    from .backends import supervise
    from .backends.settings import Settings
    from .store.index import Index

    Index.check(db)
    sys.exit(supervise.run(db, [program, *args], Settings(**settings), module=module, timeout=timeout))


@main.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--db", default=DEFAULT_DB, show_default=True, metavar="FILE", help="Where failures are stored.")
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import MODULE first: it registers the backend, or operators. May be given again.",
)
@click.option("--backend", metavar="NAME", help="Use this backend instead of the one the file names.")
@click.option("--check", is_flag=True, help="Also compare with eager; done where the file is about accuracy.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Take a compilation or a call that lasts longer than S seconds as a hang.",
)
@click.option("--trust", is_flag=True, help="Run the files without asking.")
@as_json
def import_(files: tuple[Path, ...], db: str, trust: bool, json_: bool, **options: Any) -> None:
    """Capture the failures of PyTorch's repro.py, minifier_launcher.py or fx_graph_runnable.py.

    Such a file has a graph but no record of its failure, so it is run once, in a process of its own; crashes and
    hangs are captured, too. A file of an accuracy failure is compared with eager.
    """
    from .backends import foreign_script
    from .store.index import Index

    Index.check(db)
    confirm = (lambda _: True) if trust else ask
    rows, complete = foreign_script.take(db, files, confirm=confirm, **options)
    if json_:
        dump([row.to_json() for row in rows])
    if not complete:
        sys.exit(1)


@main.command()
@database
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("-j", "--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Workers at a time.")
@click.option(
    "--match",
    type=click.Choice(["exact", "origin", "any"]),
    default="exact",
    show_default=True,
    help="How much of the signature must agree for a failure to be the same one.",
)
@click.option("--error-regex", metavar="REGEX", help="A failure is the same one when its text matches REGEX.")
@click.option("--replays", default=3, show_default=True, type=click.IntRange(1, 100), help="Replays before a search.")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100), help="Fresh runs of a script.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for one capture.")
@click.option("--max-queries", type=click.IntRange(1), help="Oracle calls for one capture.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds for one oracle call; by default derived from the replays.",
)
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Memory cap of a worker.")
@click.option("--embed-data", is_flag=True, help="Keep input data beside the script where no seed reproduces.")
@click.option("--trust", is_flag=True, help="Run captures made elsewhere without asking.")
@click.option("--again", is_flag=True, help="Minify captures that were already done, too.")
@as_json
def run(db: str, ids: tuple[int, ...], json_: bool, again: bool, **options: Any) -> None:
    """Minify every pending failure of DB, or those with the given IDs.

    Interrupted runs resume where they stopped: no question is put to the backend twice.
    """
    from .minifier.options import Options
    from .minifier.runner import run_pending

    rows = run_pending(db, ids, Options(**options), again=again, quiet=json_, confirm=ask)
    if json_:
        dump([row.to_json() for row in rows])
    if any(row.state != "verified" for row in rows):
        sys.exit(1)


@main.command("list")
@database
@as_json
def list_(db: str, json_: bool) -> None:
    """List the failures of DB."""
    from .minifier import console
    from .store.index import Index

    with Index.open(db, readonly=True) as index:
        rows = index.captures()
    if json_:
        dump([row.to_json() for row in rows])
    else:
        console.table(rows, db)


@main.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("--minified", is_flag=True, help="Show the minified graph instead of the captured one.")
@as_json
def show(db: str, id_: int, minified: bool, json_: bool) -> None:
    """Show one failure of DB: what failed, where, with which backend, and its graph."""
    from .minifier import console
    from .store.index import Index

    with Index.open(db, readonly=True) as index:
        details = console.details(index, id_, minified=minified)
    if json_:
        dump(details)
    else:
        console.show(details)


@main.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["script", "pytest", "issue", "bisect"]),
    default="script",
    show_default=True,
    help="What to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the output; show a script that was not verified.")
@as_json
def repro(db: str, id_: int, output: Path | None, format_: str, force: bool, json_: bool) -> None:
    """Print the verified script of failure ID, or write it to a file."""
    from .minifier.emit import stored_repro
    from .store.index import Index

    with Index.open(db, readonly=True) as index:
        text, files, info = stored_repro(index, id_, format_, unverified=force)
    if output is not None:
        if output.suffix == ".py" and output.stem in {*sys.stdlib_module_names, "torch"}:
            raise Problem(f"{output.name} would hide the module {output.stem} from the script; choose another name.")
        contents = {output: text.encode()} | {output.with_name(name): data for name, data in files.items()}
        for path, content in contents.items():
            if path.exists() and not force and not (path != output and path.read_bytes() == content):
                raise Problem(f"{path} exists; add --force to overwrite it.")
        try:
            for path, content in contents.items():
                path.write_bytes(content)
        except OSError as error:
            raise Problem(f"cannot write {path}: {error.strerror}.") from error
    elif files and not json_:
        raise Problem(f"this script needs {', '.join(files)} beside it; write both with -o FILE.")
    if json_:
        dump({**info, "text": text})
    elif output is None:
        click.echo(text, nl=False)


@main.command()
@click.argument("db", metavar="DB")
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100), help="Fresh runs of each script.")
@click.option("--timeout", default=600.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run scripts of captures made elsewhere without asking.")
@as_json
def verify(db: str, ids: tuple[int, ...], runs: int, timeout: float, trust: bool, json_: bool) -> None:
    """Run the scripts of DB again: does each still show its failure?"""
    from .minifier.emit import verify_stored

    answers = verify_stored(db, ids, runs=runs, timeout=timeout, trust=trust, confirm=ask)
    if json_:
        dump(answers)
    else:
        for answer in answers:
            click.echo(f"{answer['id']}: {answer['shown']} of {answer['runs']} runs show {answer['signature']}")
    if any(answer["shown"] == 0 for answer in answers):
        sys.exit(1)


@main.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("--backend", "names", multiple=True, metavar="NAME", help="Try this one too, instead of all installed.")
@click.option("--timeout", default=300.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run a capture made elsewhere without asking.")
@as_json
def ablate(db: str, id_: int, names: tuple[str, ...], timeout: float, trust: bool, json_: bool) -> None:
    """Run failure ID under other backends: at which layer does it enter?

    The layers are Dynamo, AOTAutograd, its decompositions, and the backend. The issue report shows the answer.
    """
    from .minifier import console
    from .minifier.ablation import ablate

    def done(row: Any) -> None:
        click.echo(f"{row.backend}: {row.result}", err=True)

    found = ablate(db, id_, backends=names, timeout=timeout, trust=trust, confirm=ask, done=done)
    if json_:
        dump(found.to_json())
    else:
        console.ablation(found)


@main.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--test", is_flag=True, help="Compile a small module with each, forward and backward, in a process each.")
@as_json
def backends(names: tuple[str, ...], test: bool, json_: bool) -> None:
    """List the backends torch.compile knows here: where each comes from, what it needs, whether it works.

    With NAMEs only these.
    """
    from .backends import catalog
    from .minifier import console

    rows = catalog.listing()
    if unknown := set(names) - {row["name"] for row in rows}:
        raise Problem(f"no backend is registered as {min(unknown)!r}; `minify backends` lists those that are.")
    rows = [row for row in rows if not names or row["name"] in names]
    if test:
        catalog.try_each(rows, done=lambda row: click.echo(f"{row['name']}: {row['test']}", err=True))
    if json_:
        dump(rows)
    else:
        console.backends(rows)


@main.command()
@as_json
def passes(json_: bool) -> None:
    """List the passes of the minifier: what each removes, and why that keeps the failure."""
    from .minifier import console
    from .minifier.passes import listing

    rows = listing()
    if json_:
        dump(rows)
    else:
        console.rows(rows)


@main.command()
@click.option("--synthetic", is_flag=True, help="Plant a failure and take it through capture, run and verify.")
@as_json
def doctor(synthetic: bool, json_: bool) -> None:
    """Check this installation."""
    from .minifier import console
    from .minifier.doctor import examine

    rows = examine(synthetic=synthetic)
    if json_:
        dump(rows)
    else:
        console.rows(rows)
    if any(row["ok"] is False for row in rows):
        sys.exit(1)
