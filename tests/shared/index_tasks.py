"""Small cases for the index, and what the processes of its tests do."""

import hashlib
import os
import signal
from typing import Any

from fxminify.store.document.case import Blobs, Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, RetestResult, StepInfo
from fxminify.store.index.blobs import BlobStore
from fxminify.store.index.cases import CaseStore
from fxminify.store.signature import signature


def small_case(
    width: int = 4, content: bytes | None = None, backend: str = "inductor"
) -> tuple[Case, dict[str, bytes]]:
    """``relu(x)`` on ``width`` floats; ``content`` are the bytes of ``x``."""
    data = content if content is not None else bytes(4 * width)
    key = hashlib.sha256(data).hexdigest()
    graph = Graph(
        (
            Node("l_x_", "placeholder", "L_x_"),
            Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "l_x_"},), meta={"stack": "train.py:3"}),
            Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
        )
    )
    spec = TensorSpec("float32", (width,), (1,), storage=key)
    return Case(graph, ({"tensor": 0},), (spec,), backend={"name": backend}, torch="2.13.0"), {key: data}


def boom(text: str = "boom") -> Failure:
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", text)


def add(index: Index, case: Case, blobs: Blobs, text: str = "boom", **more: Any) -> int:
    failure = boom(text)
    given = {"failure": failure, "signature": signature(failure), "provenance": {"argv": ["train.py"]}, **more}
    return index.captures.add(case=case, blobs=blobs, **given)


def add_many(path: str, widths: list[int]) -> None:
    """Add one capture for each width; what another process added already counts as one more occurrence."""
    with Index.open(path, create=True) as index:
        for width in widths:
            add(index, *small_case(width))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_add(path: str, method: str) -> None:
    """Add a capture with a storage beside the file, and die by SIGKILL when ``method`` returns."""
    index = Index.open(path, create=True, inline_limit=100)
    owner = CaseStore if method == "insert" else BlobStore
    original = getattr(owner, method)

    def lethal(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        die()

    setattr(owner, method, lethal)
    add(index, *small_case(256, os.urandom(1024)))


def die_in_reduction(path: str) -> None:
    """Answer one question, accept one case, ask a second question and die."""
    index = Index.open(path)
    reduction = index.reductions.begin(1, {"match": "exact"})
    index.verdicts.asked(reduction.id, "a", "nodes")
    index.verdicts.answered(reduction.id, "a", "same", "v1:0", 0.5, "")
    index.reductions.add_step(reduction.id, StepInfo(1, "nodes", "a", 1, 1), *small_case(1))
    index.verdicts.asked(reduction.id, "b", "nodes")
    die()


def hold_lock(path: str, ready: Any, done: Any) -> None:
    """Hold the write lock until ``done`` is set."""
    with Index.open(path) as index, index.database.writing():
        ready.set()
        done.wait(30)


def die_while_creating(path: str) -> None:
    """Die with the tables made and nothing committed."""
    from fxminify.store.index import database

    original = database.make_tables

    def lethal(connection: Any) -> None:
        original(connection)
        die()

    database.make_tables = lethal
    Index.open(path, create=True)


def add_and_report(path: str, pipe: Any, round: int) -> None:
    """Add captures for ever, each with a storage beside the file, reporting each id once it is stored."""
    with Index.open(path, create=True, inline_limit=100) as index:
        for number in range(1, 100_000):
            pipe.send(add(index, *small_case(1000 * number + round, os.urandom(4 * (1000 * number + round)))))


def add_retests(path: str, backend: str, count: int) -> None:
    """Join the round, and remember ``count`` retests of capture 1."""
    answer: dict[str, Any] = {"shown": 2, "runs": 2, "seconds": 1.0, "versions": {"torch": "2.13.0"}}
    with Index.open(path) as index:
        round_id, _ = index.retests.begin_round({"cases": ["1"]})
        for _ in range(count):
            index.retests.add(1, backend, RetestResult.FAILING, round_id=round_id, **answer)
