"""The settings of capture. One `Settings` goes from the command line or `install` to every graph.

A setting is a field here, a keyword of `install`, `capturing` and `capture` (`backends.capture.hook`), and an option
of `minify capture`. Processes of a supervised program get them as JSON. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from ...store.document import tolerance
from ..comparison.sampling import Sampling

#: Which values of tensors may be kept.
Data = Literal["auto", "full", "none"]
DATA: tuple[Data, ...] = get_args(Data)
#: Levels at which a graph can be captured.
Level = Literal["auto", "dynamo", "aot"]
LEVELS: tuple[Level, ...] = get_args(Level)


class SettingsKeywords(TypedDict, total=False):
    """The fields of `Settings` as keyword arguments."""

    check: bool | str
    tolerance: str | Mapping[str, float]
    data: Data
    level: Level


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of capturing. Raises `ValueError` for an invalid value.

    * ``check``: also compare calls of each compiled graph with eager, the first two or the calls of a sampling
      (``"first:2,every:1000,strict"``, see `backends.comparison.sampling`).
    * ``tolerance``: how much values of a dtype may differ (``"float32=1e-4"`` or a mapping, see
      `fxminify.store.document.tolerance`).
    * ``data``: the values of tensors to keep: ``full`` keeps all, ``none`` keeps none, ``auto`` keeps all except
      the values of compile errors, which rarely need them, and large ones in the journal. Other values are replaced
      by seeded numbers of the same shape and range.
    * ``level``: keep the graph that Dynamo made (``"dynamo"``), the one that AOTAutograd made of it (``"aot"``), or
      the latter only if the former cannot be stored (``"auto"``).
    """

    check: bool | str = False
    tolerance: str | Mapping[str, float] = ""
    data: str = "auto"
    level: str = "auto"

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level is one of {', '.join(LEVELS)}, not {self.level!r}")
        Sampling.parse(self.check)
        tolerance.parse(self.tolerance)
        if self.data not in DATA:
            raise ValueError(f"data={self.data!r} is not one of {', '.join(DATA)}")

    @property
    def sampling(self) -> Sampling:
        """``check`` as the calls that are compared."""
        return Sampling.parse(self.check)

    @property
    def tolerances(self) -> dict[str, float]:
        """``tolerance`` by the name of the dtype, such as ``float32``: the largest relative and absolute difference."""
        return tolerance.parse(self.tolerance)
