"""Fewer dimensions: those of size 1 go first, then neighbours become one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from made import make

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.passes.ranks import fewer_ranks
from fxminify.store.document.case import Case

Shape = tuple[int, ...]


def view(x: Shape, y: Shape, accepted: Callable[[list[Shape]], bool] = lambda shapes: True) -> GraphView:
    """``x + y`` in an eager mode that accepts some shapes."""
    case, trace = make(["x", "y"], [("a", "add", ["x", "y"])], ["a"], {"x": x, "y": y})

    def validity(base: Case, candidates: Sequence[Case]) -> list[bool]:
        return [accepted(shapes(candidate)) for candidate in candidates]

    return GraphView(case, trace, validity=validity)


def shapes(case: Case) -> list[Shape]:
    return [spec.shape for spec in case.tensors]


def asked(view: GraphView) -> list[list[Shape]]:
    """The shapes of the tensors in each candidate, one step after the other."""
    found, step = [], 0
    while (made := fewer_ranks(view, step)) is not None:
        found += [shapes(case) for case in made.cases]
        step += 1
    return found


def test_all_neighbours_become_one_at_first_then_two_at_a_time() -> None:
    assert asked(view((2, 3, 4), (2, 3, 4))) == [[(24,), (24,)], [(6, 4), (6, 4)], [(2, 12), (2, 12)]]
    made = fewer_ranks(view((2, 3), (2, 3)), 0)
    assert made is not None
    (case,) = made.cases
    assert [(spec.shape, spec.stride) for spec in case.tensors] == [((6,), (1,)), ((6,), (1,))]


def test_dimensions_of_size_1_go_first() -> None:
    both = [(2, 3), (2, 3)]
    assert asked(view((1, 2, 3), (1, 2, 3))) == [both, both, [(2, 3), (1, 2, 3)], [(1, 2, 3), (2, 3)]]


def test_tensors_of_a_lower_rank_stay_as_they_are() -> None:
    assert asked(view((2, 3), ())) == [[(6,), ()]] * 2


def test_what_eager_refuses_is_not_asked() -> None:
    assert asked(view((2, 3), (3,), accepted=lambda shapes: shapes[0] != (6,))) == []
    kept = asked(view((2, 3, 4), (2, 3, 4), accepted=lambda shapes: shapes[0] != (24,)))
    assert kept == [[(6, 4), (6, 4)], [(6, 4), (6, 4)], [(2, 12), (2, 12)]]


def test_what_is_not_in_memory_order_does_not_become_one() -> None:
    plain = view((2, 3), (2, 3))
    turned = [replace(spec, stride=(1, 2)) for spec in plain.case.tensors]
    assert asked(plain.after(replace(plain.case, tensors=tuple(turned)))) == []
