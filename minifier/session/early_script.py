"""The early script: stored and reported as soon as a run of it has shown the failure, replaced by the final one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from ...repro_templates.processes import Processes
from ...repro_templates.source.inputs import NeedsData
from ..reporting.emit import Draft, Emitter
from .events import FirstScript, Listener

#: Seconds between two looks whether the run of the script is over.
_TICK = 0.1
#: The most scripts that may fail to show the failure. A script whose values are too large to print does not count.
_MOST_FAILED_SCRIPTS = 2


@dataclass(frozen=True, slots=True)
class _Running:
    """A script that is made and run in a thread; None where there is no case for one."""

    emitter: Emitter
    made: Future[Draft | None]

    def shown(self) -> Draft | None:
        """The script if its run is over and showed the failure."""
        if not self.made.done() or self.made.exception() is not None:
            return None
        made = self.made.result()
        return made if made is not None and made.done.shown else None


class EarlyScript:
    """At most one script at a time is run in a thread. All methods are for the thread that minifies."""

    def __init__(self, listener: Listener, processes: Processes) -> None:
        self.told = False
        self._listener = listener
        self._processes = processes
        self._running: _Running | None = None
        self._vain = 0

    def is_wanted(self) -> bool:
        """Return whether no draft is running, none has shown the failure, and few drafts have failed."""
        running = self._running
        if self.told or self._vain == _MOST_FAILED_SCRIPTS or (running is not None and not running.made.done()):
            return False
        return self.shown() is None

    def shown(self) -> Draft | None:
        """The script of the last run that is over, if it showed the failure."""
        return None if self._running is None else self._running.shown()

    def begin(self, emitter: Emitter, make: Callable[[], Draft | None]) -> None:
        """Run ``make`` in a thread: it draws a script up with ``emitter``. Only where one `is_wanted`."""
        beside = ThreadPoolExecutor(1)
        self._running = _Running(emitter, beside.submit(make))
        self._running.made.add_done_callback(self._count)
        beside.shutdown(wait=False)

    def tell(self) -> None:
        """Store the script once its run is over, if that showed the failure."""
        if self.told or self._running is None or (shown := self.shown()) is None:
            return
        self.told = True
        self._running.emitter.store(shown)
        self._listener(FirstScript(self._running.emitter.capture.id, shown.case.graph.count))

    def tell_while(self, work: Callable[[], Draft]) -> Draft:
        """Return the result of ``work``, which is the final script. Report an early script that is ready before it."""
        with ThreadPoolExecutor(1) as beside:
            final = beside.submit(work)
            try:
                while not wait([final], _TICK).done:
                    self.tell()
            except BaseException:
                self._processes.stop()  # else the thread would wait for its runs
                raise
        self.told = True
        return final.result()

    def finish(self) -> bool:
        """Wait for a script that is running, and `tell`. Returns whether one has shown the failure."""
        if self._running is not None:
            wait([self._running.made])
        self.tell()
        return self.told

    def _count(self, made: Future[Draft | None]) -> None:
        error = made.exception()
        self._vain += made.result() is not None if error is None else not isinstance(error, NeedsData)
