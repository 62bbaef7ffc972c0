"""The words for the answers about a minimal case.

A statement says no more than the answers show, and names the values that were tried. Each answer stands in one place:
in what the case needs, in what it passes with, in what does not matter, or in a sentence about another failure or
another operator. A tensor is named unless the statement is about all tensors of the case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..oracle.verdict import Outcome
from .features import BETWEEN, DEFAULT, LEFT_OUT, OTHERWISE, Aspect, Claim, Feature, change
from .probes import RANDOM_BITS
from .size_rules import divisors

#: The most places that are named one by one.
_NAMED = 6
#: Values of tensors as they are stored, and as sentences name them.
_VALUES = {"what they are": "the present values", "recorded values": "the recorded values", "randn": "random numbers"}
#: Names of values in the plural.
_PLURAL = {"zeros", "ones", "random numbers", RANDOM_BITS, "the present values", "the recorded values"}
#: The ending of a verb after one value.
_ENDINGS = {"pass": "es", "fail": "s"}
_SETTINGS = {
    ("backward pass", "yes"): "the backward pass",
    ("backward pass", "no"): "no backward pass",
    ("calls", "1"): "1 call",
    ("requires_grad", "False"): "inputs without requires_grad",
    ("requires_grad", "True"): "inputs with requires_grad",
}
_KINDS = {Aspect.DTYPE: "dtype", Aspect.VALUES: "values", Aspect.SIZE: "sizes", Aspect.LAYOUT: "memory layout"}


@dataclass(frozen=True, slots=True)
class _Told:
    """A feature, with the ``places`` of all others of which the same was answered."""

    feature: Feature
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """Words for ``features``. ``tensors`` names all tensors of the case."""

    features: Sequence[Feature]
    tensors: Collection[str] = ()

    def needs(self) -> list[str]:
        """Needs of the case, such as ``size 17 or more in x.shape[1] (16 passes, 18 and 69 fail)``."""
        return [self._needed(told) for told in self._deciding() if _is_needed(told.feature)]

    def passes(self) -> list[str]:
        """With what it passes, where that is shorter to tell than what it needs: ``zeros in x (ones fail)``."""
        out = []
        for told in self._deciding():
            feature = told.feature
            if _is_needed(feature):
                continue
            fail = [*_clauses(feature, Outcome.SAME, "fail"), *_otherwise(feature)]
            fail = [] if feature.aspect is Aspect.DEFAULT else fail  # the default is what the minimal case has
            if values := feature.that(Outcome.PASS):
                out.append(self._phrase(told, values) + _aside(fail))
            else:
                for on, found in _by_place(feature, Outcome.PASS):
                    out.append(f"{self._phrase(told, found)} {on}, where {_now(feature)} fails")
        return out

    def free(self) -> list[str]:
        """Features that do not matter, with the values that were tried: ``dtype (float64, float16)``."""
        free = [feature for feature in self.features if feature.claim is Claim.FREE]
        out: list[str] = []
        for aspect, name in _KINDS.items():
            for told in _merged([f for f in free if f.aspect is aspect]):
                whole = aspect is not Aspect.SIZE and (not told.places or self._are_all(told.places))
                where = "" if whole else f" {'in' if aspect is Aspect.SIZE else 'of'} {_and(told.places)}"
                out.append(f"{name}{where} ({_tried(told.feature)})")
        for feature in free:
            if feature.aspect is Aspect.ARGUMENT:
                out.append(f"{_argument(feature)} ({_tried(feature)})")
            elif feature.aspect is Aspect.SETTING:
                names = {"backward pass": "the backward pass", "calls": "the number of calls"}
                tried = "" if feature.is_twofold else f" ({_tried(feature)})"
                out.append(names.get(feature.name, feature.name) + tried)
        return out

    def fails(self) -> list[str]:
        """With what it fails as well, where too few values were tried to say that it does not matter."""
        told = _merged([f for f in self.features if f.claim is Claim.FAILS and f.aspect in _COUNTED])
        return [self._phrase(one, one.feature.fails_with) for one in told]

    def others(self, variant: str = "") -> list[str]:
        """A sentence for each way in which it fails otherwise, for operators that were replaced, and for what could not
        be tried.

        An operator that only ``variant`` replaces has none: the difference of the variant says it.
        """
        unlike = [f for f in self.features if f.aspect in _COUNTED and f.claim in (Claim.OTHERWISE, Claim.CLOSE)]
        out = [
            _sentence(f"{verb} with {self._phrase(t, values)}{f': {said}' if said else ''}")
            for t, values, verb, said in _ways(unlike)
        ]
        for feature in self.features:
            if feature.aspect is not Aspect.OPERATOR:
                continue
            same = [value for value in feature.that(Outcome.SAME) if value != feature.now]
            said = [f"{_and(same)} {'fails' if len(same) == 1 else 'fail'}, too"] if same else []
            said += [*_clauses(feature, Outcome.PASS, "pass"), *_otherwise(feature)]
            changes = [change(feature.aspect, feature.name, feature.now, a.value) for a in feature.answers]
            if said and changes != [variant]:
                out.append(f"In place of {feature.name.removeprefix('operator ')}: {'; '.join(said)}.")
        refused = [self._refused(f) for f in self.features if _is_refused(f)]
        return [*out, f"Not tested, because eager refuses it: {'; '.join(refused)}."] if refused else out

    def phrase(self, feature: Feature, values: Sequence[str]) -> str:
        """``values`` of ``feature``, fit to follow "with": ``size 4 in x.shape[0]``."""
        return self._phrase(_Told(feature, tuple(feature.places)), values)

    def _refused(self, feature: Feature) -> str:
        return self.phrase(feature, list(dict.fromkeys(a.value for a in feature.answers)))

    def _deciding(self) -> list[_Told]:
        """The features that matter. All values together are left out where the values of single tensors say it."""
        found = [feature for feature in self.features if feature.matters]
        single = any(feature.aspect is Aspect.VALUES and feature.places for feature in found)
        return _merged(
            [f for f in found if not (single and f.aspect is Aspect.VALUES and not f.places and not _least_number(f))]
        )

    def _needed(self, told: _Told) -> str:
        feature = told.feature
        if feature.aspect is Aspect.SIZE:
            rule, evidence = _rule(feature)
            return f"{rule} in {_and(told.places)}" + _aside([*evidence, *_otherwise(feature)])
        if least := _least_number(feature):
            number, below = least
            text = f"numbers of {number:g} or {'more' if number > 0 else 'less'} as values"
            return text + _aside([f"{below:g} passes", *_otherwise(feature)])
        aside = [*_clauses(feature, Outcome.PASS, "pass"), *_otherwise(feature)]
        if aside and feature.aspect is Aspect.DTYPE and any(map(_least_number, self.features)):
            aside = [f"with the same values {aside[0]}", *aside[1:]]  # larger ones may fail in a wider dtype
        if feature.aspect is Aspect.SETTING:  # the other value goes without saying
            aside = _on_larger(feature, Outcome.PASS, "pass")
        return self._phrase(told, feature.that(Outcome.SAME)) + _aside(aside)

    def _phrase(self, told: _Told, values: Sequence[str]) -> str:
        feature = told.feature
        match feature.aspect:
            case Aspect.SIZE:
                return f"size {_or(values)} in {_and(told.places)}"
            case Aspect.VALUES:
                said = _or(_as_told(feature, values))
                return said + (self._where(told) or ("" if said.endswith(" values") else " as values"))
            case Aspect.DTYPE:
                return _or(values) + self._where(told)
            case Aspect.LAYOUT:
                named = [v.removesuffix(", offset 0") if v.startswith("strides") else f"{v} layout" for v in values]
                return _or(named) + self._where(told)
            case Aspect.ARGUMENT | Aspect.DEFAULT:
                given = [value for value in values if value != LEFT_OUT]
                text = _argument(feature, f"={_or(given)}") if given else f"{_argument(feature)} {LEFT_OUT}"
                return f"{text} or without it" if 0 < len(given) < len(values) else text
            case Aspect.OPERATOR:
                return f"{_or(values)} in place of {feature.name.removeprefix('operator ')}"
            case Aspect.SETTING:
                return _or([_setting(feature.name, value) for value in values])

    def _where(self, told: _Told) -> str:
        """The tensors, empty where the case has one tensor, or the statement is about all of them."""
        if not told.places:
            return " in all tensors" if told.feature.aspect is Aspect.VALUES and len(self.tensors) > 1 else ""
        return "" if self._are_all(told.places) else f" in {_and(told.places)}"

    def _are_all(self, places: Collection[str]) -> bool:
        return set(self.tensors) <= set(places)


#: A missing argument is named only if it matters, and an operator has a sentence of its own.
_COUNTED = frozenset(Aspect) - {Aspect.DEFAULT, Aspect.OPERATOR}


def _is_refused(feature: Feature) -> bool:
    """True where eager refuses each value that was tried, of what a person would ask about."""
    asked = feature.aspect in (Aspect.ARGUMENT, Aspect.DTYPE, Aspect.SETTING)
    return asked and bool(feature.answers) and all(a.outcome is Outcome.INVALID for a in feature.answers)


def _sentence(text: str) -> str:
    """``text`` with a full stop, unless it ends with one or is cut."""
    return text if text.endswith(".") else f"{text}."


def _ways(features: Sequence[Feature]) -> Iterator[tuple[_Told, list[str], str, str]]:
    """The features that neither fail in the same way nor pass, with the values that show one other result, the verb,
    and what that result is."""
    for told in _merged(features):
        ways: dict[tuple[str, str], list[str]] = {}
        for answer in told.feature.answers:
            if answer.outcome in BETWEEN:
                close = answer.outcome is Outcome.CLOSE
                verb = "Differs from eager by less than counts as a failure" if close else "Fails in another way"
                ways.setdefault((verb, answer.said), []).append(answer.value)
        for (verb, said), values in ways.items():
            yield told, values, verb, said


def _merged(features: Sequence[Feature]) -> list[_Told]:
    """Merge features of one kind that have the same answers."""
    groups: dict[object, list[Feature]] = {}
    for feature in features:
        answers = frozenset((a.value, a.outcome, a.on, a.said) for a in feature.answers)
        key = (feature.aspect, feature.now, answers) if feature.places else feature.name
        groups.setdefault(key, []).append(feature)
    return [_Told(group[0], tuple(place for f in group for place in f.places)) for group in groups.values()]


def _is_needed(feature: Feature) -> bool:
    """True where the statement is about what the case needs, False where it is about what it passes with."""
    if feature.aspect is Aspect.DEFAULT:
        return False
    if feature.aspect is Aspect.SIZE and any(a.on and a.outcome is Outcome.SAME for a in feature.answers):
        return False  # it fails with less elsewhere
    if feature.that(Outcome.CLOSE) or (feature.aspect is Aspect.VALUES and feature.that(*OTHERWISE)):
        return feature.aspect is Aspect.SIZE and bool(_rule(feature)[0])  # it may be the same bug in another guise
    if len(feature.that(Outcome.SAME)) == 1 or feature.aspect is Aspect.DTYPE:
        return True
    if feature.aspect is Aspect.SIZE:
        return bool(_rule(feature)[0])
    return bool(_least_number(feature))


def _rule(feature: Feature) -> tuple[str, list[str]]:
    """The sizes with which it fails, in short, and what was tried. Empty where there is no rule."""
    fails = [int(v) for v in feature.that(Outcome.SAME)]
    passed = [int(v) for v in feature.that(Outcome.PASS)]
    low, high, now = min(fails), max(fails), int(feature.now)
    all_passed = _clauses(feature, Outcome.PASS, "pass")
    also = [_does([str(f) for f in fails if f != now], "fail")] if len(fails) > 1 else []
    if len(fails) == 1:
        return f"size {low}", all_passed
    if max(passed) < low:
        rule = f"size {low} or more" if max(passed) == low - 1 else f"a size over {max(passed)}"
        return rule, [*all_passed, *also]
    if min(passed) > high:
        rule = f"size {high} or less" if min(passed) == high + 1 else f"a size under {min(passed)}"
        return rule, [*all_passed, *also]
    found = divisors(fails, passed)
    if len(found) != 1:
        return "", []
    which = "no multiple" if low % found[0] else "a multiple"
    return f"a size that is {which} of {found[0]}", [*_clauses(feature, Outcome.SAME, "fail"), *all_passed]


def _least_number(feature: Feature) -> tuple[float, float] | None:
    """The least number with which tensors were filled where it failed, and the largest smaller one that passed."""
    if feature.aspect is not Aspect.VALUES:
        return None
    fails, passed = (list(_numbers(feature.that(outcome))) for outcome in (Outcome.SAME, Outcome.PASS))
    signs = {number > 0 for number in (*fails, *passed)}
    if not passed or len(fails) < 2 or len(fails) < len(feature.that(Outcome.SAME)) or len(signs) > 1:
        return None
    least, below = min(fails, key=abs), max(passed, key=abs)
    return (least, below) if abs(below) < abs(least) else None


def _numbers(values: Sequence[str]) -> Iterator[float]:
    """The numbers of values such as ``all 1e+30``."""
    for value in values:
        if value.startswith("all "):
            try:
                yield float(value.removeprefix("all "))
            except ValueError:
                continue


def _argument(feature: Feature, given: str = "") -> str:
    """``dim of torch.sum``, or ``dim=1 of torch.sum``; an argument without a name by its position."""
    name, call = feature.argument
    if name.isdigit():
        return f"{given.removeprefix('=')} as argument {name} of {call}" if given else f"argument {name} of {call}"
    return f"{name}{given} of {call}"


def _setting(name: str, value: str) -> str:
    if name == "calls" and value != "1":
        return f"{value} calls"
    if value in ("set", "not set"):
        return f"{name} {value}"
    known = _SETTINGS.get((name, value))
    return known or (f"the default of {name}" if value == DEFAULT else f"{name} = {value}")


def _clauses(feature: Feature, outcome: Outcome, verb: str) -> list[str]:
    """The values with this outcome and what they do: ``float16 and bfloat16 pass``, first on the minimal case."""
    values = [v for v in feature.that(outcome) if (feature.aspect, v) != (Aspect.VALUES, "what they are")]
    own = [_does(_as_told(feature, values), verb)] if values else []
    return [*own, *_on_larger(feature, outcome, verb)]


def _on_larger(feature: Feature, outcome: Outcome, verb: str) -> list[str]:
    """``with x.shape[2] = 17 False passes and True fails``: what was tried on a larger case that fails as well."""
    return [
        f"{on} {_does(_as_told(feature, values), verb)}" + (f" and {_now(feature)} fails" if verb == "pass" else "")
        for on, values in _by_place(feature, outcome)
    ]


def _by_place(feature: Feature, outcome: Outcome) -> Sequence[tuple[str, list[str]]]:
    """The larger cases on which a value had this outcome, with the values."""
    places: dict[str, list[str]] = {}
    for answer in feature.answers:
        if answer.on and answer.outcome is outcome:
            places.setdefault(answer.on, []).append(answer.value)
    return [*places.items()]


def _now(feature: Feature) -> str:
    return DEFAULT if feature.aspect is Aspect.DEFAULT else feature.now


def _otherwise(feature: Feature) -> list[str]:
    """The clauses about values that neither fail in the same way nor pass."""
    hows: dict[str, list[str]] = {}
    for answer in feature.answers:
        if answer.outcome in OTHERWISE:
            hows.setdefault(answer.said, []).append(answer.value)
    near = [answer.value for answer in feature.answers if answer.outcome is Outcome.CLOSE]
    close = f"with {_or(_as_told(feature, near))} it differs by less than counts as a failure" if near else ""
    return [
        f"{_does(_as_told(feature, values), 'fail')} in another way" + (f", {said}" if said else "")
        for said, values in hows.items()
    ] + ([close] if close else [])


def _tried(feature: Feature) -> str:
    """The other values with which the case fails: ``float64, float16``."""
    return ", ".join(_as_told(feature, feature.fails_with))


def _as_told(feature: Feature, values: Sequence[str]) -> list[str]:
    if feature.aspect is Aspect.VALUES:
        return list(dict.fromkeys(_VALUES.get(value, value) for value in values))
    return ["leaving it out" if value == LEFT_OUT else value for value in sorted(values, key=LEFT_OUT.__eq__)]


def _does(values: Sequence[str], verb: str) -> str:
    one = len(values) == 1 and values[0] not in _PLURAL
    return f"{_and(values)} {verb}{_ENDINGS[verb] if one else ''}"


def _aside(clauses: Sequence[str]) -> str:
    between = "; " if any(", " in clause for clause in clauses) else ", "
    return f" ({between.join(clauses)})" if clauses else ""


def _and(items: Collection[str]) -> str:
    named = list(dict.fromkeys(items))
    more = len(named) - _NAMED
    return _joined([*named[: _NAMED - 1], f"{more + 1} more"] if more > 0 else named, "and")


def _or(items: Sequence[str]) -> str:
    return _joined(items, "or")


def _joined(items: Sequence[str], word: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"
