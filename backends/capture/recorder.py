"""Writes captures. It runs in the user's program while an exception propagates, so it never raises.

A graph that cannot be stored becomes a row with the reason and the graph's text. If not even that can be written, the
log has a warning. The same failure of the same graph is encoded once and then counted.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch

from ...store.document.case import Json, to_json
from ...store.document.decode import InvalidDocument, validate
from ...store.errors import StoreError
from ...store.failure import EAGER, METADATA, PRECISION, Failure, FailureKind, Phase
from ...store.live import ipython
from ...store.live.encode import Unsupported, graph_text
from ...store.live.snapshot import EVERYTHING, Digests, Keep
from ...store.private_values import here
from ...store.recording import Recording
from ...store.scrubbing import masked_case, masked_failure, masked_provenance
from ...store.signature import signature
from ...store.text import count
from ..provenance.spec import BackendSpec
from ..running import devices
from .ending import NOTED
from .graph_snapshot import GraphSnapshot, KeptInputs, Taken
from .journal import Journal, JournalBlobs
from .log import log
from .lowering import CannotLower, Lowered
from .places import CaptureName, CapturePlace, place_of
from .seam import own_calls

Below = Callable[[], Iterable[Lowered]]
#: Returns what eager raises for the call that failed, empty if nothing, None if it cannot be asked.
AskEager = Callable[[], str | None]

#: The values that are kept of a compile error, of another failure, and that are written ahead of a compile or call.
SMALL = Keep(each=4 << 10)
BUDGET = Keep(all=1 << 30, measured=True)
AHEAD = Keep(each=16 << 20, all=256 << 20, measured=True)
#: The most tensors that a row names whose values are not kept.
_NAMED = 20
#: More provenance of this process's captures, which `minify import` adds.
ABOUT: dict[str, str] = {}
#: The captures of this process, in the order in which they were stored.
STORED: list[CaptureName] = []


class CaptureRecorder:
    """Records into one index, for one server, or into another ``place`` (`backends.capture.places`).

    If it has a journal, it also writes ahead and reports to the parent."""

    def __init__(
        self, db: str, journal: Journal | None = None, data: str = "auto", *, place: CapturePlace | None = None
    ) -> None:
        self.db = db
        self.journal = journal
        self.data = data
        self._lock = threading.RLock()
        self._place = place_of(db) if place is None else place
        self._known: dict[tuple[str, str, str], CaptureName] = {}
        self._again: dict[CaptureName, int] = {}
        self._short: dict[str, set[str]] = {}
        self._lost: dict[str, str] = {}
        self._digests = Digests()
        self._pid = os.getpid()
        atexit.register(self.flush)

    def record(
        self,
        snapshot: GraphSnapshot,
        spec: Callable[[], BackendSpec],
        inputs: KeptInputs,
        rng: dict[str, Any],
        failure: Failure,
        *,
        backward: bool = False,
        compare: bool = False,
        calls: int = 1,
        below: Below | None = None,
        level: str = "auto",
        eager: AskEager | None = None,
    ) -> None:
        """Store ``failure`` of the graph ``snapshot``, called with ``inputs``, ``calls`` times by now.

        ``below`` gives the graphs that AOTAutograd makes of it. They are tried first if ``level`` is ``"aot"``, and
        after the graph itself was refused if it is ``"auto"``. ``eager`` is called once for each failure that is
        stored.
        """
        try:
            with self._lock, own_calls():
                asked = {"backward": backward, "compare": compare, "calls": calls}
                failure = masked_failure(failure, here().mask)
                self._record(snapshot, spec(), inputs, rng, failure, below, level, asked, eager)
        except Exception as exc:  # noqa: BLE001  whatever goes wrong here must not reach the user's program
            self._lose(failure, exc)

    def refuse(self, spec: Callable[[], BackendSpec], failure: Failure, reason: str) -> None:
        """Store ``failure`` of a graph that could not be kept for ``reason``."""
        try:
            with self._lock, own_calls():
                backend = spec()
                self._add(Taken(reason=reason), failure, self._provenance(None, backend), "")
                log.warning("fxminify could not keep a failing graph: %s", reason)
        except Exception as exc:  # noqa: BLE001  see record
            self._lose(failure, exc)

    def _lose(self, failure: Failure, exc: Exception) -> None:
        """Note that ``failure`` could not be stored because of ``exc``."""
        headline, why = failure.headline(), str(exc) if isinstance(exc, StoreError) else _said(exc)
        log.warning("fxminify could not record a failure (%s): %s", headline, why)
        line = f"{headline}: {why}"
        if line not in self._lost.values():
            self._lost[signature(failure).digest] = line
            self._note("lost", line)

    def write_ahead(
        self,
        graph: int,
        snapshot: GraphSnapshot,
        spec: Callable[[], BackendSpec],
        inputs: KeptInputs,
        rng: dict[str, Any],
        calls: int = 1,
    ) -> None:
        """Put the case into the journal, if there is one."""
        if self.journal is None:
            return
        try:
            with own_calls():
                backend = spec()
                private = here()  # the parent, which stores this, may have another environment
                document: Json = {"provenance": masked_provenance(self._provenance(snapshot, backend), private.mask)}
                taken = self._case(snapshot, backend, inputs, rng, {"calls": calls}, self._kept(AHEAD), self._digests)
                document["provenance"] |= _left_out(taken)
                if taken.case is None:
                    text = graph_text(snapshot.module())
                    document |= {"reason": private.mask(taken.reason), "graph_text": private.mask(text)}
                else:
                    document["case"] = to_json(masked_case(taken.case, private.mask, private.folder))
                self.journal.put(graph, document, taken.blobs)
        except Exception as exc:  # noqa: BLE001  see record
            log.warning("fxminify could not write ahead; a crash here would not be captured: %s", _said(exc))

    def short(self, spec: Callable[[], BackendSpec]) -> frozenset[str]:
        """The lower-precision dtypes in which this backend is known to compute."""
        return frozenset(self._short.get(spec().name, ())) if self._short else frozenset()

    def note(self, what: str, spec: Callable[[], BackendSpec]) -> None:
        """Note in the journal that the backend compiled a graph (``watched``), or that a call gave the same as eager
        (``compared``) or did not (``failed``)."""
        if self.journal is None:
            return
        try:
            with own_calls():
                self.journal.tell(what, spec().name)
        except Exception as exc:  # noqa: BLE001  see record
            log.warning("fxminify could not note what it watched: %s", _said(exc))

    def unchecked(self, reason: str) -> None:
        """Note a call that could not be compared with eager."""
        log.warning("fxminify could not check a compiled graph against eager: %s", reason)
        if self.journal is not None:
            self.journal.tell("unchecked", reason)

    def let_pass(self, times: float, where: str) -> None:
        """Note a difference of ``times`` what `torch.testing.assert_close` allows, which is no failure."""
        if self.journal is not None:
            self.journal.tell("let_pass", f"{times!r} {where}")

    def _note(self, what: str, line: str) -> None:
        """Add a line to the list ``what`` that is read at the end of the program."""
        if self.journal is not None:
            self.journal.tell(what, line)
        else:
            NOTED.setdefault(what, []).append(line)

    def flush(self) -> None:
        """Write down how often known failures were seen again."""
        with self._lock:
            again, self._again = self._again, {}
            if not again or self._pid != os.getpid():
                return
            try:
                for capture, times in again.items():
                    self._place.seen_again(capture, times, _versions())
            except Exception as exc:  # noqa: BLE001  see record
                log.warning("fxminify could not count repeated failures: %s", _said(exc))

    def _record(
        self,
        snapshot: GraphSnapshot,
        spec: BackendSpec,
        inputs: KeptInputs,
        rng: dict[str, Any],
        failure: Failure,
        below: Below | None,
        level: str,
        asked: Json,
        eager: AskEager | None,
    ) -> None:
        known = signature(failure)
        of_backend = failure.kind is FailureKind.DIVERGENCE and failure.detail.get("class") == PRECISION
        key = ("" if of_backend else snapshot.text(), f"{spec.name} {spec.options}", known.digest)
        if of_backend and key not in self._known and (other := self._place.recorded(spec.name, known)) is not None:
            self._known[key] = other
        if of_backend:
            self._short.setdefault(spec.name, set()).add(str(failure.detail.get("as", "")))
        if key in self._known:
            capture = self._known[key]
            self._again[capture] = self._again.get(capture, 0) + 1
            return
        answer = eager() if eager is not None else None
        taken = Taken()
        refused: dict[str, str] = {}
        provenance = Json({"level": "dynamo"})
        for tried in {"auto": ("dynamo", "aot"), "aot": ("aot", "dynamo")}.get(level, (level,)):
            if tried == "dynamo":
                try:
                    taken = self._case(snapshot, spec, inputs, rng, asked, self._kept_of(failure))
                except Exception:
                    if not devices.dead():
                        raise
                    taken = self._written_ahead(snapshot.number, asked)
            elif below is not None:
                lowered, taken = self._lowered(below, rng, asked)
                if lowered is not None:
                    spec, inputs, failure = lowered.spec, lowered.inputs, lowered.failure
                    provenance = {"level": "aot", "aot_graph": str(lowered.role)}
            if taken.case is not None:
                break
            refused[tried] = taken.reason
        if taken.case is None:
            taken = Taken(reason="; ".join(dict.fromkeys(filter(None, refused.values()))))
        elif refused:
            provenance |= {"refused": "; ".join(f"{tried}: {why}" for tried, why in refused.items())}
        provenance = self._provenance(snapshot, spec) | provenance
        provenance |= _left_out(taken)
        provenance |= {"graph": snapshot.number, "call": asked["calls"]}
        if len(snapshot.shapes_before) > 1:
            provenance["shapes_before"] = "; ".join(snapshot.shapes_before[:-1])
        if inputs.changed:
            provenance["inputs_changed"] = inputs.changed
        if answer is not None:
            failure = replace(failure, detail={**failure.detail, EAGER: here().mask(answer)})
        text = graph_text(snapshot.module()) if taken.case is None else ""
        self._known[key] = self._add(taken, failure, provenance, text)
        if of_backend:
            self._place.remember(spec.name, known, self._known[key])
        if taken.reason:
            log.warning("fxminify captured a failure that it cannot run again: %s", taken.reason)

    def _lowered(self, below: Below, rng: dict[str, Any], asked: Json) -> tuple[Lowered | None, Taken]:
        """Return the first graph of AOTAutograd that can be stored, and its case; or the reason why all fail."""
        reason = "AOTAutograd makes no graph of it"
        try:
            for graph in below():
                forward, keep = asked | {"backward": False}, self._kept_of(graph.failure)
                taken = self._case(graph.snapshot, graph.spec, graph.inputs, rng, forward, keep)
                if taken.case is not None:
                    return graph, taken
                reason = f"the {graph.role} graph of AOTAutograd: {taken.reason}"
        except Exception as exc:  # noqa: BLE001  AOTAutograd may raise anything on what some backend just failed on
            reason = str(exc) if isinstance(exc, CannotLower) else _said(exc)
        return None, Taken(reason=reason)

    def _kept_of(self, failure: Failure) -> Keep:
        """The values to keep for ``failure``."""
        compiling = failure.kind is FailureKind.COMPILE_ERROR and failure.phase in (Phase.COMPILE, Phase.GUARDS)
        return self._kept(SMALL if compiling else BUDGET)

    def _case(
        self,
        snapshot: GraphSnapshot,
        spec: BackendSpec,
        inputs: KeptInputs,
        rng: dict[str, Any],
        asked: Json,
        keep: Keep,
        digests: Digests | None = None,
    ) -> Taken:
        """Return the case of ``snapshot``, or the reason why it cannot be made. ``asked`` has fields of the case.
        ``digests`` has the keys of storages that were read before.
        """
        reason = spec.problem
        try:
            taken = snapshot.case(inputs.values, rng, spec, **asked, keep=keep, digests=digests)
            reason = taken.reason
            if taken.case is not None:
                validate(to_json(taken.case))  # refuse now what could not be read again
        except (Unsupported, InvalidDocument) as exc:
            return Taken(reason="; ".join(filter(None, [reason, str(exc)])))
        return taken

    def _written_ahead(self, graph: int, asked: Json) -> Taken:
        """Return the case of ``graph`` with the values that were written ahead of its last call in the journal.

        Raises `StoreError` without such values.
        """
        document = self.journal.document(graph) if self.journal is not None else None
        if self.journal is None or document is None or "case" not in document:
            raise StoreError(f"{devices.dead()}, and no values were written ahead of the call, as minify capture does")
        case = replace(validate(document["case"]), backward=asked["backward"], compare=asked["compare"])
        return Taken(
            replace(case, calls=max(case.calls, asked["calls"])), JournalBlobs(self.journal.directory),
            left_out=tuple(filter(None, str(document["provenance"].get("left_out", "")).split("; "))),
        )  # fmt: skip

    def _kept(self, auto: Keep) -> Keep:
        """The values to keep: ``auto`` unless the settings say otherwise."""
        return {"full": EVERYTHING, "none": Keep(each=0)}.get(self.data, auto)

    def _add(self, taken: Taken, failure: Failure, provenance: Json, text: str) -> CaptureName:
        capture = self._place.record(
            Recording(
                case=taken.case, blobs=taken.blobs, failure=failure, provenance=provenance, graph_text=text,
                reason=taken.reason,
            )
        )  # fmt: skip
        STORED.append(capture)
        if (line := self._lost.pop(signature(failure).digest, None)) is not None:
            self._note("found", line)
        if failure.refused:
            self._note("refused", f"{capture} {failure.refused}")
        elif failure.absent:
            self._note("absent", f"{capture} {failure.absent}")
        else:
            self._note("captured", f"{capture} {failure.kind}")
        return capture

    def _provenance(self, snapshot: GraphSnapshot | None, spec: BackendSpec) -> Json:
        """Describe the origin of a capture, without directories, host names and values of the environment."""
        out: Json = {
            "backend": spec.name,
            "program": ipython.notebook() or os.path.basename(sys.argv[0] if getattr(sys, "argv", None) else ""),
            **_versions(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if snapshot is not None:
            out |= {"compile_id": snapshot.compile_id, "frame": snapshot.frame}
            out |= {"within": snapshot.within} if snapshot.within else {}
        out |= ABOUT
        test = os.environ.get("PYTEST_CURRENT_TEST")
        if test:
            out["test"] = _test(test)
        return out


def _left_out(taken: Taken) -> Json:
    """Return the provenance entry about tensors whose values are not kept."""
    if not taken.left_out:
        return {}
    more = len(taken.left_out) - _NAMED
    named = [*taken.left_out[:_NAMED], *([f"{count(more, 'more tensor')}"] if more > 0 else [])]
    return {"data": METADATA, "left_out": "; ".join(named)}


def _versions() -> Json:
    return {"torch": str(torch.__version__), "python": platform.python_version()}


def _test(current: str) -> str:
    """The test in ``current``, pytest's ``path/file.py::name[parameters] (call)``, without directories."""
    file, separator, name = current.rpartition(" (")[0].partition("::")
    return os.path.basename(file) + separator + re.sub(r"[^\[\]=,]*/", "", name)


def _said(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}"
