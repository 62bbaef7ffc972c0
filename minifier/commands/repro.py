"""`minify repro`: print or write the script of a failure."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ...store.text import printable
from .verbs import (
    FormatName,
    IndexCommand,
    Problem,
    as_json,
    at_terminal,
    dump,
    index_argument,
    note,
    sandboxed,
    write,
)


@click.command(cls=IndexCommand, short_help="Print or write a failure as a script, test, issue or notebook.")
@index_argument(one=True)
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
@sandboxed
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
    sandbox: bool,
    force: bool,
    json_: bool,
) -> None:
    """Print the verified script of failure ID, or write it to a file.

    A format that runs is run before it is shown; what was not, or did not show the failure, is marked as tentative.
    """
    from ...repro_templates.formats import find
    from ..printable import shown_json
    from ..reporting.export import ExportRequest, NotMinified, export, template_text
    from ..reporting.privacy_summary import warnings
    from ..session.options import MinifyOptions
    from .run import minify_with_progress
    from .terminal import parts

    request = ExportRequest(format_, template_text(template), rename, force)
    try:
        made = export(db, id_, request, trust=trust, sandbox=sandbox, tell=note)
    except NotMinified as error:
        if not at_terminal() or not click.confirm(f"{error}\nMinify it now?", err=True):
            raise
        minify_with_progress(db, [id_], MinifyOptions(trust=trust, sandbox=sandbox))
        made = export(db, id_, request, trust=trust, sandbox=sandbox, tell=note)
    text, files, info = made.text, made.files, made.info
    name = str(output) if output is not None else f"the {'text' if template else format_}"
    for line in warnings({name: text.encode()}):
        click.echo(f"minify: {line}", err=True)
    if made.tentative:
        click.echo(f"Tentative: {made.tentative}", err=True)
    if output is not None:
        if output.suffix == ".py" and output.stem in {*sys.stdlib_module_names, "torch"}:
            raise Problem(f"{output.name} would hide the module {output.stem} from the script; choose another name.")
        contents = {output: text.encode()} | {output.with_name(name): data for name, data in files.items()}
        write(contents, force=force)
        if format_ == "script" and not template:
            click.echo(f"minify: {output} is written; run it: {run_command(output, made.search_path)}", err=True)
    elif files and not json_:
        raise Problem(f"this script needs {', '.join(files)} beside it; write both with -o FILE.")
    if json_:
        beside = {name: _text(data) for name, data in files.items()}
        about = shown_json({**info, "tentative": made.tentative})
        dump({**about, "text": text, "files": beside}, exact=True)
    elif output is None:
        parts.code(text, "text" if template else find(format_).language)


def _text(data: bytes) -> str | None:
    """Return the text of a file beside a script, None for one with values."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def run_command(script: Path, search_path: Sequence[str]) -> str:
    """The shell command that runs ``script``. ``search_path`` has the modules that the script imports.

    Python finds those beside the script by itself.
    """
    needed = [path for path in search_path if Path(path).resolve() != script.resolve().parent]
    variable = f"PYTHONPATH={shlex.quote(os.pathsep.join(map(_relative, needed)))} " if needed else ""
    return printable(f"{variable}{_python()} {shlex.quote(str(script))}")


def _python() -> str:
    """This Python as a person would type it: ``python`` if that is what a shell finds."""
    found = shutil.which("python")
    is_ours = found is not None and os.path.abspath(found) == os.path.join(sys.prefix, "bin", os.path.basename(found))
    return "python" if is_ours else shlex.quote(_relative(sys.executable))


def _relative(path: str) -> str:
    """``path`` as a person would type it here, if that is shorter."""
    return min(path, os.path.relpath(path), key=len)
