"""Which nodes a failure names, and what following a hint costs, right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from made import Fails, Step, code, has, make, ops, shrinker, spec

from fxminify.minifier.candidate.trace import Trace
from fxminify.minifier.reducer.hints import blamed, named
from fxminify.store.document.case import Case, Graph, Node, Value
from fxminify.store.failure import Failure, FailureKind, Frame, Phase

COMMON = ("add", "mul", "gelu", "linear", "layer_norm", "view", "softmax")
#: One culprit of a kind, named as real compilers name it: what was said, and the operator in the graph.
SAID = [
    # functionalization, through torch.fx.Interpreter
    ("While executing %n50 : [num_users=1] = call_method[target=abs_](args = (%n49,), kwargs = {})", "abs_"),
    # the Dynamo-based ONNX exporter
    ("No decompositions registered for the real-valued input. Failed to convert 'aten.lgamma.default'", "lgamma"),
    # onnxruntime
    ("NOT_IMPLEMENTED : Could not find an implementation for Trilu(14) node with name 'node_Trilu_5'", "trilu"),
    ("FAIL : Node (node_GridSample_31) Op (GridSample) [TypeInferenceError] must be 4-D", "grid_sample"),
    # Inductor's lowerings
    ("LoweringException: AssertionError: \n  target: aten.fractional_max_pool2d.default\n", "fractional_max_pool2d"),
    (
        "No ONNX function found for <OpOverload(op=.aten._cdist_forward')>. Error when translating node "
        "%_cdist_forward : [num_users=1] = call_function[target=torch.ops.aten._cdist_forward.default]"
        "(args = (%n46, %n47, 2.0, None), kwargs = {})",
        "cdist",
    ),
    # OpenVINO, IREE
    ("No conversion rule found for operations: aten::histc", "histc"),
    ("error: failed to legalize operation 'torch.operator' : \"torch.aten.cummax\"", "cummax"),
]


def tower(operation: str, at: int = 50, count: int = 100) -> list[Step]:
    """A path of common operations, with one of another kind."""
    before = ["x", *(f"n{i}" for i in range(count))]
    return [(f"n{i}", operation if i == at else COMMON[i % len(COMMON)], [before[i]]) for i in range(count)]


def failure(message: str = "", **more: Any) -> Failure:
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", message, **more)


def engine(fails: Callable[[Case], bool], case: Case, trace: Trace, *failures: Failure) -> tuple[Case, int]:
    result = shrinker(Fails(fails), hints=named(case, failures)).run(case, trace)
    return result.case, result.queries


@pytest.mark.parametrize(("message", "operation"), SAID)
def test_an_operator_in_the_message_is_the_first_that_is_tried(message: str, operation: str) -> None:
    case, trace = make(["x"], tower(operation), ["n99"])
    assert named(case, [failure(message)])[0] == ("n50",)
    best, queries = engine(has(operation), case, trace, failure(message))
    assert code(best) == f"n49 -> n50 = {operation}(n49) -> n50"
    assert queries == 1


def test_single_culprits_take_four_questions_in_the_median_even_where_half_of_the_messages_say_nothing() -> None:
    asked = []
    for message, operation in SAID:
        for said in (message, "Internal compiler error"):
            case, trace = make(["x"], tower(operation), ["n99"])
            asked.append(engine(has(operation), case, trace, failure(said))[1])
    assert median(asked) <= 4
    assert max(asked) <= 8


def test_a_culprit_among_many_of_its_kind_is_found_among_them() -> None:
    case, trace = make(["x"], tower("erf"), ["n99"])
    hints = named(case, [failure("cannot lower aten.softmax.int")])
    assert [len(h) for h in hints] == [14]
    said = failure("aten.softmax")
    best, queries = engine(lambda c: any(n.name == "n55" for n in c.graph.compute), case, trace, said)
    assert code(best) == "n54 -> n55 = softmax(n54) -> n55"
    assert queries <= 8


def test_a_frame_of_the_backend_names_an_operator() -> None:
    case, _ = make(["x"], tower("grid_sample"), ["n99"])
    frames = (Frame("pkg/compile.py", "compile_graph", 3), Frame("pkg/lower.py", "lower_grid_sample", 30))
    assert named(case, [failure("list index out of range", frames=frames)]) == (("n50",),)


def test_a_cause_and_what_was_printed_count_too() -> None:
    case, _ = make(["x"], tower("lgamma"), ["n99"])
    caused = failure("Failed to convert the model", causes=(("KeyError", "no function for 'aten.lgamma.default'"),))
    printed = failure("the compiler failed", diagnostics="loc(...): error: failed to legalize 'torch.aten.lgamma'")
    assert named(case, [caused])[0] == named(case, [printed])[0] == ("n50",)


def test_a_line_of_the_program_names_its_nodes() -> None:
    case, _ = make(["x"], tower("erf"), ["n99"])
    nodes = tuple(
        type(n)(n.name, n.op, n.target, n.args, n.kwargs, {"stack": f"model.py:{n.name[1:]} forward"})
        for n in case.graph.nodes
    )
    case = Case(type(case.graph)(nodes), case.inputs, case.tensors)
    said = 'Original traceback:\n  File "/a/train.py", line 3, in main\n  File "/a/model.py", line 50, in forward'
    assert named(case, [failure(said)]) == (("n50",),)


def test_a_name_that_stands_for_another_node_after_a_second_trace_is_not_believed() -> None:
    case, _ = make(["x"], tower("erf"), ["n99"])
    assert named(case, [failure("While executing %n3 : call_function[target=torch.erf](args = (%n2,))")]) == (("n50",),)


def test_prose_names_nothing_that_comes_before_an_operator() -> None:
    steps = [*tower("erf"), ("i", "index", ["n99"]), ("w", "where", ["i"])]
    case, _ = make(["x"], steps, ["w"])
    hints = named(case, [failure("index out of bounds where aten.erf was expected")])
    assert hints[0] == ("n50",)


def test_of_a_divergence_what_differs_depends_on_counts() -> None:
    steps: list[Step] = [("a", "exp", ["x"]), ("b", "log", ["a"]), ("c", "erf", ["x"]), ("d", "sin", ["c"])]
    case, _ = make(["x"], [*steps, ("e", "cos", ["d"])], ["b", "e"])
    differs = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0: differs", detail={"where": "output 0"})
    assert named(case, [differs]) == (("a", "b"),)


@pytest.mark.parametrize("operation", ["erf", "gelu"])
def test_a_wrong_hint_costs_four_questions_at_most(operation: str) -> None:
    case, trace = make(["x"], tower(operation, 70), ["n99"])
    culprit = "n70"

    def fails(c: Case) -> bool:
        return any(n.name == culprit for n in c.graph.compute)

    alone, without = engine(fails, case, trace)
    wrong = failure("%n3 aten.gelu and %n10 aten.linear and %n4 aten.layer_norm and aten.view.default")
    best, queries = engine(fails, case, trace, wrong)
    assert best == alone
    assert queries <= without + 4


def test_a_hint_at_one_of_two_culprits_loses_nothing() -> None:
    steps = tower("erf")
    steps[80] = ("n80", "atan", ["n79"])
    case, trace = make(["x"], steps, ["n99"])
    best, _ = engine(has("erf", "atan"), case, trace, failure("aten.erf"))
    assert sorted(ops(best)) == ["atan", "erf"]


def test_what_the_culprit_reads_comes_along_where_it_must() -> None:
    """Fused with its producer only: the node alone does not fail."""
    case, trace = make(["x"], tower("erf"), ["n99"])

    def fails(c: Case) -> bool:
        return any(n.name == "n50" and "n49" in n.inputs for n in c.graph.compute) and "n49" in {
            n.name for n in c.graph.compute
        }

    best, queries = engine(fails, case, trace, failure("aten.erf"))
    assert ops(best) == ["add", "erf"]
    assert queries <= 6


def ref(name: str) -> Value:
    return {"ref": name}


def called(name: str, operation: str, read: str) -> Node:
    return Node(name, "call_function", {"fn": f"torch.{operation}"}, (ref(read),))


def test_of_an_operator_with_bodies_what_stands_in_them_is_the_hint() -> None:
    end = Node("o", "output", "output", ([ref("s")],))
    inner = Graph((Node("y", "placeholder", "y"), called("s", "exp", "y"), end))
    nodes = (
        Node("x", "placeholder", "x"),
        *(called(f"a{i}", "relu", f"a{i - 1}" if i else "x") for i in range(9)),
        Node("subgraph", "get_attr", "subgraph"),
        Node("w", "call_function", {"hop": "tag_activation_checkpoint"}, (ref("subgraph"), ref("a8"))),
        Node("g", "call_function", {"fn": "_operator.getitem"}, (ref("w"), 0)),
        Node("output", "output", "output", ({"tuple": [ref("g")]},)),
    )
    case = Case(Graph(nodes, {"subgraph": {"graph": inner}}), ({"tensor": 0},), (spec(),))
    assert named(case, [], "g") == (("g", "s"),)
    assert named(case, [failure("no lowering for tag_activation_checkpoint")]) == (("w", "s"),)


def test_whom_an_error_blames() -> None:
    case, _ = make(["x"], tower("erf"), ["n99"])
    assert blamed(case, [failure("no lowering for aten.erf.default")], None) == {"n50"}
    assert blamed(case, [failure("aten.erf after aten.gelu")], None) == frozenset()
    assert blamed(case, [failure("it went wrong")], None) == frozenset()
    wrong = {
        kind: Failure(FailureKind.DIVERGENCE, Phase.FORWARD, detail={"class": kind})
        for kind in ("nan", "value", "stride")
    }
    assert blamed(case, [wrong["value"]], "n3") == {"n3"}
    assert blamed(case, [wrong["nan"]], "n3") == {"n3"}
    assert blamed(case, [wrong["stride"]], "n3") == frozenset()
    alone, _ = make(["x"], [("a", "erf", ["x"])], ["a"])
    assert blamed(alone, [wrong["nan"]], None) == {"a"}
    assert blamed(case, [wrong["nan"]], None) == frozenset()
