"""Features of a minimal case that can be changed, such as a size or a dtype, and the answers about them."""

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
OTHERWISE = (Outcome.OTHER, Outcome.CRASH)
#: The case does not fail as the minimal one does, and does not pass either.
BETWEEN = (*OTHERWISE, Outcome.CLOSE)
#: So many other values must fail before a feature counts as one that does not matter.
ENOUGH = 2
#: The value of an argument that is not given.
LEFT_OUT = "left out"
#: The value of a setting that is not given.
DEFAULT = "the default"
_FLAGS = {"True", "False", "yes", "no"}


class Aspect(StrEnum):
    SIZE = "size"
    DTYPE = "dtype"
    VALUES = "values"
    ARGUMENT = "argument"
    SETTING = "setting"
    LAYOUT = "layout"
    OPERATOR = "operator"
    DEFAULT = "default"  # an argument that the call leaves out


class Claim(StrEnum):
    """The statement that the answers about a feature support."""

    MATTERS = "matters"  # the case passes with another value
    FREE = "does not matter"  # the case fails with every value that was tried, and these are enough
    FAILS = "also fails with"  # the case fails with another value, but too few were tried
    OTHERWISE = "fails in another way"
    CLOSE = "differs by less than counts as a failure"
    UNTESTED = "not tested"  # no value gave an answer


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The oracle's answer about the case with one thing changed to ``value``.

    ``shown`` of ``runs`` runs showed the failure. ``on`` is empty for an answer about the minimal case itself.
    Otherwise it names the larger case, which fails as well, on which the value was tried because eager refuses it on
    the minimal one. ``said`` is the headline of another failure, or the reason why there is no answer.
    """

    value: Text
    outcome: Outcome
    shown: int = 0
    runs: int = 1
    on: Text = ""
    said: Text = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the minimal case: its value ``now``, and the other values that were tried.

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

    def that(self, *outcomes: Outcome, on: bool | None = False) -> list[str]:
        """The values with one of these outcomes. The value of the minimal case itself has the outcome SAME.

        ``on`` selects answers about larger cases; None selects all answers.
        """
        own = [self.now] if Outcome.SAME in outcomes else []
        found = [*own, *(a.value for a in self.answers if a.outcome in outcomes and on in (None, bool(a.on)))]
        numbers = self.aspect is Aspect.SIZE
        return sorted(dict.fromkeys(found), key=int) if numbers else list(dict.fromkeys(found))

    @property
    def claim(self) -> Claim:
        """The statement that the answers support."""
        if self.that(Outcome.PASS, on=None):
            return Claim.MATTERS
        if self.that(*OTHERWISE, on=None):
            return Claim.OTHERWISE
        if self.that(Outcome.CLOSE, on=None):
            return Claim.CLOSE
        if not self.fails_with:
            return Claim.UNTESTED
        return Claim.FREE if len(self.fails_with) >= ENOUGH or self.is_twofold else Claim.FAILS

    @property
    def fails_with(self) -> list[str]:
        """The other values with which the case fails in the same way, on the minimal case or on a larger one."""
        return [value for value in self.that(Outcome.SAME, on=None) if value != self.now]

    @property
    def is_twofold(self) -> bool:
        """True where there are only two values, so that one other value is all that can be tried."""
        values = {self.now, *(a.value for a in self.answers)}
        return bool({self.now} & _FLAGS) and len(values - {LEFT_OUT, DEFAULT} - {self.now}) <= 1

    @property
    def matters(self) -> bool:
        """True if the case passes with another value. Operators are left out: another operator nearly always passes."""
        return self.claim is Claim.MATTERS and self.aspect is not Aspect.OPERATOR

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

    @property
    def argument(self) -> tuple[str, str]:
        """The name of an argument, and the call that takes it: ``argument dim of torch.sum``."""
        name, _, call = self.name.removeprefix("argument ").partition(" of ")
        return name, call


def change(aspect: Aspect, name: str, now: str, value: str) -> str:
    """Describe a change in words that are the same in every version: ``16 instead of 17 as x.shape[1]``."""
    if value == LEFT_OUT:
        return f"{name} left out"
    if aspect is Aspect.DEFAULT:
        return f"{name} given as {value}"
    told = aspect is Aspect.OPERATOR or name == "values"
    return f"{value} instead of {now}" + ("" if told else f" as {name}")
