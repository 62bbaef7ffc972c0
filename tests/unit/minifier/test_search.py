"""Searches find the needed items, ask little, and end whatever the answers are."""

import random
from collections.abc import Callable, Iterable

import pytest

from fxminify.minifier.passes.searches import Items, Search, Space, dense, farthest, sparse, sweep

Fails = Callable[[set[int]], bool]


def drive(search: Search, fails: Fails) -> tuple[Items, list[Items]]:
    asked: list[Items] = []
    try:
        kept = next(search)
        while True:
            asked.append(kept)
            kept = search.send(fails(set(kept)))
    except StopIteration as stop:
        return stop.value, asked


def needs(*items: int) -> Fails:
    return lambda kept: set(items) <= kept


def line(count: int, heavy: Iterable[int] = ()) -> Space:
    """Items in a row, each reading the one before; some are rare."""
    rare = set(heavy)
    return Space(
        tuple(0.05 if i in rare else 0.3 / count for i in range(count)),
        ((), *((i,) for i in range(count - 1))),
    )


@pytest.mark.parametrize("needed", [(0,), (999,), (500,), (400, 401, 402), (3, 997), (0, 500, 999)])
def test_sparse_finds_what_is_needed(needed: tuple[int, ...]) -> None:
    found, _ = drive(sparse(line(1000, needed)), needs(*needed))
    assert set(needed) <= set(found)
    assert len(found) <= len(needed) + 1


@pytest.mark.parametrize(("needed", "questions"), [((500,), 5), ((400, 401, 402), 10), ((3, 997), 12)])
def test_rare_items_cost_few_questions(needed: tuple[int, ...], questions: int) -> None:
    others = (100, 200, 300, 600, 700)
    _, asked = drive(sparse(line(1000, (*needed, *others))), needs(*needed))
    assert len(set(asked)) <= questions


def test_one_common_item_among_many_costs_the_logarithm() -> None:
    _, asked = drive(sparse(Space((1.0,) * 1024)), needs(777))
    assert len(asked) <= 15


def test_a_path_is_left_to_passes_that_shorten_it() -> None:
    needed = range(200, 300)
    found, asked = drive(sparse(line(1000, (200, 299))), needs(*needed))
    assert set(needed) <= set(found)
    assert len(asked) < 40


def test_sweep_takes_a_few_needed_items_out_of_many() -> None:
    found, asked = drive(sweep(range(1000)), needs(10, 500))
    assert set(found) == {10, 500}
    assert len(asked) < 60


def test_sweep_that_takes_nothing_has_tried_every_single_item() -> None:
    found, asked = drive(sweep(range(7)), lambda kept: len(kept) == 7)
    assert found == tuple(range(7))
    assert asked == [tuple(j for j in range(7) if j != i) for i in reversed(range(7))]


def test_dense_asks_for_everything_at_once_first() -> None:
    assert drive(dense(100), lambda kept: True) == ((), [()])


@pytest.mark.parametrize("reach", [0, 1, 5, 8])
def test_farthest_step(reach: int) -> None:
    found, asked = drive(farthest((1.0,) * 8), lambda kept: len(kept) >= reach)
    assert found == tuple(range(reach))
    assert len(asked) <= 4


@pytest.mark.parametrize("seed", range(30))
def test_any_answers_end_every_search_with_a_set_that_was_answered_yes(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 40)
    space = Space(
        tuple(rng.random() + 0.01 for _ in range(count)),
        tuple(tuple(sorted(rng.sample(range(i), min(i, 2)))) for i in range(count)),
    )
    for search in (sparse(space), sweep(range(count)), dense(count), farthest(space.weights)):
        yes = {tuple(range(count))}

        def answer(kept: set[int], yes: set[Items] = yes) -> bool:
            same = rng.random() < 0.3
            if same:
                yes.add(tuple(sorted(kept)))
            return same

        found, _ = drive(search, answer)
        assert found in yes


@pytest.mark.parametrize("seed", range(20))
def test_failures_that_are_not_monotone_still_shrink(seed: int) -> None:
    rng = random.Random(seed)
    core, spoilers = rng.sample(range(60), 2), rng.sample(range(60), 5)

    def fails(kept: set[int]) -> bool:
        # A spoiler hides the failure unless everything is there.
        return len(kept) == 60 or (set(core) <= kept and len(kept & (set(spoilers) - set(core))) % 2 == 0)

    found, _ = drive(sparse(line(60)), fails)
    swept, _ = drive(sweep(found), fails)
    assert fails(set(swept))
    assert len(swept) <= 12
