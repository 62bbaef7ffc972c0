"""Compile a `GraphSelection` of a program, and run everything else in eager.

`SelectedGraphs` sees each graph that Dynamo passes to a backend, and gives the program the compiled graph, the graph
itself, or a graph of which the backend compiled a part. It notes in the journal which graphs it met, and which nodes
were compiled where that is a part. A graph has the same name in each run of the program, as long as Dynamo makes the
same graphs in the same order. Guards that a backend adds on symbolic sizes change the graphs that follow, so a graph
with such sizes is always compiled, unless nothing is selected.

Importing this module loads no torch.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...store.document.case import Json
from . import seam
from .journal import Journal
from .log import log
from .selection import COMPILED, MET, UNCUT, CompiledPart, GraphSelection, MetGraph, PartRange

#: The names of symbolic sizes and of numbers that are not known.
_SYMBOLS = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")


def apply(selection: GraphSelection, journal: Journal, below: seam.Observer | None) -> None:
    """Compile only ``selection`` in this process from now on. ``below`` sees what is compiled, if it is there."""
    seam.detach()
    seam.attach(SelectedGraphs(selection, journal, below))


class _Inside(threading.local):
    a_selected_graph = False
    a_dropped_graph = False


class SelectedGraphs:
    """An observer of the seam that passes a `GraphSelection` on to the backend, and to the observer ``below``."""

    def __init__(self, selection: GraphSelection, journal: Journal, below: seam.Observer | None) -> None:
        self._selection = selection
        self._journal = journal
        self._below = below
        self._met: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._inside = _Inside()

    def compiling(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        if self._inside.a_dropped_graph:
            return call()
        if seam.ours() or self._inside.a_selected_graph:
            return self._pass_on(wrapped, gm, inputs, call)
        from .graph_parts import CannotCut, compile_range, described, parts_of

        parts = parts_of(gm)
        name = self._name(gm, inputs)
        self._note(MET, self._described(name, wrapped, parts))
        wanted = self._selection.range_of(name) if self._selection.compiles(name) else PartRange(0, 0)
        if wanted is None or (wanted.first == 0 and wanted.end >= len(parts)):
            return self._whole(wrapped, gm, inputs, call)
        if self._selection.graphs:
            self._guard_as_whole(wrapped, gm, inputs)
        if wanted.first >= wanted.end:
            return seam.prepare(gm.forward)

        def compiled(piece: Any, given: Sequence[Any]) -> Any:
            self._inside.a_selected_graph = True
            try:
                return wrapped(piece, given)
            finally:
                self._inside.a_selected_graph = False

        chosen = parts[wanted.first : wanted.end]
        self._note(COMPILED, asdict(CompiledPart(name, described(chosen))))
        try:
            return compile_range(gm, chosen, compiled)
        except CannotCut as exc:
            self._note(UNCUT, {"graph": name, "why": str(exc)})
            return seam.prepare(gm.forward)

    def _whole(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        self._inside.a_selected_graph = True
        try:
            return self._pass_on(wrapped, gm, inputs, call)
        finally:
            self._inside.a_selected_graph = False

    def _guard_as_whole(self, wrapped: Any, gm: Any, inputs: Sequence[Any]) -> None:
        """Compile the whole graph and drop the result, so that Dynamo has the guards on symbolic sizes that this adds.

        Without them Dynamo makes other graphs afterwards, which a selection does not name. An error of the backend is
        dropped, too: at most a part of the graph is selected, and that is compiled by itself.
        """
        import copy

        import torch

        if not any(isinstance(value, torch.SymInt) for value in inputs):
            return
        self._inside.a_dropped_graph = True
        try:
            wrapped(copy.deepcopy(gm), inputs)
        except Exception:  # noqa: BLE001  whatever a backend raises
            log.debug("a graph that is not wholly selected does not compile", exc_info=True)
        finally:
            self._inside.a_dropped_graph = False

    def _pass_on(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        return call() if self._below is None else self._below.compiling(wrapped, gm, inputs, call)

    def _name(self, gm: Any, inputs: Sequence[Any]) -> str:
        """The digest of a graph with the shapes of its inputs, and how many equal ones this process met before."""
        given = [(str(getattr(v, "shape", type(v))), str(getattr(v, "dtype", ""))) for v in inputs]
        text = _SYMBOLS.sub("s", f"{gm.graph} {given}")  # which numbers they have depends on what was compiled before
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        with self._lock:
            self._met[digest] += 1
            return f"{digest}-{self._met[digest]}"

    def _described(self, name: str, wrapped: Any, parts: Sequence[Sequence[Any]]) -> Json:
        from ...store.live.encode import user_line

        nodes = [node for part in parts for node in part]
        at = next(filter(None, (user_line(node.meta) for node in nodes)), "")
        backend = str(getattr(wrapped, "_compiler_name", "") or "")
        return asdict(MetGraph(name, backend, len(nodes), len(parts), at))

    def _note(self, what: str, fact: Json) -> None:
        self._journal.tell(what, json.dumps(fact))

    def lowering(
        self, config: Any, partition: Callable[..., Any], compilers: dict[str, Callable[..., Any]]
    ) -> dict[str, Callable[..., Any]]:
        return compilers if self._below is None else self._below.lowering(config, partition, compilers)

    def guards_built(self, exc: Exception | None) -> bool:
        return False if self._below is None else self._below.guards_built(exc)

    def packaging(
        self, gm: Any, inputs: Sequence[Any], packager: tuple[Callable[..., Any], Mapping[str, Any]],
        call: Callable[[], Any],
    ) -> Any:  # fmt: skip
        return call() if self._below is None else self._below.packaging(gm, inputs, packager, call)

    def piece(self, gm: Any, inputs: Sequence[Any], options: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        return call() if self._below is None else self._below.piece(gm, inputs, options, call)

    def backward_failed(self, exc: BaseException) -> None:
        if self._below is not None:
            self._below.backward_failed(exc)
