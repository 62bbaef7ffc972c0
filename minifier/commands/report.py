"""`minify report`: one HTML page about the failures of an index, or one failure for its maintainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .verbs import IndexCommand, Problem, as_json, dump, index_argument, note, sandboxed, write


@click.command(cls=IndexCommand, short_help="Write an HTML page, or a zip with every format of a failure.")
@index_argument(ids=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The HTML file; by default DB.html."
)
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.zip",
    help="Write every format of failure ID, what lies beside them and a manifest into one zip.",
)
@click.option("--to", type=click.Choice(["gh"]), help="Print the command that files failure ID; runs nothing.")
@click.option("--what-is-inside", "inside", is_flag=True,
              help="List what would leave this machine with failure ID, or with the HTML report.")  # fmt: skip
@click.option("--rename", is_flag=True, help="Give inputs, layers and values neutral names.")
@click.option("--trust", is_flag=True, help="Run the formats of a capture made elsewhere without asking.")
@sandboxed
@click.option("--force", is_flag=True, help="Overwrite the output; take a script that was not verified.")
@click.option("--open", "open_", is_flag=True, help="Open the HTML report in the browser.")
@as_json
def report(
    db: str,
    ids: tuple[int, ...],
    output: Path | None,
    force: bool,
    open_: bool,
    json_: bool,
    rename: bool,
    **handed: Any,
) -> None:
    """Write one HTML file about the failures of DB, or those with the given IDs; it works offline.

    Or hand one failure to those who can repair it: as a zip whose content is listed before it is written, or as the
    command that files the issue.
    """
    if not (handed["bundle"] or handed["to"]) and (not handed["inside"] or output is not None or len(ids) != 1):
        if rename:
            raise Problem("--rename is for what is handed on: --bundle, --to or, of one failure, --what-is-inside.")
        written = _page(db, ids, output, force, json_, inside=handed["inside"])
        if open_ and written is not None and click.launch(str(written)) != 0:
            raise Problem(f"no browser opens {written} here.")
        return
    if open_:
        raise Problem("--open is for the HTML report; it does not go with --bundle or --to.")
    if output is not None:
        raise Problem("-o is for the HTML report; it does not go with --bundle or --to.")
    if len(ids) != 1:
        raise Problem("say which one failure to hand on: minify report DB ID --bundle OUT.zip")
    _hand_on(db, ids[0], force=force, json_=json_, rename=rename, **handed)


def _page(db: str, ids: tuple[int, ...], output: Path | None, force: bool, json_: bool, *, inside: bool) -> Path | None:
    """Write the page; where only what is inside was asked for, say that and write nothing. Returns what was written."""
    from ...repro_templates.report.html import render
    from ...store.index import Index
    from ...store.text import count
    from ..reporting.overview import overview
    from ..reporting.privacy_summary import lines, page_listing, provenience, warnings

    with Index.open(db, readonly=True) as index:
        made = overview(index, ids)
        shown = index.captures.find([detail.row.id for detail in made.details]) if inside and made.details else []
        origins = [provenience(index, capture) for capture in shown]
    path = output if output is not None else Path(made.name).with_suffix(".html")
    text = render(made)
    content = text.encode("utf-8", "replace")
    found = page_listing(made, text, origins) if inside else {}
    if inside and output is None:
        if json_:
            dump({"what_is_inside": found})
        for line in () if json_ else lines(found):
            click.echo(line)
        return None
    for line in lines(found) if inside else ():
        click.echo(line, err=json_)
    write({path: content}, force=force)
    for line in () if inside else warnings({str(path): content}):
        click.echo(f"minify: {line}", err=True)
    about = {"output": str(path), "bytes": len(content), "failures": made.count, "bugs": len(made.groups),
             "in_full": [detail.row.id for detail in made.details],
             **({"what_is_inside": found} if inside else {})}  # fmt: skip
    if json_:
        dump(about)
        return path
    click.echo(
        f"{path}: {count(made.count, 'failure')}, {count(len(made.groups), 'bug')}, {len(made.details)} in full, "
        f"{len(content):,} bytes"
    )
    for line in made.notes:
        click.echo(line)
    return path


def _hand_on(
    db: str,
    id_: int,
    *,
    bundle: Path | None,
    to: str | None,
    inside: bool,
    rename: bool,
    trust: bool,
    sandbox: bool,
    force: bool,
    json_: bool,
) -> None:
    from ...store.index import Index
    from ..reporting import bundle as bundles
    from ..reporting.export import ExportRequest
    from ..reporting.privacy_summary import lines, listing, provenience, warnings

    request = ExportRequest(rename=rename, unverified=force)
    if bundle is not None and bundle.exists() and not force:
        raise Problem(f"{bundle} exists; add --force to overwrite it.")
    with Index.open(db, readonly=True) as index:
        if to is not None:
            click.echo(bundles.command(index, id_, request))
        capture = index.captures.get(id_)
        captured = index.captures.case(id_) if inside else None
        case = (index.best(capture) or captured) if inside else None
        origin = provenience(index, capture)
    if bundle is None and case is None:
        return
    formats = None if bundle is not None else ("script", "issue")
    made = bundles.collect(db, id_, request, formats=formats, trust=trust, sandbox=sandbox, tell=note)
    out: dict[str, Any] = {"bundle": str(bundle), **made.document()} if bundle is not None else {}
    if case is not None:
        out["what_is_inside"] = listing(case, capture.failure, made.contents, origin, renamed=rename, captured=captured)
    for line in [*(made.lines() if bundle is not None else ()), *(lines(out["what_is_inside"]) if inside else ())]:
        click.echo(line, err=json_)
    for line in () if inside else warnings(made.contents):
        click.echo(f"minify: {line}", err=True)
    if bundle is not None:
        write({bundle: bundles.zipped(made)}, force=force)
    if json_:
        dump(out)
