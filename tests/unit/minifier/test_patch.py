"""What each edit makes of a case."""

from dataclasses import replace

from made import code, make, spec

from fxminify.minifier.candidate.graph_view import GraphView
from fxminify.minifier.candidate.order import size
from fxminify.minifier.candidate.patch import Patch, apply, merge
from fxminify.minifier.candidate.trace import Recorded, Trace, ValueKind
from fxminify.store.document.case import Case, Graph, Node, TensorSpec

CHAIN = make(["x"], [("a", "sin", ["x"]), ("b", "cos", ["a"]), ("c", "add", ["b", "x"])], ["c"])


def applied(patch: Patch, made: tuple[Case, Trace] = CHAIN) -> str:
    case = apply(GraphView(*made), patch)
    return "nothing" if case is None else code(case)


def test_nothing_to_do_only_tidies_up() -> None:
    made = make(["x", "unused"], [("a", "sin", ["x"])], ["a"])
    assert applied(Patch(), made) == "x -> a = sin(x) -> a"


def test_a_dropped_node_becomes_an_input_and_what_it_read_is_returned() -> None:
    assert applied(Patch(drop=frozenset("b"))) == "x, b -> a = sin(x) -> c = add(b, x) -> a, c"


def test_a_dropped_end_returns_what_it_read() -> None:
    assert applied(Patch(drop=frozenset("bc"))) == "x -> a = sin(x) -> a"


def test_a_returned_value_stays_returned_although_it_is_read() -> None:
    made = make(["x"], [("a", "sin", ["x"]), ("b", "cos", ["a"]), ("c", "exp", ["b"])], ["a", "c"])
    assert applied(Patch(drop=frozenset("c")), made) == "x -> a = sin(x) -> b = cos(a) -> a, b"


def test_dropping_everything_is_no_candidate() -> None:
    assert applied(Patch(drop=frozenset("abc"))) == "nothing"


def test_a_bypassed_node_goes_with_what_only_it_needed() -> None:
    assert applied(Patch(replace={"b": {"ref": "x"}})) == "x -> c = add(x) -> c"


def test_bypasses_in_a_row_are_followed_to_their_end() -> None:
    both = merge([Patch(replace={"c": {"ref": "b"}}), Patch(replace={"b": {"ref": "a"}})])
    assert applied(both) == "x -> a = sin(x) -> a"


def test_of_two_bypasses_of_one_node_the_first_counts() -> None:
    both = merge([Patch(replace={"c": {"ref": "x"}}), Patch(replace={"c": {"ref": "b"}})])
    assert both.replace == {"c": {"ref": "x"}}


def test_cutting_an_output_removes_what_only_it_needed() -> None:
    made = make(["x", "y"], [("a", "sin", ["x"]), ("b", "cos", ["y"])], ["a", "b"])
    assert applied(Patch(cut=frozenset([1])), made) == "x -> a = sin(x) -> a"


def test_cutting_all_outputs_is_no_candidate() -> None:
    assert applied(Patch(cut=frozenset([0]))) == "nothing"


def test_erasing_dead_nodes_returns_nothing_more() -> None:
    made = make(["x"], [("a", "sin", ["x"]), ("d", "exp", ["a"]), ("e", "log", ["d"]), ("b", "cos", ["a"])], ["b"])
    assert applied(Patch(erase=frozenset("d")), made) == "x -> a = sin(x) -> b = cos(a) -> b"


def test_older_dead_code_outlives_a_bypass() -> None:
    made = make(["x"], [("a", "sin", ["x"]), ("d", "exp_", ["a"]), ("b", "cos", ["a"])], ["b"])
    assert applied(Patch(replace={"b": {"ref": "a"}}), made) == "x -> a = sin(x) -> d = exp_(a) -> a"


def test_inputs_handed_through_are_returned_until_they_are_cut() -> None:
    made = make(["x", "y"], [("a", "sin", ["x"]), ("b", "cos", ["a"])], ["y", "b"])
    assert applied(Patch(drop=frozenset("b")), made) == "x, y -> a = sin(x) -> y, a"
    assert applied(Patch(drop=frozenset("b"), cut=frozenset([0])), made) == "x -> a = sin(x) -> a"


def test_recorded_tensors_take_the_place_of_dropped_nodes() -> None:
    case = apply(GraphView(*CHAIN), Patch(drop=frozenset("ab")))
    assert case is not None
    assert [t.storage for t in case.tensors] == ["in:x", "b@0"]
    assert case.inputs == ({"tensor": 0}, {"tensor": 1})


def test_an_alias_shares_its_storage_and_unused_tensors_go() -> None:
    case, trace = make(["x", "y", "z"], [("a", "add", ["x", "z"])], ["a"])
    case = replace(case, tensors=(spec(storage="one"), spec(storage="two"), spec(storage="one")))
    reduced = apply(GraphView(case, trace), Patch())
    assert reduced is not None
    assert [t.storage for t in reduced.tensors] == ["one", "one"]
    assert reduced.inputs == ({"tensor": 0}, {"tensor": 1})


def test_a_reader_sees_the_version_it_saw() -> None:
    made, trace = make(["x"], [("a", "sin", ["x"]), ("m", "relu_", ["a"]), ("b", "cos", ["a"])], ["m", "b"])
    early, late = spec(storage="a@0"), spec(storage="a@1")
    values = {**trace.values, "a": Recorded(ValueKind.TENSOR, ((2, 3), (3, 4)))}
    view = GraphView(made, replace(trace, values=values, tensors=(*trace.tensors, early, late)))
    without_a = apply(view, Patch(drop=frozenset("a")))
    without_both = apply(view, Patch(drop=frozenset("am")))
    assert without_a is not None
    assert without_both is not None
    assert [t.storage for t in without_a.tensors] == ["a@0"]
    assert [t.storage for t in without_both.tensors] == ["a@1"]


def test_numbers_are_written_where_they_are_read() -> None:
    case, trace = make(["x"], [("n", "size", ["x"]), ("a", "view", ["x", "n"])], ["a"])
    view = GraphView(case, replace(trace, values={**trace.values, "n": Recorded(ValueKind.LITERAL, literal=4)}))
    reduced = apply(view, Patch(drop=frozenset("n")))
    assert reduced is not None
    assert reduced.graph.compute[0].args == ({"ref": "x"}, 4)


def test_whoever_reads_a_tuple_keeps_its_producer() -> None:
    nodes = (
        Node("x", "placeholder", "x"),
        Node("s", "call_function", {"fn": "torch.split"}, ({"ref": "x"}, 2)),
        Node("g0", "call_function", {"fn": "operator.getitem"}, ({"ref": "s"}, 0)),
        Node("g1", "call_function", {"fn": "operator.getitem"}, ({"ref": "s"}, 1)),
        Node("c", "call_function", {"fn": "torch.cat"}, ({"ref": "s"},)),
        Node("output", "output", "output", ({"tuple": [{"ref": "g0"}, {"ref": "g1"}, {"ref": "c"}]},)),
    )
    values = {n: Recorded(ValueKind.TENSOR, ((0, 0),)) for n in ("g0", "g1", "c")} | {"s": Recorded(ValueKind.OPAQUE)}
    case = Case(Graph(nodes), ({"tensor": 0},), (spec(),))
    view = GraphView(case, Trace(values, (spec(),), {n.name: i for i, n in enumerate(nodes)}))
    assert view.atoms == (("s", "g0", "g1"), ("c",))
    kept = apply(view, Patch(drop=frozenset(["s", "g0", "g1"])))
    assert kept is not None
    assert code(kept) == "x -> s = split(x) -> g0 = getitem(s) -> g1 = getitem(s) -> c = cat(s) -> g0, g1, c"


def test_what_switches_state_on_goes_with_what_switches_it_off() -> None:
    case, trace = make(
        ["x"],
        [("e", "_enter_autocast", []), ("a", "mm", ["x"]), ("q", "_exit_autocast", ["e"]), ("b", "cos", ["a"])],
        ["b"],
    )
    assert GraphView(case, trace).atoms == (("e", "q"), ("a",), ("b",))


def test_a_functorch_region_is_one_unit() -> None:
    case, trace = make(
        ["x"],
        [
            ("i", "_vmap_increment_nesting", []),
            ("w", "_add_batch_dim", ["x", "i"]),
            ("s", "sin", ["w"]),
            ("r", "_remove_batch_dim", ["s", "i"]),
            ("d", "_vmap_decrement_nesting", []),
            ("b", "cos", ["r"]),
        ],
        ["b"],
    )
    assert GraphView(case, trace).atoms == (("i", "w", "s", "r", "d"), ("b",))


def test_only_used_attributes_stay() -> None:
    nodes = (
        Node("w", "get_attr", "w"),
        Node("v", "get_attr", "v"),
        Node("a", "call_function", {"fn": "torch.sin"}, ({"ref": "v"},)),
        Node("output", "output", "output", ({"tuple": [{"ref": "a"}]},)),
    )
    attrs = {"w": {"tensor": 0, "kind": "buffer"}, "v": {"tensor": 1, "kind": "parameter"}}
    case = Case(Graph(nodes, attrs), (), (spec(storage="w"), spec(storage="v")))
    reduced = apply(GraphView(case, Trace({"a": Recorded(ValueKind.TENSOR)}, (), {})), Patch())
    assert reduced is not None
    assert reduced.graph.attrs == {"v": {"tensor": 0, "kind": "parameter"}}
    assert reduced.tensors == (spec(storage="v"),)


def test_tensors_of_the_context_move_along() -> None:
    case, trace = make(["x", "y"], [("a", "sin", ["y"])], ["a"])
    state = TensorSpec("uint8", (5,), (1,), storage="rng")
    case = replace(case, tensors=(*case.tensors, state), context={"rng": {"cpu": {"tensor": 2}}})
    reduced = apply(GraphView(case, trace), Patch())
    assert reduced is not None
    assert reduced.tensors[reduced.context["rng"]["cpu"]["tensor"]] == state


def test_size_counts_compute_nodes_then_outputs_then_inputs() -> None:
    assert size(CHAIN[0]) == (3, 9, 1, 1, 4, 4, 4)
