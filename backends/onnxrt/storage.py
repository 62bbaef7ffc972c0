"""`Storage`: where a person finds what the backend made, each ONNX model with its session and the graph it came from.

Nothing here imports torch. A `Storage` has no constructor arguments: a failure of a program that uses one is captured
with ``Storage()`` in the options of its backend.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Report


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """``onnx``: an ``onnx.ModelProto``; ``graph_module``: its FX graph; ``session``: the ``InferenceSession``."""

    name: str
    onnx: Any
    graph_module: Any
    session: Any
    providers: tuple[Any, ...]
    report: Report

    def text(self) -> str:
        """The model as text."""
        import onnx.printer

        return str(onnx.printer.to_text(self.onnx))


@dataclass(eq=False)
class Storage:
    """The models in the order they were made, and a report for each compiled graph."""

    def __post_init__(self) -> None:
        self.models: list[StoredModel] = []
        self.reports: list[Report] = []

    def __iter__(self) -> Iterator[StoredModel]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, index: int) -> StoredModel:
        return self.models[index]

    def text(self) -> str:
        """What became of each graph, readable."""
        return "\n".join(report.text() for report in self.reports)


def keep(storage: Storage | MutableSequence[Any] | MutableMapping[str, Any] | None, model: StoredModel) -> None:
    """Put a model where the user asked for it: a dict keeps the list under ``"models"``."""
    if isinstance(storage, Storage):
        storage.models.append(model)
    elif isinstance(storage, MutableMapping):
        storage.setdefault("models", []).append(model)
    elif storage is not None:
        storage.append(model)


def keep_report(storage: Any, report: Report) -> None:
    """Put the report of a compiled graph where the user asked for it; a list gets it with its models only."""
    if isinstance(storage, Storage):
        storage.reports.append(report)
    elif isinstance(storage, MutableMapping):
        storage.setdefault("reports", []).append(report)
