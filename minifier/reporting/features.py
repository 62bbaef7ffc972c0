"""What can be changed in a minimal case, such as a size or a dtype, and what was answered about it"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from ..oracle.verdict import Outcome

#: The most features and answers that a stored explanation may have, and the longest text in it.
MOST, LONGEST = 1000, 20_000
Text = Annotated[str, Meta(max_length=LONGEST)]
#: The case fails, but in another way.
OTHERWISE = (Outcome.OTHER, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY)
#: The value of an argument that is not given.
LEFT_OUT = "left out"


class Aspect(StrEnum):
    SIZE = "size"
    DTYPE = "dtype"
    VALUES = "values"
    ARGUMENT = "argument"
    SETTING = "setting"
    LAYOUT = "layout"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What the oracle said of the case with one thing changed to ``value``."""

    value: Text
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing of the minimal case, what it is now, and what else was tried.

    Raises `ValueError` where the value of a size is no number.
    """

    aspect: Aspect
    name: Text
    now: Text
    answers: Annotated[tuple[ProbeAnswer, ...], Meta(max_length=MOST)] = ()

    def __post_init__(self) -> None:
        for number in (self.now, *(a.value for a in self.answers)) if self.aspect is Aspect.SIZE else ():
            if not (number.isascii() and number.isdigit() and len(number) < 19):
                raise ValueError(f"{number!r:.40} is no size")

    def that(self, *outcomes: Outcome) -> list[str]:
        """The values with one of these outcomes. The value of the minimal case itself has the outcome SAME."""
        own = [self.now] if Outcome.SAME in outcomes else []
        found = [*own, *(a.value for a in self.answers if a.outcome in outcomes)]
        numbers = self.aspect is Aspect.SIZE
        return sorted(dict.fromkeys(found), key=int) if numbers else list(dict.fromkeys(found))

    @property
    def free(self) -> bool | None:
        """Whether the case fails with every value that was tried. None where that is not known."""
        if self.that(Outcome.PASS) or self.that(*OTHERWISE):
            return False
        return True if len(self.that(Outcome.SAME)) > 1 else None

    @property
    def matters(self) -> bool:
        """Whether the case passes with another value. Operators are left out: another operator nearly always passes."""
        return bool(self.that(Outcome.PASS)) and self.aspect is not Aspect.OPERATOR

    @property
    def places(self) -> list[str]:
        """The tensors, or the dimensions of them, that it is about. Empty where it is about all, or something else."""
        match self.aspect:
            case Aspect.SIZE:
                return self.name.split(" = ")
            case Aspect.DTYPE:
                return self.name.removeprefix("dtype of ").split(", ")
            case Aspect.LAYOUT:
                return [self.name.removeprefix("layout of ")]
            case Aspect.VALUES if self.name != "values":
                return [self.name.removeprefix("values of ")]
            case _:
                return []


def change(aspect: Aspect, name: str, now: str, value: str) -> str:
    """One change in words that are the same in every version: ``16 instead of 17 as x.shape[1]``."""
    if value == LEFT_OUT:
        return f"{name} left out"
    told = aspect is Aspect.OPERATOR or name == "values"
    return f"{value} instead of {now}" + ("" if told else f" as {name}")
