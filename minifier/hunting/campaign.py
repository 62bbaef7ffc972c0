"""A hunt of one backend, from its options to its result: workers, programs, and the index that keeps the failures."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from ... import __version__
from ...backends.provenance import registry
from ...backends.provenance.spec import BackendSpec
from ...store import extensions
from ...store.errors import StoreError
from ...store.index import Index
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Pool
from . import comparison
from . import expected as expectations
from .cells import HuntResult, bugs, cells
from .expected import ExpectedFailure
from .findings import FindingStore
from .hunt import hunt, listed
from .log import EarlierHunt, ProgramLog
from .programs import CallOutcome, Program, ProgramResult, Selection

#: Every dtype that a suite may be asked for.
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8",
    "bool",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HuntOptions:
    """The options of a hunt.

    ``module`` is imported first, if it registers the backend. ``only`` is a regular expression that the names of
    programs must have. ``budget`` and ``timeout`` are in seconds, for the hunt and for one program; ``memory`` in GiB
    is for one worker. ``log`` is the file of results. With ``again`` the results of an earlier hunt are removed.
    """

    backend: str
    log: Path
    module: str = ""
    suites: tuple[str, ...] = ("ops",)
    wanted: Selection = field(default_factory=Selection)
    only: str = ""
    budget: float | None = None
    timeout: float = 120.0
    memory: float | None = None
    jobs: int = 1
    again: bool = False


class HuntListener(Protocol):
    """Is called as a hunt goes on."""

    def begin(self, programs: int, known: int) -> None:
        """The hunt has so many programs, of which so many were run before."""

    def done(self, result: ProgramResult) -> None:
        """A program was run."""


def log_of(db: str, backend: str) -> Path:
    """Return the usual file of results: beside the index, or here if that is on a server."""
    name = re.sub(r"[^\w.-]+", "_", backend)
    return Path(f"{name}.hunt.jsonl") if "://" in db else Path(db).with_suffix(f".{name}.hunt.jsonl")


def run(
    db: str,
    options: HuntOptions,
    listener: HuntListener,
    expected: Sequence[ExpectedFailure] = (),
    earlier: EarlierHunt | None = None,
) -> tuple[HuntResult, dict[Program, ProgramResult]]:
    """Hunt, and store failures in ``db``. Returns the result, and the results of the programs in their order.

    The failures of an ``earlier`` hunt are expected, too, and the result is compared with it. Raises `StoreError`, also
    for a backend that cannot be loaded or cannot run here.
    """
    began = time.monotonic()
    installed = extensions.names(extensions.SUITES)
    if unknown := [name for name in options.suites if name not in installed]:
        raise StoreError(f"there is no suite {unknown[0]!r}; installed are {', '.join(installed)}")
    Index.check(db)
    spec = backend_spec(options.backend, options.module)
    versions = _versions(spec)
    if options.again:
        options.log.unlink(missing_ok=True)
    log = ProgramLog(options.log, {"backend": options.backend, **versions})
    memory = None if options.memory is None else int(options.memory * 2**30)
    stopped = ""
    try:
        with (
            Pool(spec.to_json(), jobs=options.jobs, memory=memory, path=[os.getcwd()]) as pool,
            closing(FindingStore(db, log.id)) as store,
        ):
            programs = _programs(pool, options)
            listener.begin(len(programs), sum(program in log.results for program in programs))

            def keep(result: ProgramResult, folder: Path) -> ProgramResult:
                _check_present(options.backend, result, log)
                return store.keep(result, folder)

            until = None if options.budget is None else began + options.budget
            hunt(
                pool, spec.to_json(), programs, log, timeout=options.timeout, until=until, keep=keep,
                done=listener.done,
            )  # fmt: skip
            if options.budget is not None and any(program not in log.results for program in programs):
                stopped = f"the budget of {options.budget:g} s is over"
    except SandboxError as error:
        raise StoreError(str(error)) from error
    finally:
        log.close()
    results = {program: log.results[program] for program in programs if program in log.results}
    known = [*expected, *(comparison.expected(earlier) if earlier is not None else ())]
    return HuntResult(
        options.backend, cells(programs, log.results), bugs(results.values()), versions,
        tuple(program.text() for program in expectations.unexpected(results.values(), known)),
        tuple(entry.text() for entry in expectations.unseen(list(results.values()), expected)), stopped,
        None if earlier is None else comparison.compared(earlier, results),
    ), results  # fmt: skip


def backend_spec(name: str, module: str = "") -> BackendSpec:
    """Return the spec of the backend ``name``: ``MODULE:ATTRIBUTE``, or a name that torch or ``module`` registers."""
    place, colon, attribute = name.partition(":")
    if colon:
        return BackendSpec(name=attribute, how="attribute", target={"import": [place, attribute]})
    if not module and (point := registry.entry_point(name)) is not None:
        owner = "" if point.dist is None else point.dist.name
        return BackendSpec(name, "entry_point", name, point.module, point.value, owner)
    return BackendSpec(name, "registered", name, module)


def _programs(pool: Pool, options: HuntOptions) -> list[Program]:
    only = re.compile(options.only)
    found = [program for suite in options.suites for program in listed(pool, suite, options.wanted)]
    chosen = [program for program in found if only.search(program.name)]
    if not chosen:
        what = f"matches {options.only!r}" if found else f"has inputs of {', '.join(options.wanted.dtypes)}"
        raise StoreError(f"no program of {', '.join(options.suites)} {what}")
    return chosen


def _check_present(backend: str, result: ProgramResult, log: ProgramLog) -> None:
    """Raise `StoreError` if the backend cannot run in this installation, and has compiled nothing so far."""
    absent = [call.detail for call in result.calls if call.outcome is CallOutcome.ABSENT]
    compiled = (CallOutcome.OK, CallOutcome.FAILS)
    if absent and not any(call.outcome in compiled for one in log.results.values() for call in one.calls):
        raise StoreError(f"the backend {backend} cannot run here: {absent[0]}")


def _versions(spec: BackendSpec) -> dict[str, str]:
    """Return the versions that a hunt is about, by package."""
    names = dict.fromkeys(("torch", spec.distribution or spec.modules()[0].partition(".")[0] if spec.modules() else ""))
    found = {"fxminify": __version__, "python": platform.python_version()}
    return found | {name: known for name in names if name and (known := _version(name))}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
