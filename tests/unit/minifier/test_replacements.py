"""What late passes put in the place of what cannot be removed, to the letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from made import REMOVALS, REPLACEMENTS, Fails, Held, Step, called, code, make, ops, shrinker, spec

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.minifier.passes import PASSES, Pass
from fxminify.store.document.case import Case, Graph, Node

FOUR, ROWS = (4,), (2, 4)
CONV = (("input", False), ("weight", False), ("bias", True), ("stride", True), ("padding", True), ("groups", True))


def one(
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    shape: tuple[int, ...] = ROWS,
    dtype: str = "float32",
    signature: tuple[tuple[str, bool], ...] = (),
    inputs: dict[str, tuple[int, ...]] | None = None,
    op: str = "call_function",
) -> tuple[Case, Trace]:
    """A case of one node ``n`` that gives a tensor of that shape and type, and its trace."""
    inputs = inputs or {"x": ROWS, "y": FOUR}
    named: str | dict[str, str] = target if op == "call_method" else {"op" if "::" in target else "fn": target}
    nodes = (
        *(Node(name, "placeholder", name) for name in inputs),
        Node("n", op, named, args, kwargs or {}),
        Node("output", "output", "output", ({"tuple": [{"ref": "n"}]},)),
    )
    given = tuple(spec(s, f"in:{name}") for name, s in inputs.items())
    case = Case(Graph(nodes), tuple({"tensor": i} for i in range(len(given))), given)
    values = {name: Recorded(ValueKind.TENSOR) for name in inputs} | {
        "n": Recorded(ValueKind.TENSOR, ((len(inputs) + 1, 0),))
    }
    trace = Trace(values, (spec(shape, "n@0", dtype),), {n.name: i for i, n in enumerate(nodes)})
    return case, replace(trace, signatures={"n": signature} if signature else {})


def reduced(name: str, made: tuple[Case, Trace], fails: Callable[[Node], bool] = lambda node: True) -> Node:
    """What becomes of ``n`` by the pass ``name`` alone; of numbers by the one that makes them 0 before."""
    rows = [p for p in REPLACEMENTS if p.name in {name, "arguments" if name == "numbers" else name}]
    oracle = Fails(lambda case: fails(case.graph.compute[0]))
    best = shrinker(oracle, passes=rows).run(*made).case
    (node,) = best.graph.compute
    return node


X, Y = {"ref": "x"}, {"ref": "y"}


@pytest.mark.parametrize(
    ("target", "args", "shape", "dtype", "target_after", "args_after"),
    [
        ("torch.gelu", (X,), ROWS, "float32", "torch.neg", (X,)),
        ("torch.nn.functional.layer_norm", (X, [4], Y), ROWS, "float32", "torch.add", (X, Y)),
        ("torch.atan2", (X, Y), ROWS, "float32", "torch.add", (X, Y)),
        ("torch.gt", (X, Y), ROWS, "bool", "torch.eq", (X, Y)),
        ("torch.logsumexp", (X, -1), (2,), "float32", "torch.sum", (X, [1])),
        ("torch.logsumexp", (X, 0, True), (1, 4), "float32", "torch.sum", (X, [0], True)),
        ("torch.roll", (X, [8]), (8,), "float32", "torch.reshape", (X, [8])),
        ("aten::gelu.default", (X,), ROWS, "float32", "aten::neg.default", (X,)),
        ("aten::atan2.default", (X, Y), ROWS, "float32", "aten::add.Tensor", (X, Y)),
        ("mylib::scan.default", (X,), ROWS, "float32", "aten::neg.default", (X,)),
    ],
)
def test_the_plain_operation_of_the_same_form(
    target: str,
    args: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: str,
    target_after: str,
    args_after: tuple[Any, ...],
) -> None:
    node = reduced("simpler", one(target, args, shape=shape, dtype=dtype))
    assert next(iter(node.target.values())) == target_after
    assert node.args == args_after


def test_another_type_is_a_conversion() -> None:
    node = reduced("simpler", one("torch.isnan", (X,), dtype="bool"))
    assert (node.op, node.target, node.args) == ("call_method", "to", (X, {"dtype": "bool"}))


def test_the_second_operation_where_the_plain_one_hides_the_failure() -> None:
    row = next(p for p in REPLACEMENTS if p.name == "simpler")
    case, trace = make(["x"], [("n", "gelu", ["x"]), ("z", "atan", ["n"])], ["z"])
    best = shrinker(Fails(lambda c: "neg" not in ops(c) and "atan" in ops(c)), passes=(row,)).run(case, trace).case
    assert code(best) == "x -> n = relu(x) -> z = atan(n) -> z"


def test_an_operation_alone_that_matters_costs_one_question() -> None:
    oracle = Fails(lambda c: "gelu" in ops(c))
    row = next(p for p in REPLACEMENTS if p.name == "simpler")
    shrinker(oracle, passes=(row,)).run(*one("torch.gelu", (X,)))
    assert [ops(c) for c in oracle.asked] == [["neg"]]


def test_what_the_failure_blames_is_not_replaced_and_all_else_costs_one_question() -> None:
    row = next(p for p in REPLACEMENTS if p.name == "simpler")
    oracle = Fails(lambda c: "gelu" in ops(c))
    shrinker(oracle, passes=(row,), blamed=frozenset(["n"])).run(*one("torch.gelu", (X,)))
    assert not oracle.asked
    case, trace = make(["x"], [("m", "atan", ["x"]), ("n", "gelu", ["m"])], ["n"])
    result = shrinker(oracle, passes=(row,), blamed=frozenset(["n"])).run(case, trace)
    assert [ops(c) for c in oracle.asked] == [["neg", "gelu"]]
    assert ops(result.case) == ["neg", "gelu"]


def test_arguments_that_do_not_matter_cost_one_question_together() -> None:
    rows = [p for p in REPLACEMENTS if p.name in ("arguments", "numbers")]
    made = one("torch.conv2d", (X, Y, None, [1, 1], [0, 0], 4), {"more": [X, Y], "less": 7}, signature=CONV)
    oracle = Fails(lambda c: True)
    best = shrinker(oracle, passes=rows).run(*made).case
    assert len(oracle.asked) == 1
    assert (best.graph.compute[0].args, best.graph.compute[0].kwargs) == ((X, Y), {})


def test_what_makes_a_tensor_of_nothing_becomes_zeros() -> None:
    node = reduced("simpler", one("torch.randn", (2, 4)))
    assert (node.target, node.args) == ({"fn": "torch.zeros"}, ([2, 4],))
    assert node.kwargs == {"dtype": {"dtype": "float32"}, "device": {"device": "cpu"}}


def test_arguments_with_a_default_go_and_those_behind_get_their_names() -> None:
    made = one("torch.conv2d", (X, Y, None, [1, 1], [0, 0], 4), signature=CONV)
    assert reduced("arguments", made).args == (X, Y)
    kept = reduced("arguments", made, lambda n: 4 in (*n.args, *n.kwargs.values()))
    assert (kept.args, kept.kwargs) == ((X, Y), {"groups": 4})


def test_a_keyword_goes_unless_it_is_required() -> None:
    made = one("torch.full", ([4], 1), {"dtype": None, "size": [4]}, signature=(("size", False), ("value", False)))
    assert reduced("arguments", made).kwargs == {"size": [4]}


def test_lists_of_tensors_get_shorter() -> None:
    made = one("torch.cat", ([X, Y, X, Y],), inputs={"x": FOUR, "y": FOUR}, shape=(16,))
    assert reduced("arguments", made).args == ([X],)
    assert reduced("arguments", made, lambda n: len(n.inputs) == 2).args == ([X, Y],)


def test_lists_of_dimensions_get_shorter_and_shapes_do_not() -> None:
    signature = (("input", False), ("dim", True))
    made = one("torch.sum", (X, [0, 1]), shape=(), signature=signature)
    assert reduced("arguments", made, lambda n: len(n.args) == 2).args == (X, [0])
    assert reduced("arguments", one("torch.reshape", (X, [4, 2]), shape=(4, 2))).args == (X, [4, 2])


@pytest.mark.parametrize(
    ("number", "least", "found"),
    [(7, 0, 0), (7, 1, 1), (7, 3, 4), (1_000_000_007, 5_000_000, 10_000_000), (0.25, 0.1, 1.0), (True, 0, False)],
)
def test_numbers_are_0_or_1_or_as_short_as_will_do(number: float, least: float, found: float) -> None:
    node = reduced("numbers", one("torch.mul", (X, number)), lambda n: n.args[1] >= least)
    assert node.args == (X, found)
    assert type(node.args[1]) is type(number)


def test_sizes_are_no_numbers() -> None:
    assert reduced("numbers", one("torch.reshape", (X, [4, 2]), shape=(4, 2))).args == (X, [4, 2])
    assert reduced("numbers", one("permute", (X, 1, 0), op="call_method")).args == (X, 1, 0)
    known = (("input", False), ("dim", False))
    assert reduced("numbers", one("cumsum", (X, 1), op="call_method", signature=known)).args == (X, 0)


def test_what_only_the_former_call_read_goes() -> None:
    made = one("torch.where", (Y, X, {"ref": "z"}), inputs={"x": ROWS, "y": FOUR, "z": ROWS})
    best = shrinker(Fails(lambda case: True), passes=(*REMOVALS, *REPLACEMENTS)).run(*made).case
    assert code(best) == "x, y -> n = add(y, x) -> n"
    assert [spec.storage for spec in best.tensors] == ["in:x", "in:y"]


def test_nothing_is_accepted_that_is_not_smaller() -> None:
    case, trace = one("torch.conv2d", (X, Y, None, [1, 1], [0, 0], 4), signature=CONV)
    sizes = [size(case)]
    engine = shrinker(
        Fails(lambda c: True), passes=(*REMOVALS, *REPLACEMENTS), accepted=lambda c, key: sizes.append(size(c))
    )
    engine.run(case, trace)
    assert all(b < a for a, b in pairwise(sizes))
    assert len(sizes) > 1


def shortened(
    steps: Sequence[Step], shapes: dict[str, tuple[int, ...]], fails: Callable[[Case], bool], outputs: Sequence[str]
) -> tuple[str, Node]:
    """The result on one line, and what became of the node ``e``."""
    made = make(["x"], steps, outputs, {"x": ROWS, **shapes})
    row = next(p for p in REPLACEMENTS if p.name == "reroute")
    best = shrinker(Fails(fails), passes=(*REMOVALS, row)).run(*made).case
    return code(best), next((n for n in best.graph.compute if n.name == "e"), best.graph.compute[0])


def connected(case: Case) -> bool:
    """``atan`` depends on ``asinh``."""
    view = GraphView(case, Trace({}, (), {}))
    kinds = {name: view.kind(name) for name in view.compute}
    first = [n for n, kind in kinds.items() if kind == "asinh"]
    last = [n for n, kind in kinds.items() if kind == "atan"]
    return any(view.ancestors[b] >> view.position[a] & 1 for a in first for b in last)


WAYS = [
    ((2, 4), (8,), "reshape", (8,)),
    ((1, 4), (3, 4), "expand", (3, 4)),
    ((2, 4), (2, 3), "narrow", (1, 0, 3)),
    ((2, 4), (4,), "select", (0, 0)),
]


@pytest.mark.parametrize(("before", "after", "method", "rest"), WAYS, ids=[w[2] for w in WAYS])
def test_one_call_gives_the_shape_that_a_chain_gave(
    before: tuple[int, ...], after: tuple[int, ...], method: str, rest: tuple[int, ...]
) -> None:
    steps: list[Step] = [
        ("a", "asinh", ["x"]),
        ("b", "foo", ["a"]),
        ("c", "bar", ["b"]),
        ("d", "baz", ["c"]),
        ("e", "qux", ["d"]),
    ]
    steps += [("z", "atan", ["e"])]
    shapes = {"x": before, "a": before, "b": (5, 7), "c": (7, 5), "d": (35,), "e": after, "z": after}
    text, node = shortened(steps, shapes, connected, ["z"])
    assert (node.op, node.target, node.args) == ("call_method", method, ({"ref": "a"}, *rest))
    assert [step.split(" = ")[0] for step in text.split(" -> ")] == ["x", "a", "e", "z", "z"]


def test_a_result_that_it_does_not_depend_on_will_do() -> None:
    def fails(case: Case) -> bool:
        inner = {n.name: n for n in case.graph.compute}
        reads = {called(n): {called(inner[s]) for s in n.inputs if s in inner} for n in case.graph.compute}
        return bool(reads.get("torch.atan")) and reads.get("torch.tan") == {"torch.sinh"}

    steps: list[Step] = [("s", "sinh", ["x"]), ("e", "split", ["w"]), ("t", "tan", ["s"]), ("z", "atan", ["e"])]
    case, trace = make(["x", "w"], steps, ["t", "z"], dict.fromkeys("xsetz", ROWS))
    row = next(p for p in REPLACEMENTS if p.name == "reroute")
    best = shrinker(Fails(fails), passes=(*REMOVALS, row)).run(case, trace).case
    assert code(best) == "x -> s = sinh(x) -> t = tan(s) -> z = atan(s) -> t, z"


def test_a_reader_that_takes_any_shape_reads_past_a_node_that_gives_another() -> None:
    """Where what the node gives cannot be an input: a recorded value has not all that a computed one has."""
    steps: list[Step] = [("a", "asinh", ["x"]), ("b", "foo", ["a", "w"]), ("z", "atan", ["b"])]
    made = make(["x", "w"], steps, ["z"], {"x": ROWS, "w": (3,), "a": ROWS, "b": (5, 7), "z": (5, 7)})
    row = next(p for p in REPLACEMENTS if p.name == "read-past")
    oracle = Fails(connected)
    best = shrinker(oracle, passes=(*REMOVALS, row)).run(*made).case
    assert code(best) == "x -> a = asinh(x) -> z = atan(a) -> z"
    assert shrinker(Fails(connected), passes=REMOVALS).run(*made).case.graph.compute != best.graph.compute


def test_what_sizes_have_made_alike_is_read_past_in_the_end() -> None:
    """With tensors of one element, what reads the result of ``foo`` may read that of ``asinh``."""
    steps: list[Step] = [("a", "asinh", ["x"]), ("b", "foo", ["a"]), ("z", "atan", ["b"])]
    case, trace = make(["x"], steps, ["z"], {"x": ROWS, "a": ROWS, "b": (8,), "z": (8,)})

    def fails(case: Case) -> bool:
        return connected(case) and (case.tensors[0].numel == 1 or "foo" in code(case))

    def left(passes: Sequence[Pass]) -> list[str]:
        storages = Held({"in:x": bytes(range(32))})
        best = shrinker(Fails(fails), passes=passes, storages=storages, strict=True).run(case, trace).case
        return [node.target["fn"] for node in best.graph.compute if isinstance(node.target, dict)]

    assert left([replace(p, late=False) for p in PASSES]) == ["torch.asinh", "torch.foo", "torch.atan"]
    assert left(PASSES) == ["torch.asinh", "torch.atan"]


def test_the_last_node_is_not_read_past() -> None:
    """A graph that ends earlier was asked about before."""
    made = make(["x"], [("z", "atan", ["x"])], ["z"], {"x": ROWS, "z": (5, 7)})
    row = next(p for p in REPLACEMENTS if p.name == "read-past")
    assert row.propose(GraphView(*made), 0) is None
