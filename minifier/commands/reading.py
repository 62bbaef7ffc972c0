"""The verbs that show and hand out what an index holds: `list`, `show`, `history`, `repro` and `verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .verbs import FormatName, Problem, as_json, ask, at_terminal, database, dump, write


@click.command("list")
@database
@click.option("--each", is_flag=True, help="A row for each failure, not for each signature.")
@as_json
def list_(db: str, each: bool, json_: bool) -> None:
    """List the failures of DB, those of one signature, which are one bug, in one row."""
    from ...store.index import Index
    from . import console

    with Index.open(db, readonly=True) as index:
        rows = index.captures()
    if json_:
        dump([row.to_json() for row in rows])
    else:
        console.table(rows, db, each=each)


@click.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("--minified", is_flag=True, help="Show the minified graph instead of the captured one.")
@click.option("--graph", is_flag=True, help="Draw the minimal graph, in text.")
@as_json
def show(db: str, id_: int, minified: bool, graph: bool, json_: bool) -> None:
    """Show one failure of DB: what failed, where, with which backend, its graph, and what of it matters."""
    from ...store.index import Index
    from ..reporting import explanation
    from . import console, history_view

    with Index.open(db, readonly=True) as index:
        if graph and not json_:
            console.drawing(index, id_)
            return
        details = console.details(index, id_, minified=minified)
        explained = explanation.stored(index, id_)
    if json_:
        dump({**details, **({} if explained is None else {"explanation": explained.to_json()})})
        return
    console.show(details)
    if explained is not None:
        history_view.explanation(explained)


@click.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("--step", "number", type=click.IntRange(1), metavar="N", help="Show all that step N changed.")
@click.option("--brief", is_flag=True, help="Leave out what the steps changed.")
@as_json
def history(db: str, id_: int, number: int | None, brief: bool, json_: bool) -> None:
    """Show how failure ID was minified: every step with what it changed, and what each pass asked and brought.

    `minify run DB ID --from-step N` goes on from a step.
    """
    from ...store.index import Index
    from ..reducer.history import stored
    from . import history_view

    with Index.open(db, readonly=True) as index:
        index.capture(id_)
        found = stored(index, id_)
        db = index.name
    if found is None:
        raise Problem(f"capture {id_} was not minified yet: minify run {db} {id_}")
    steps = {step.number: step for step in found.steps}
    if number is not None and number not in steps:
        raise Problem(f"there is no step {number}; `minify history {db} {id_}` lists the {len(steps)} there are.")
    if json_:
        dump(found.to_json() if number is None else steps[number].to_json())
    elif number is not None:
        history_view.step(steps[number])
    else:
        history_view.history(found, differences=not brief)


@click.command()
@click.argument("db", metavar="DB")
@click.argument("id_", type=int, metavar="ID")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option(
    "--format",
    "format_",
    type=FormatName(),
    default="script",
    show_default=True,
    help="What to write.",
)
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Fill a Jinja template of your own instead; docs/templates.md lists what it sees.",
)
@click.option("--rename", is_flag=True, help="Give inputs, layers and values neutral names.")
@click.option("--trust", is_flag=True, help="Run a format of a capture made elsewhere without asking.")
@click.option("--force", is_flag=True, help="Overwrite the output; show a script that was not verified.")
@as_json
def repro(
    db: str,
    id_: int,
    output: Path | None,
    format_: str,
    template: Path | None,
    rename: bool,
    trust: bool,
    force: bool,
    json_: bool,
) -> None:
    """Print the verified script of failure ID, or write it to a file.

    A format that runs is run before it is shown; what was not, or did not show the failure, is marked as tentative.
    """
    from ...repro_templates.formats import find
    from ..reporting.export import ExportRequest, NotMinified, export, template_text
    from ..session.options import MinifyOptions
    from ..session.runner import run_pending
    from . import console

    request = ExportRequest(format_, template_text(template), rename, force)
    try:
        made = export(db, id_, request, trust=trust)
    except NotMinified as error:
        if not at_terminal() or not click.confirm(f"{error}\nMinify it now?", err=True):
            raise
        run_pending(db, [id_], MinifyOptions(trust=trust), confirm=ask)
        made = export(db, id_, request, trust=trust)
    text, files, info = made.text, made.files, made.info
    if made.tentative:
        click.echo(f"Tentative: {made.tentative}", err=True)
    if output is not None:
        if output.suffix == ".py" and output.stem in {*sys.stdlib_module_names, "torch"}:
            raise Problem(f"{output.name} would hide the module {output.stem} from the script; choose another name.")
        contents = {output: text.encode()} | {output.with_name(name): data for name, data in files.items()}
        write(contents, force=force)
    elif files and not json_:
        raise Problem(f"this script needs {', '.join(files)} beside it; write both with -o FILE.")
    if json_:
        dump({**info, "tentative": made.tentative, "text": text})
    elif output is None:
        console.code(text, "text" if template else find(format_).language)


@click.command()
@click.argument("db", metavar="DB|FILE")
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100), help="Fresh runs of each script.")
@click.option("--timeout", default=600.0, show_default=True, metavar="S", help="Seconds for one run.")
@click.option("--trust", is_flag=True, help="Run scripts of captures made elsewhere without asking.")
@as_json
def verify(db: str, ids: tuple[int, ...], runs: int, timeout: float, trust: bool, json_: bool) -> None:
    """Run the scripts of DB again: does each still show its failure?

    Or run the script in FILE, which ends in .py: does it show the failure whose signature it names?
    """
    from ..reporting.emit import verify_stored
    from ..reporting.script_file import verify_file
    from . import console

    if db.endswith(".py"):
        if ids:
            raise Problem(f"{db} is one script, it has no failure {ids[0]}.")
        answers = [verify_file(Path(db), runs=runs, timeout=timeout)]
    else:
        answers = verify_stored(db, ids, runs=runs, timeout=timeout, trust=trust, confirm=ask)
    if json_:
        dump(answers)
    else:
        for answer in answers:
            name = answer["id"] if "id" in answer else answer["file"]
            instead = console.plain(f" ({answer['instead']})") if answer["instead"] else ""
            click.echo(f"{name}: {answer['shown']} of {answer['runs']} runs show {answer['signature']}{instead}")
    if any(answer["shown"] == 0 for answer in answers):
        sys.exit(1)
