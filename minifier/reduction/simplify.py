"""The last stage of a reduction: what is left of the case is made plain.

A failure that depends on none of it takes one question: everything is made plain at once, as if every answer were
yes. Else all but sizes, then what stands around the graph, is tried so; then the `fxminify.minifier.simplifications`
run one after the other, each with its own questions. A candidate that was asked about already costs nothing, so asking
for all at once and then for a part is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...store.case import Case
from ..simplifications import ALL_BUT_SIZES, SIMPLIFICATIONS, SURROUNDINGS, Simplification, Storages, name_of

#: What is asked for at once, before one by one: the name of the question, a sentence about it, what it stands for.
AT_ONCE: tuple[tuple[str, str, tuple[Simplification, ...]], ...] = (
    ("everything", "All simplifications at once: most failures depend on none of it.", SIMPLIFICATIONS),
    ("all-but-sizes", "All but smaller dimensions at once: a graph may need its sizes to be valid.", ALL_BUT_SIZES),
    ("surroundings", "Those at once that leave the tensors as they are.", SURROUNDINGS),
)


def simplify(case: Case, storages: Storages, same: Callable[[Case, str], bool]) -> Case:
    """The plainest form of ``case`` that ``same(candidate, name of the simplification)`` still accepts.

    Deterministic: it asks the same candidates in the same order whenever the answers are the same.
    """
    for name, _, group in AT_ONCE:
        plain, changed = at_best(case, storages, group)
        if len(changed) > 1 and same(plain, name):
            case = plain
    for simplification in SIMPLIFICATIONS:
        name = name_of(simplification)
        case = _run(simplification, case, storages, partial(_asked, same, name))
    return case


def listing() -> list[dict[str, str]]:
    """Rows for `minify passes`, in the order in which they ask."""
    rows = [(name, said) for name, said, _ in AT_ONCE]
    rows += [(name_of(s), s.__doc__ or "") for s in SIMPLIFICATIONS]
    return [{"pass": name, "stage": "simplify", "what": said} for name, said in rows]


def at_best(case: Case, storages: Storages, group: Sequence[Simplification]) -> tuple[Case, list[str]]:
    """What ``group`` would make of ``case`` if nothing mattered, and the names of those that have something to do."""
    changed = []
    for simplification in group:
        plain = _run(simplification, case, storages, lambda candidate: True)
        if plain != case:
            case = plain
            changed.append(name_of(simplification))
    return case, changed


def _asked(same: Callable[[Case, str], bool], name: str, candidate: Case) -> bool:
    return same(candidate, name)


def _run(simplification: Simplification, case: Case, storages: Storages, same: Callable[[Case], bool]) -> Case:
    candidates = simplification(case, storages)
    try:
        candidate = next(candidates)
        while True:
            candidate = candidates.send(same(candidate))
    except StopIteration as end:
        plain: Case = end.value
    return plain
