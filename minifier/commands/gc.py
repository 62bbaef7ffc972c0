"""`minify gc`: remove captures that are not needed any more."""

from __future__ import annotations

import click

from .verbs import as_json, dump, index_argument


@click.command(short_help="Remove old captures and unused tensors.")
@index_argument()
@click.option(
    "--unverified", default=14, show_default=True, type=click.IntRange(0), metavar="DAYS",
    help="Remove what was tried, has no verified script, and was not met for so long.",
)  # fmt: skip
@click.option(
    "--fixed", default=90, show_default=True, type=click.IntRange(0), metavar="DAYS",
    help="Remove the captures of bugs that are fixed, and were not met, for so long.",
)  # fmt: skip
@click.option(
    "--values", is_flag=True,
    help="Also remove the values of captured graphs that their verified scripts do without, such as weights.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@as_json
def gc(db: str, unverified: int, fixed: int, values: bool, dry_run: bool, json_: bool) -> None:
    """Remove old captures from DB, all rows that belong to them, and tensors of no capture.

    Captures that a process works on, or that were not tried yet, stay. The status of bugs stays: a fixed one that
    occurs again has regressed, also when its captures are gone. Other processes may use DB meanwhile.
    """
    from ...store.index import Index
    from ...store.text import count

    with Index.open(db, readonly=dry_run) as index:
        found = index.cleaner.clean(unverified=unverified, fixed=fixed, dry_run=dry_run)
        removed = index.unneeded_values.remove(dry_run=dry_run) if values else None
    if json_:
        dump({**found.to_json(), **({} if removed is None else {"values": removed.to_json()})})
        return
    what = f"{count(found.captures, 'capture')}, {count(found.bugs, 'bug')}, {count(found.storages, 'tensor')}"
    if removed is not None:
        what += f", {removed.bytes / 1e6:.1f} MB of values of {count(removed.captures, 'captured graph')}"
    click.echo(f"{'Would remove' if dry_run else 'Removed'} {what}.")
