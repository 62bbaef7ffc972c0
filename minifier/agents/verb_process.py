"""Run a verb of `minify` with ``--json`` in a process of its own, for a tool of an agent.

So a tool answers as the verb does. The process does not read the server's standard input. Its lines on standard error
are the progress. If the call is cancelled, the verb gets SIGINT, as from Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

#: Seconds between two reports of progress, and after which a silent verb is reported.
OFTEN, SILENCE = 0.5, 5.0
#: Seconds that a verb has to end after SIGINT.
GRACE = 15.0
#: The most characters of the end of standard error that are kept.
_TAIL = 4000

#: Takes the seconds since the start, and a line of progress.
Progress = Callable[[float, str], Awaitable[None]]


class VerbFailed(Exception):
    """The verb ended with an error, whose fields are in ``fields``."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(json.dumps(fields))
        self.fields = fields


@dataclass(frozen=True, slots=True)
class VerbResult:
    """The ``answer`` in JSON of a verb that ended with ``code``, and the end of its standard error."""

    code: int
    answer: Any
    printed: str


async def run(root: Path, words: Sequence[str], progress: Progress, *, modules: Path | None = None) -> VerbResult:
    """Run ``minify words`` in the directory ``root``. Raises `VerbFailed`.

    ``modules`` is a directory from which a script may import, as if it were on PYTHONPATH. Otherwise no module is
    imported from ``root`` (``-P``), because an agent may not have read the files there.
    """
    command = [sys.executable, "-P", "-m", "fxminify", *words]
    path = [*([] if modules is None else [str(modules)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)} if path else None
    printed: list[str] = []
    output = bytearray()
    process = await anyio.open_process(command, stdin=DEVNULL, cwd=root, env=environment, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process.stdout, output)
            group.start_soon(_report, process.stderr, printed, progress)
            await process.wait()
    finally:
        if process.returncode is None:
            with anyio.CancelScope(shield=True):
                await _end(process)
        await process.aclose()
    code = process.returncode or 0
    return _result(code, output.decode("utf-8", "replace"), "".join(printed)[-_TAIL:])


def _result(code: int, output: str, printed: str) -> VerbResult:
    try:
        answer = json.loads(output)
    except ValueError as error:
        fields = {"error": f"the verb ended with {code} and without JSON", "hint": printed, "command": "minify doctor"}
        raise VerbFailed(fields) from error
    if isinstance(answer, dict) and answer.keys() == {"error", "hint", "command"}:
        raise VerbFailed(answer)
    return VerbResult(code, answer, printed)


async def _read(stream: ByteReceiveStream, into: bytearray) -> None:
    async for part in stream:
        into += part


async def _report(stream: ByteReceiveStream, printed: list[str], progress: Progress) -> None:
    """Report the last line of each part of standard error, and the time where it stays silent."""
    started = spoke = time.monotonic()
    while True:
        line = ""
        with anyio.move_on_after(SILENCE) as waited:
            try:
                text = (await stream.receive()).decode("utf-8", "replace")
            except anyio.EndOfStream:
                return
            printed.append(text)
            line = next(iter(text.strip().splitlines()[-1:]), "")
        now = time.monotonic()
        if waited.cancelled_caught or (line and now - spoke > OFTEN):
            spoke = now
            await progress(round(now - started, 1), line or "still running")


async def _end(process: Process) -> None:
    """End a verb as Ctrl-C does, so that it can go on later; kill it and what it started if it does not end."""
    with anyio.move_on_after(GRACE):
        process.send_signal(signal.SIGINT)
        await process.wait()
        return
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
