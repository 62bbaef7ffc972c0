"""The words for what was answered about a minimal case.

They claim no more than was tried. Each answer is told once: in what the case needs, in what it passes with, in what
does not matter, or in a sentence about another failure or another operator. Tensors are named where there are several
and they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..oracle.verdict import Outcome
from .features import LEFT_OUT, OTHERWISE, Aspect, Feature, change

#: The most places that are named one by one.
_NAMED = 6
#: Values of tensors as they are stored, and as they are told.
_VALUES = {"what they are": "the present values", "recorded values": "the recorded values", "randn": "random numbers"}
#: What is told in the plural.
_MANY = {"zeros", "ones", "random numbers", "the present values", "the recorded values"}
#: What a verb ends with after one value.
_ENDINGS = {"pass": "es", "fail": "s"}
_TENSORS = (Aspect.DTYPE, Aspect.VALUES, Aspect.LAYOUT)


@dataclass(frozen=True, slots=True)
class _Told:
    """A feature, with the ``places`` of all others of which the same was answered."""

    feature: Feature
    places: tuple[str, ...]


def needs(features: Sequence[Feature]) -> list[str]:
    """What the case needs, such as ``size 17 or more in x.shape[1] (16 passes, 69 still fails)``."""
    return [_needed(told, features) for told in _deciding(features) if _is_needed(told.feature)]


def passes(features: Sequence[Feature]) -> list[str]:
    """With what it passes, where that is shorter to tell than what it needs: ``zeros in x (ones fail)``."""
    out = []
    for told in _deciding(features):
        if not _is_needed(told.feature):
            others = [*_clause(told.feature, Outcome.SAME, "fail"), *_otherwise(told.feature)]
            out.append(_phrase(told, told.feature.that(Outcome.PASS), features) + _aside(others))
    return out


def free(features: Sequence[Feature]) -> list[str]:
    """What does not matter as far as was tried, each kind in one piece: ``dtype``, ``values``, ``sizes``."""
    out: list[str] = []
    whole = {Aspect.DTYPE: "dtype", Aspect.VALUES: "values", Aspect.SIZE: "sizes", Aspect.LAYOUT: "memory layout"}
    for aspect, name in whole.items():
        own = [feature for feature in features if feature.aspect is aspect]
        places = [place for feature in own if feature.free for place in feature.places]
        if own and all(feature.free for feature in own):
            out.append(name)
        elif places:
            out.append(f"{name} {'in' if aspect is Aspect.SIZE else 'of'} {_and(places)}")
    calls = [f.name.partition(" of ") for f in features if f.aspect is Aspect.ARGUMENT and f.free]
    counted = Counter(call for _, _, call in calls)
    if len(counted) > 2:
        out.append(f"{len(calls)} arguments")
    else:
        single = {call: f"{argument} of {call}" for argument, _, call in calls}
        out += [single[call] if n == 1 else f"{n} arguments of {call}" for call, n in counted.items()]
    names = {"backward pass": "the backward pass", "calls": "the number of calls"}
    return out + [names.get(f.name, f.name) for f in features if f.aspect is Aspect.SETTING and f.free]


def others(features: Sequence[Feature], variant: str = "") -> list[str]:
    """A sentence for each feature that only fails in another way, and for each operator that was replaced.

    An operator that was replaced once, by that of ``variant``, has none: the difference of the variant says it.
    """
    unlike = [f for f in features if f.aspect is not Aspect.OPERATOR and f.free is False and not f.matters]
    out = [f"Fails in another way with {_phrase(t, t.feature.that(*OTHERWISE), features)}." for t in _merged(unlike)]
    for feature in features:
        if feature.aspect is not Aspect.OPERATOR:
            continue
        same = [value for value in feature.that(Outcome.SAME) if value != feature.now]
        said = [f"{_and(same)} {'fails' if len(same) == 1 else 'fail'}, too"] if same else []
        said += [*_clause(feature, Outcome.PASS, "pass"), *_otherwise(feature)]
        changes = [change(feature.aspect, feature.name, feature.now, a.value) for a in feature.answers]
        if said and changes != [variant]:
            out.append(f"In place of {feature.name.removeprefix('operator ')}: {'; '.join(said)}.")
    return out


def phrase(feature: Feature, values: Sequence[str], features: Sequence[Feature]) -> str:
    """``values`` of ``feature``, one of ``features``, fit to follow "with": ``size 4 in x.shape[0]``."""
    return _phrase(_Told(feature, tuple(feature.places)), values, features)


def _deciding(features: Sequence[Feature]) -> list[_Told]:
    """The features that matter. All values together are left out where the values of single tensors say it."""
    found = [feature for feature in features if feature.matters]
    single = any(feature.aspect is Aspect.VALUES and feature.places for feature in found)
    return _merged(
        [f for f in found if not (single and f.aspect is Aspect.VALUES and not f.places and not _least_number(f))]
    )


def _merged(features: Sequence[Feature]) -> list[_Told]:
    """The features, those of one kind and with the same answers as one."""
    groups: dict[object, list[Feature]] = {}
    for feature in features:
        answers = frozenset((a.value, a.outcome) for a in feature.answers)
        key = (feature.aspect, feature.now, answers) if feature.places else feature.name
        groups.setdefault(key, []).append(feature)
    return [_Told(group[0], tuple(place for f in group for place in f.places)) for group in groups.values()]


def _is_needed(feature: Feature) -> bool:
    """Whether what it needs is told, and not what it passes with."""
    if len(feature.that(Outcome.SAME)) == 1 or feature.aspect is Aspect.DTYPE:
        return True
    if feature.aspect is Aspect.SIZE:
        return bool(_rule(feature)[0])
    return bool(_least_number(feature))


def _needed(told: _Told, features: Sequence[Feature]) -> str:
    feature = told.feature
    if feature.aspect is Aspect.SIZE:
        rule, evidence = _rule(feature)
        return f"{rule} in {_and(told.places)}" + _aside([*evidence, *_otherwise(feature)])
    if least := _least_number(feature):
        number, below = least
        text = f"numbers of {number:g} or {'more' if number > 0 else 'less'} as values"
        return text + _aside([f"{below:g} passes", *_otherwise(feature)])
    alike = [] if feature.aspect is Aspect.SETTING else [*_clause(feature, Outcome.PASS, "pass"), *_otherwise(feature)]
    return _phrase(told, feature.that(Outcome.SAME), features) + _aside(alike)


def _rule(feature: Feature) -> tuple[str, list[str]]:
    """The sizes with which it fails, in short, and what else of the answers is told. Empty where there is no rule."""
    fails = [int(v) for v in feature.that(Outcome.SAME)]
    passed = [int(v) for v in feature.that(Outcome.PASS)]
    low, high = min(fails), max(fails)
    near, all_passed = f"{high} still fails", _clause(feature, Outcome.PASS, "pass")
    if len(fails) == 1:
        return f"size {low}", all_passed
    if max(passed) < low:
        rule = f"size {low} or more" if max(passed) == low - 1 else f"a size over {max(passed)}"
        return rule, [f"{max(passed)} passes", near]
    if min(passed) > high:
        rule = f"size {high} or less" if min(passed) == high + 1 else f"a size under {min(passed)}"
        return rule, [f"{min(passed)} passes", f"{low} still fails"]
    for divisor in (2, 3, 4, 8, 16, 32, 64):
        multiples = {f % divisor == 0 for f in fails}
        if len(passed) > 1 and len(multiples) == 1 and {p % divisor == 0 for p in passed} == {not min(multiples)}:
            which = "a multiple" if min(multiples) else "no multiple"
            return f"a size that is {which} of {divisor}", [*_clause(feature, Outcome.SAME, "fail"), *all_passed]
    return "", []


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
    for value in values:
        if value.startswith("all "):
            try:
                yield float(value.removeprefix("all "))
            except ValueError:
                continue


def _phrase(told: _Told, values: Sequence[str], features: Sequence[Feature]) -> str:
    feature = told.feature
    match feature.aspect:
        case Aspect.SIZE:
            return f"size {_or(values)} in {_and(told.places)}"
        case Aspect.VALUES:
            said = _or(_as_told(feature, values))
            return said + (_where(told, features) or ("" if said.endswith(" values") else " as values"))
        case Aspect.DTYPE:
            return _or(values) + _where(told, features)
        case Aspect.LAYOUT:
            named = [v.removesuffix(", offset 0") if v.startswith("strides") else f"{v} layout" for v in values]
            return _or(named) + _where(told, features)
        case Aspect.ARGUMENT:
            given = [value for value in values if value != LEFT_OUT]
            text = f"{_or(given)} as {feature.name}" if given else f"{feature.name} {LEFT_OUT}"
            return f"{text} or without it" if 0 < len(given) < len(values) else text
        case Aspect.OPERATOR:
            return f"{_or(values)} in place of {feature.name.removeprefix('operator ')}"
        case Aspect.SETTING:
            return _or([_setting(feature.name, value) for value in values])


def _setting(name: str, value: str) -> str:
    known = {
        ("backward pass", "yes"): "the backward pass",
        ("backward pass", "no"): "no backward pass",
        ("calls", "1"): "1 call",
        ("requires_grad", "False"): "inputs without requires_grad",
        ("requires_grad", "True"): "inputs with requires_grad",
    }
    if name == "calls" and value != "1":
        return f"{value} calls"
    return known.get((name, value)) or (f"the default of {name}" if value == "the default" else f"{name} = {value}")


def _where(told: _Told, features: Sequence[Feature]) -> str:
    """Which tensors, empty where all are meant and nothing is to be told apart."""
    tensors = {
        place.partition(".shape[")[0]
        for f in features
        for place in f.places
        if f.aspect in _TENSORS or ".shape[" in place
    }
    if not told.places:
        return " in all tensors" if told.feature.aspect is Aspect.VALUES and len(tensors) > 1 else ""
    return "" if tensors <= set(told.places) else f" in {_and(told.places)}"


def _clause(feature: Feature, outcome: Outcome, verb: str) -> list[str]:
    """The values with this outcome and what they do: ``float16 and bfloat16 pass``. No clause where there are none."""
    values = [v for v in feature.that(outcome) if (feature.aspect, v) != (Aspect.VALUES, "what they are")]
    return [_does(_as_told(feature, values), verb)] if values else []


def _otherwise(feature: Feature) -> list[str]:
    values = _as_told(feature, feature.that(*OTHERWISE))
    return [f"{_does(values, 'fail')} in another way"] if values else []


def _as_told(feature: Feature, values: Sequence[str]) -> list[str]:
    if feature.aspect is Aspect.VALUES:
        return list(dict.fromkeys(_VALUES.get(value, value) for value in values))
    return ["leaving it out" if value == LEFT_OUT else value for value in sorted(values, key=LEFT_OUT.__eq__)]


def _does(values: Sequence[str], verb: str) -> str:
    one = len(values) == 1 and values[0] not in _MANY
    return f"{_and(values)} {verb}{_ENDINGS[verb] if one else ''}"


def _aside(clauses: Sequence[str]) -> str:
    return f" ({', '.join(clauses)})" if clauses else ""


def _and(items: Collection[str]) -> str:
    named = list(dict.fromkeys(items))
    more = len(named) - _NAMED
    return _joined([*named[: _NAMED - 1], f"{more + 1} more"] if more > 0 else named, "and")


def _or(items: Sequence[str]) -> str:
    return _joined(items, "or")


def _joined(items: Sequence[str], word: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"
