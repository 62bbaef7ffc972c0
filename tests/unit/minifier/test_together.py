"""Arguments and sizes that change together: what eager refuses alone is completed before it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from made import Fails, Held, shrinker

from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.minifier.candidate.validity import Way
from fxminify.minifier.passes import PASSES
from fxminify.minifier.reducer.validity import KnownValidity, NotKnown
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.document.strides import contiguous

CONV = (("input", False), ("weight", False), ("bias", True), ("padding", True), ("groups", True))
X, W = {"ref": "x"}, {"ref": "w"}
Shape = tuple[int, ...]


def filled(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape, contiguous(shape), init={"fn": "full", "value": 0.0})


def convolution(x: Shape, w: Shape, bias: Shape | None = None, **kwargs: Any) -> tuple[Case, Trace]:
    """A convolution ``n`` of ``x`` and ``w``, and its trace with a signature."""
    given = {"x": x, "w": w, **({} if bias is None else {"bias": bias})}
    more = {} if bias is None else {"bias": {"ref": "bias"}}
    nodes = (
        *(Node(name, "placeholder", name) for name in given),
        Node("n", "call_function", {"fn": "torch.conv2d"}, (X, W), {**more, **kwargs}),
        Node("output", "output", "output", ({"tuple": [{"ref": "n"}]},)),
    )
    tensors = tuple(filled(*shape) for shape in given.values())
    case = Case(Graph(nodes), tuple({"tensor": i} for i in range(len(tensors))), tensors)
    values = {name: Recorded(ValueKind.TENSOR) for name in (*given, "n")}
    positions = {node.name: i for i, node in enumerate(nodes)}
    trace = Trace(values, (), positions, signatures={"n": CONV}, defaults={"n": {"groups": 1, "padding": 0}})
    return case, trace


class Rules:
    """Eager's rules for this convolution. Remembers how many candidates it was asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def way(self, base: Case) -> Way:
        return Way.EAGER

    def valid(self, way: Way, candidates: Sequence[Case]) -> list[bool]:
        self.asked += len(candidates)
        return [obeys(case) for case in candidates]


def obeys(case: Case) -> bool:
    (node,) = case.graph.compute
    names = [n.name for n in case.graph.placeholders]
    shapes = {n: case.tensors[v["tensor"]].shape for n, v in zip(names, case.inputs, strict=True)}
    x, w = (shapes[value["ref"]] for value in node.args)
    if len(x) != 4 or len(w) != 4:
        return False
    groups, padding = node.kwargs.get("groups", 1), node.kwargs.get("padding", 0)
    bias = node.kwargs.get("bias")
    return (
        groups > 0
        and x[1] == w[1] * groups
        and w[0] % groups == 0
        and all(kernel <= size + 2 * padding for kernel, size in zip(w[2:], x[2:], strict=True))
        and (bias is None or shapes[bias["ref"]] == (w[0],))
    )


def reduced(made: tuple[Case, Trace], fails: Callable[[Case], bool]) -> tuple[Case, Fails, Rules]:
    """The result of all passes by an oracle that knows the rules, too; no query may break them."""
    rules, oracle = Rules(), Fails(lambda case: obeys(case) and fails(case))
    done = shrinker(oracle, passes=PASSES, storages=Held(), validator=rules, strict=True).run(*made)
    assert all(map(obeys, oracle.asked))
    return done.case, oracle, rules


def kwargs_of(case: Case) -> dict[str, Any]:
    (node,) = case.graph.compute
    return dict(node.kwargs)


def shapes_of(case: Case) -> list[Shape]:
    return [case.tensors[value["tensor"]].shape for value in case.inputs]


@pytest.mark.parametrize(
    ("x", "w", "kwargs"),
    [
        ((2, 8, 2, 2), (16, 8, 3, 3), {"padding": 1}),
        ((2, 8, 9, 9), (16, 2, 3, 3), {"padding": 1, "groups": 4}),
        ((2, 8, 9, 9), (8, 1, 3, 3), {"groups": 8}),
        ((1, 6, 1, 3), (4, 3, 5, 5), {"padding": 2, "groups": 2}),
    ],
)
def test_arguments_go_with_the_sizes_that_need_them(x: Shape, w: Shape, kwargs: dict[str, int]) -> None:
    case, _, _ = reduced(convolution(x, w, (w[0],), **kwargs), lambda case: True)
    assert kwargs_of(case) == {}
    assert set(shapes_of(case)) == {(1, 1, 1, 1)}


def test_a_number_that_matters_becomes_small_with_its_sizes() -> None:
    made = convolution((2, 8, 9, 9), (16, 2, 3, 3), (16,), padding=1, groups=4)
    case, _, _ = reduced(made, lambda case: kwargs_of(case).get("groups", 1) > 1)
    assert kwargs_of(case) == {"groups": 2}
    assert shapes_of(case) == [(1, 2, 1, 1), (2, 1, 1, 1)]


def test_a_bias_that_matters_has_the_length_of_the_channels() -> None:
    made = convolution((2, 8, 9, 9), (16, 2, 3, 3), (16,), groups=4)
    case, _, _ = reduced(made, lambda case: "bias" in kwargs_of(case))
    assert kwargs_of(case) == {"bias": {"ref": "bias"}}
    assert (1,) in shapes_of(case)
    assert case.tensors[0].numel == 1


def test_what_eager_refuses_is_no_query() -> None:
    made = convolution((2, 8, 9, 9), (16, 2, 3, 3), (16,), padding=1, groups=4)
    _, oracle, rules = reduced(made, lambda case: True)
    assert len(oracle.asked) <= 8
    assert rules.asked > 20


def test_nothing_is_asked_again_about_what_could_be_asked_alone() -> None:
    """Every argument was valid to leave out, and none of them can go: no change is completed."""
    made = convolution((1, 1, 1, 1), (1, 1, 1, 1), (1,), padding=1)
    case, oracle, _ = reduced(made, lambda case: case == made[0] or {"bias", "padding"} <= kwargs_of(case).keys())
    assert {"bias", "padding"} <= kwargs_of(case).keys()
    assert len(oracle.asked) == len(set(map(repr, oracle.asked)))


def test_arguments_that_have_become_their_defaults_are_left_out() -> None:
    case, trace = convolution((1, 4, 1, 1), (4, 4, 1, 1), groups=1)
    trace = replace(trace, signatures={})  # `arguments` does not know that it is optional
    rows = [row for row in PASSES if row.name == "defaults"]
    done = shrinker(Fails(lambda case: True), passes=rows).run(case, replace(trace, signatures={"n": CONV}))
    assert kwargs_of(done.case) == {}
    done = shrinker(Fails(lambda case: True), passes=rows).run(*convolution((1, 4, 1, 1), (4, 2, 1, 1), groups=2))
    assert kwargs_of(done.case) == {"groups": 2}


def test_without_a_validator_every_candidate_counts_as_valid() -> None:
    case, _ = convolution((1, 1, 1, 1), (1, 1, 1, 1))
    assert KnownValidity(None, repr)(case, [case, case]) == (True, True)


def test_each_candidate_is_looked_at_once_and_not_while_looking_ahead() -> None:
    case, _ = convolution((1, 1, 1, 1), (1, 1, 1, 1))
    wrong, _ = convolution((1, 2, 1, 1), (1, 1, 1, 1))
    rules = Rules()
    known = KnownValidity(rules, repr)
    with known.looking(), pytest.raises(NotKnown):
        known(case, [wrong])
    assert known(case, [wrong, case]) == (False, True)
    with known.looking():
        assert known(case, [wrong]) == (False,)
    assert rules.asked == 2


def test_where_nothing_can_be_told_every_candidate_is_valid() -> None:
    class Unable(Rules):
        def way(self, base: Case) -> Way:
            return Way.NONE

    rules, (case, _) = Unable(), convolution((1, 2, 1, 1), (1, 1, 1, 1))
    assert KnownValidity(rules, repr)(case, [case]) == (True,)
    assert rules.asked == 0


class Failing(Rules):
    """Fails at the candidates."""

    def valid(self, way: Way, candidates: Sequence[Case]) -> Any:
        self.asked += 1


class FailingAtOnce(Rules):
    """Fails at the case that runs."""

    def way(self, base: Case) -> Any:
        self.asked += 1


@pytest.mark.parametrize("rules", [Failing(), FailingAtOnce()])
def test_a_worker_that_fails_is_not_asked_again(rules: Rules) -> None:
    case, _ = convolution((1, 2, 1, 1), (1, 1, 1, 1))
    other, _ = convolution((1, 3, 1, 1), (1, 1, 1, 1))
    known = KnownValidity(rules, repr)
    assert known(case, [case]) == known(case, [other]) == (True,)
    assert rules.asked == 1


# Ranks


def call(target: str, kwargs: dict[str, Any], *shapes: Shape, signature: tuple[str, ...]) -> tuple[Case, Trace]:
    """A call ``n`` of tensors, and its trace."""
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = (
        *(Node(name, "placeholder", name) for name in names),
        Node("n", "call_function", {"fn": target}, tuple({"ref": name} for name in names), kwargs),
        Node("output", "output", "output", ({"tuple": [{"ref": "n"}]},)),
    )
    case = Case(Graph(nodes), tuple({"tensor": i} for i in range(len(shapes))), tuple(filled(*s) for s in shapes))
    trace = Trace({"n": Recorded(ValueKind.TENSOR)}, (), {node.name: i for i, node in enumerate(nodes)})
    return case, replace(trace, signatures={"n": tuple((name, False) for name in signature)})


class Accepts(Rules):
    """Accepts what ``rule`` does."""

    def __init__(self, rule: Callable[[dict[str, Any], list[Shape]], bool]) -> None:
        super().__init__()
        self.rule = rule

    def valid(self, way: Way, candidates: Sequence[Case]) -> list[bool]:
        return [self.rule(kwargs_of(case), shapes_of(case)) for case in candidates]


def lowered(
    made: tuple[Case, Trace],
    rule: Callable[[dict[str, Any], list[Shape]], bool],
    fails: Callable[[Case], bool] = lambda case: True,
) -> tuple[dict[str, Any], list[Shape], int]:
    """The arguments and shapes after the pass `ranks`, and how many queries it took."""
    oracle = Fails(fails)
    rows = [row for row in PASSES if row.name == "ranks"]
    done = shrinker(oracle, passes=rows, storages=Held(), validator=Accepts(rule), strict=True).run(*made)
    return kwargs_of(done.case), shapes_of(done.case), len(oracle.asked)


def permutes(kwargs: dict[str, Any], shapes: list[Shape]) -> bool:
    return sorted(kwargs["dims"]) == list(range(len(shapes[0])))


def test_numbers_of_dimensions_follow_a_rank() -> None:
    made = call("torch.permute", {"dims": [0, 2, 3, 1]}, (1, 1, 5, 1), signature=("input", "dims"))
    assert lowered(made, permutes) == ({"dims": [0]}, [(5,)], 1)


def test_a_rank_that_matters_stays() -> None:
    made = call("torch.permute", {"dims": [0, 2, 1]}, (1, 1, 5), signature=("input", "dims"))
    kwargs, shapes, asked = lowered(made, permutes, lambda case: len(case.tensors[0].shape) >= 2)
    assert (kwargs, shapes) == ({"dims": [1, 0]}, [(1, 5)])
    assert asked <= 3


def test_one_tensor_can_lose_a_dimension_that_another_needs() -> None:
    made = call("torch.embedding", {}, (1, 1), (1, 1), signature=("weight", "indices"))
    assert lowered(made, lambda kwargs, shapes: len(shapes[0]) == 2) == ({}, [(1, 1), (1,)], 1)


def test_lists_of_sizes_follow_a_rank() -> None:
    made = call("norm", {"normalized_shape": [1, 1]}, (1, 1), (1, 1), signature=("input", "weight", "normalized_shape"))
    rule = lambda kwargs, shapes: tuple(kwargs["normalized_shape"]) == shapes[1] == shapes[0]  # noqa: E731
    assert lowered(made, rule) == ({"normalized_shape": [1]}, [(1,), (1,)], 1)
