"""The progress of `fxminify.minify` below the cell of a notebook that called it."""

from __future__ import annotations

import time
from typing import Any

from ...store.failure import kind_in_words
from ...store.live import ipython
from ...store.text import count
from ..passes import in_words
from ..printable import shown
from . import events
from .results import outcome

#: Seconds between two updates of the line.
_PAUSE = 0.2


def listener() -> events.Listener:
    """Return a `NotebookProgress` in the kernel of a notebook, and elsewhere a listener that ignores all events."""
    shell = ipython.shell()
    return NotebookProgress() if hasattr(shell, "kernel") else events.ignore


class NotebookProgress:
    """A line for each capture, which changes while it is worked on, and one for each note."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._name = ""
        self._replayed = ""
        self._updated = 0.0
        self._started = 0.0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.CaptureStarted(capture):
                self._name = f"{capture.id} {capture.backend} {kind_in_words(capture.kind)}"
                self._handle, self._started = None, time.monotonic()
                self._show("starting workers")
            case events.HeadStartBegan():
                self._show("looking for a small part of the graph that fails")
            case events.ReplayStarted(part=part):
                self._replayed = f"a part of {count(part, 'node')}" if part else "the captured graph"
                self._show(f"running {self._replayed}")
            case events.ReplayRan(_, number):
                self._show(f"{self._replayed} ran {count(number, 'time')}")
            case events.QueryAnswered() if time.monotonic() - self._updated > _PAUSE:
                left = f"{event.nodes} of {count(event.start_nodes, 'node')} left"
                elapsed = time.monotonic() - self._started
                self._show(
                    f"{left} after {count(event.queries, 'query')} and {elapsed:.0f} s ({in_words(event.stage)})"
                )
            case events.ScriptVerified(_, shown) if shown:
                self._show("the script is verified; what is left is to explain it")
            case events.FirstScript(_, nodes):
                self._note(f"a first script of {count(nodes, 'node')} is stored; the work goes on")
            case events.Noted(_, text):
                self._note(text)
            case events.CaptureFinished(capture, reason):
                self._show(reason or outcome(capture))
            case _:
                pass

    def _show(self, state: str) -> None:
        from IPython import display

        self._updated = time.monotonic()
        data = _plain(f"{self._name}: {state}")
        if self._handle is None:
            self._handle = display.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def _note(self, text: str) -> None:
        """A line that stays."""
        from IPython import display

        display.display(_plain(f"{self._name}: {text}"), raw=True)


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": shown(text)}
