"""`Storage`: keeps what the backend made, each ONNX model with its session and its FX graph.

A model that ONNX Runtime refused is in ``refused``.

Nothing here imports torch. A `Storage` has no constructor arguments, so a failure of a program that uses one is
captured with ``Storage()`` in the options of its backend.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import OnnxrtReport


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """A model that was handed to ONNX Runtime.

    ``onnx`` is an ``onnx.ModelProto``, ``graph_module`` its FX graph, ``session`` the ``InferenceSession``, or None
    because of ``error``.
    """

    name: str
    onnx: Any
    graph_module: Any
    session: Any
    providers: tuple[Any, ...]
    report: OnnxrtReport
    error: str = ""

    def text(self, *, weights: bool = False) -> str:
        """The model as text, for a person; ``weights``: with the values of small floating-point initializers."""
        from . import listing

        return listing.text(self.onnx, weights=weights)

    def svg(self) -> str:
        """The model as a picture, an SVG file. Raises `ValueError` for one of thousands of nodes."""
        from . import picture

        return picture.svg(self.onnx, title=f"{self.report.kind} {self.name}")


@dataclass(eq=False)
class Storage:
    """The models in the order they were made, and a report for each compiled graph."""

    def __post_init__(self) -> None:
        self.models: list[StoredModel] = []
        self.refused: list[StoredModel] = []
        self.reports: list[OnnxrtReport] = []

    def __iter__(self) -> Iterator[StoredModel]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, index: int) -> StoredModel:
        return self.models[index]

    def text(self) -> str:
        """The reports on all graphs as text."""
        return "\n".join(report.text() for report in self.reports)


@dataclass(slots=True)
class Watched:
    """Models that were made or refused, in that order, and the reports."""

    models: list[StoredModel] = field(default_factory=list)
    reports: list[OnnxrtReport] = field(default_factory=list)


_watching: ContextVar[Watched | None] = ContextVar("watching", default=None)


@contextmanager
def watching() -> Iterator[Watched]:
    """Collect every model and report that is made inside the block, in any storage."""
    seen = Watched()
    before = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(before)


def keep(storage: Storage | MutableSequence[Any] | MutableMapping[str, Any] | None, model: StoredModel) -> None:
    """Put a model where the user asked for it: a dict has lists ``"models"`` and ``"refused"``, a list gets models."""
    if (seen := _watching.get()) is not None:
        seen.models.append(model)
    where = "refused" if model.session is None else "models"
    if isinstance(storage, Storage):
        getattr(storage, where).append(model)
    elif isinstance(storage, MutableMapping):
        storage.setdefault(where, []).append(model)
    elif storage is not None and model.session is not None:
        storage.append(model)


def keep_report(storage: Any, report: OnnxrtReport) -> None:
    """Put the report of a compiled graph where the user asked for it; a list gets it with its models only."""
    if (seen := _watching.get()) is not None:
        seen.reports.append(report)
    if isinstance(storage, Storage):
        storage.reports.append(report)
    elif isinstance(storage, MutableMapping):
        storage.setdefault("reports", []).append(report)
