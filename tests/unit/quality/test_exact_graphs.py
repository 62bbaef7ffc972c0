"""Not "it got smaller": the exact minimal graph, for failures of every form."""

from collections.abc import Callable, Sequence

from made import Fails, Step, code, make, ops, shrinker

from fxminify.store.document.case import Case


def minimal(
    fails: Callable[[Case], bool],
    inputs: Sequence[str],
    steps: Sequence[Step],
    outputs: Sequence[str],
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> str:
    case, trace = make(inputs, steps, outputs, shapes)
    assert fails(case)
    return code(shrinker(Fails(fails)).run(case, trace).case)


def reads(case: Case, name: str, source: str) -> bool:
    """An operation ``name`` reads the result of an operation ``source`` somewhere above it."""
    kinds = dict(zip([n.name for n in case.graph.compute], ops(case), strict=True))
    above: dict[str, set[str]] = {}
    for node in case.graph.nodes:
        above[node.name] = {kinds.get(i, "") for i in node.inputs}.union(*(above[i] for i in node.inputs))
    return any(kinds.get(n) == name and source in above[n] for n in above)


CHAIN: list[Step] = [
    ("a", "asinh", ["x"]),
    ("b", "add", ["a", "y"]),
    ("c", "mul", ["b", "a"]),
    ("d", "atan", ["c"]),
    ("e", "sub", ["d", "b"]),
]


def test_one_operation() -> None:
    assert minimal(lambda c: "atan" in ops(c), ["x", "y"], CHAIN, ["e"]) == "c -> d = atan(c) -> d"


def test_two_operations_share_one_input() -> None:
    assert minimal(lambda c: {"asinh", "atan"} <= set(ops(c)), ["x", "y"], CHAIN, ["e"]) == (
        "x -> a = asinh(x) -> d = atan(x) -> a, d"
    )


def test_two_connected_operations_touch() -> None:
    assert minimal(lambda c: reads(c, "atan", "asinh"), ["x", "y"], CHAIN, ["e"]) == (
        "x -> a = asinh(x) -> d = atan(a) -> d"
    )


def test_shapes_between_connected_operations_stay() -> None:
    steps: list[Step] = [
        ("a", "asinh", ["x"]),
        ("g", "gelu", ["a"]),
        ("v", "view", ["g"]),
        ("h", "gelu", ["v"]),
        ("d", "atan", ["h"]),
    ]
    shapes = {"x": (2, 2), "a": (2, 2), "g": (2, 2), "v": (4,), "h": (4,), "d": (4,)}
    assert minimal(lambda c: reads(c, "atan", "asinh"), ["x"], steps, ["d"], shapes) == (
        "x -> a = asinh(x) -> v = view(a) -> d = atan(v) -> d"
    )


def test_a_path_of_a_hundred_nodes() -> None:
    steps: list[Step] = [("s0", "asinh", ["x"])]
    steps += [(f"s{i}", "gelu", [f"s{i - 1}"]) for i in range(1, 99)]
    steps += [("end", "atan", ["s98"])]
    assert minimal(lambda c: reads(c, "atan", "asinh"), ["x"], steps, ["end"]) == (
        "x -> s0 = asinh(x) -> end = atan(s0) -> end"
    )


def test_three_nodes_of_one_common_kind() -> None:
    steps: list[Step] = [(f"s{i}", "gelu", [f"s{i - 1}" if i else "x"]) for i in range(40)]
    assert minimal(lambda c: len(ops(c)) >= 3, ["x"], steps, ["s39"]).count("gelu") == 3


def test_everything_is_needed() -> None:
    assert minimal(lambda c: len(ops(c)) == 5 and len(c.graph.placeholders) == 2, ["x", "y"], CHAIN, ["e"]) == (
        "x, y -> a = asinh(x) -> b = add(a, y) -> c = mul(b, a) -> d = atan(c) -> e = sub(d, b) -> e"
    )


def test_two_returned_values() -> None:
    def fails(case: Case) -> bool:
        returned = set(case.graph.output.inputs)
        kinds = dict(zip([n.name for n in case.graph.compute], ops(case), strict=True))
        return {"asinh", "atan"} <= {kinds.get(n) for n in returned}

    assert minimal(fails, ["x", "y"], CHAIN, ["a", "d", "e"]) == "x -> a = asinh(x) -> d = atan(x) -> a, d"


def test_an_input_that_is_returned() -> None:
    def fails(case: Case) -> bool:
        inputs = {n.name for n in case.graph.placeholders}
        return "atan" in ops(case) and not inputs.isdisjoint(case.graph.output.inputs)

    assert minimal(fails, ["x", "y"], CHAIN, ["y", "e", "x"]) == "x -> d = atan(x) -> x, d"


def test_dead_code_goes() -> None:
    steps: list[Step] = [*CHAIN, ("dead", "exp", ["c"]), ("deader", "log", ["dead"])]
    assert minimal(lambda c: "atan" in ops(c), ["x", "y"], steps, ["e"]) == "c -> d = atan(c) -> d"


def test_dead_code_that_matters_stays() -> None:
    steps: list[Step] = [*CHAIN, ("dead", "exp_", ["c"])]
    assert minimal(lambda c: "exp_" in ops(c), ["x", "y"], steps, ["e"]) == "c -> dead = exp_(c) -> dead"
