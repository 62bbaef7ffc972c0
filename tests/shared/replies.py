"""Replies of workers, and workers that start no process and reply at once as a test defines."""

import os
from concurrent.futures import Future

from fxminify.minifier.oracle.observation import Observation, Seen, of_reply
from fxminify.minifier.sandbox.pool import Ended, Reply, Workers
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.minifier.sandbox.stacks import StackSampling
from fxminify.store import codec
from fxminify.store.document.case import Json
from fxminify.store.failure import Failure


def failure_of(seen: Reply | Observation) -> Failure:
    """The failure that was seen; there must be one."""
    failure = (of_reply(seen) if isinstance(seen, Reply) else seen).failure
    assert failure is not None
    return failure


def fails(failure: Failure, seconds: float = 1.0, stderr: str = "") -> Reply:
    return Reply(Ended.DONE, "compile", codec.dump(Observation(Seen.FAILURE, failure)), stderr=stderr, seconds=seconds)


def passes(seconds: float = 1.0) -> Reply:
    return Reply(Ended.DONE, "forward", codec.dump(Observation(Seen.PASS)), seconds=seconds)


def refused(text: str) -> Reply:
    """Eager raises an error whose type and message are ``text``."""
    seen = Observation(Seen.INVALID, detail=f"eager: {text}", refused=text)
    return Reply(Ended.DONE, "eager", codec.dump(seen), seconds=1.0)


class Scripted(Workers):
    """Gives ``replies`` in turn, or raises them. Remembers time limits, and whether a fresh worker was wanted."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.scratch = Scratch(os.devnull)
        self.replies = list(replies)
        self.timeouts: list[float] = []
        self.fresh: list[bool] = []
        self.samplings: list[StackSampling | None] = []

    def reply(self, argument: Json) -> Reply | Exception:
        return self.replies.pop(0)

    def submit(
        self, task: str, argument: Json, *, timeout: float, fresh: bool = False, sampling: StackSampling | None = None
    ) -> Future[Reply]:
        assert task == "observe"
        self.timeouts.append(timeout)
        self.fresh.append(fresh)
        self.samplings.append(sampling)
        future: Future[Reply] = Future()
        reply = self.reply(argument)
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
        return future

    def replace_workers(self) -> None:
        """Do nothing: no worker exists."""

    def has_imported(self, module: str) -> bool:
        return False

    def start(self) -> None:
        """Nothing starts."""

    def close(self) -> None:
        """Nothing is open."""
