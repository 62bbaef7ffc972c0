"""The logs of `minify work` and `minify serve`, a line for each event.

`minify work` writes plain words on stderr or JSON on stdout, `minify serve` writes JSON.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from ...minifier.printable import shown, shown_json
from ...minifier.session import events
from ...store.index import TaskInfo
from ...store.text import count, printable


class JsonLines(logging.Formatter):
    """A record as an object in a line. ``event`` is what the record has as ``extra``, or else its level."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
        line = {"at": at, "event": getattr(record, "event", record.levelname.lower()), "text": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown_json(line))


def json_lines() -> None:
    """From now on every log of this process is JSON on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    ours = logging.getLogger("fxminify")
    ours.handlers.clear()  # a capture in this process gave it one of its own
    ours.propagate = True
    ours.setLevel(logging.INFO)


class TaskLog:
    """Writes lines. Drivers write to the same streams: each line is one write."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def __call__(self, event: str, text: str, task: TaskInfo | None = None, **fields: object) -> None:
        """``event`` is one word, ``text`` says the same in a sentence."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        about = {} if task is None else {"task": task.id, "bug": task.bug, "capture": task.capture}
        if self.as_json:
            told = shown_json({"text": text, **fields})
            line, stream = json.dumps({"at": at, "event": event, **about, **told}), sys.stdout
        else:
            place = "" if task is None else f"task {task.id} (capture {task.capture}): "
            line, stream = f"{at} {place}{printable(shown(text))}", sys.stderr
        stream.write(f"{line}\n")
        stream.flush()

    def told(self, task: TaskInfo, event: events.Event) -> None:
        """Write what the minification of a task tells. Single queries are left out."""
        match event:
            case events.ReplayFinished(reproduced=True):
                self("replayed", f"its failure shows in {event.shown} of {count(event.runs, 'replay')}", task)
            case events.ReplayFinished():
                self("replayed", f"its failure does not show: {event.reason}", task)
            case events.StepAccepted():
                left, after = count(event.nodes, "node"), count(event.queries, "query")
                text = f"{left} left after {after} ({event.pass_name})"
                self("step", text, task, nodes=event.nodes, inputs=event.inputs, queries=event.queries)
            case events.FirstScript():
                text = f"a first script with {count(event.nodes, 'node')} shows the failure"
                self("script", text, task, nodes=event.nodes)
            case events.ScriptVerified():
                self("script", f"the failure shows in {event.shown} of {count(event.runs, 'run')} of the script", task)
            case events.Noted():
                self("note", event.text, task)
