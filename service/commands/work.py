"""`minify work`: minify whatever is captured, without anybody asking."""

from __future__ import annotations

from pathlib import Path

import click

from ...minifier.commands.verbs import Problem, as_json, index_argument, repeated
from .notify import notified, targets


@click.command(short_help="Minify captures without being asked, as a worker.")
@index_argument()
@click.option(
    "--drivers",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Tasks at a time, a process each; without it half as many as there are processors.",
)
@click.option("--until-empty", is_flag=True, help="End when there is no task left that can be worked on here.")
@click.option("--tasks", type=click.IntRange(1), metavar="N", help="End after N tasks.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for one task.")
@click.option(
    "--label", "labels", multiple=True, metavar="LABEL", help="Serve this, too, such as backend=mine or device=cuda."
)
@click.option("--trust", is_flag=True, help="Also run what others captured.")
@click.option(
    "--trust-key", "keys", multiple=True, metavar="KEY", help="Also run what the server with this public key signed."
)
@click.option("--name", default="", metavar="NAME", help="What `minify tasks` calls this worker.")
@click.option("-j", "--jobs", type=click.IntRange(1, 1024), default=1, show_default=True, help="Candidates at a time.")
@notified
@repeated
@click.option(
    "--explain/--no-explain", default=True, show_default=True, help="Also find out what of the result matters."
)
@as_json
def work(
    db: str,
    drivers: int | None,
    until_empty: bool,
    tasks: int | None,
    budget: float | None,
    labels: tuple[str, ...],
    trust: bool,
    keys: tuple[str, ...],
    name: str,
    jobs: int,
    replays: int,
    runs: int,
    explain: bool,
    notify: Path | None,
    json_: bool,
) -> None:
    """Minify the captures in DB, now and from now on, until it is ended.

    Every bug has a task: new bugs come first, then the bugs with the most occurrences. A bug with a verified script
    is run under torch's layers when nothing else is to do. If a worker has new versions, bugs are run again with
    them. Workers on any number of machines can share a DB. Ended by SIGTERM or Ctrl-C, a worker gives its tasks
    back, and another worker continues where it stopped.
    """
    from ...minifier.session.options import MinifyOptions
    from ..workers.installation import NotServing
    from ..workers.log import TaskLog
    from ..workers.worker import WorkOptions
    from ..workers.worker import work as serve

    minify = MinifyOptions(jobs=jobs, budget=budget, trust=trust, replays=replays, runs=runs, explain=explain)
    if wrong := next((label for label in labels if not label or label.split() != [label]), None):
        raise Problem(f"a label is one word, and {wrong!r} is not.")
    told, page = targets(notify)
    options = WorkOptions(drivers or 0, tasks, until_empty, labels, name, keys, minify, tuple(told), page)
    log = TaskLog(as_json=json_)
    try:
        taken = serve(db, options, log)
    except NotServing as error:
        raise Problem(str(error)) from error
    log("ended", f"ended after {taken} task{'s' * (taken != 1)}", tasks=taken)
