"""A graph's data as the Python a maintainer reads."""

from __future__ import annotations

from typing import Any

import pytest

from fxminify.repro_templates.source.expressions import Unprintable
from fxminify.repro_templates.source.function import print_graph
from fxminify.store.document.case import Case, Graph, Node


def ref(name: str) -> dict[str, str]:
    return {"ref": name}


def x(name: str = "l_x_", target: str = "L_x_", **meta: Any) -> Node:
    return Node(name, "placeholder", target, meta=meta)


def fn(name: str, target: str, *args: Any, meta: dict[str, Any] | None = None, **kwargs: Any) -> Node:
    return Node(name, "call_function", {"fn": target}, args, kwargs, meta or {})


def case(*nodes: Node, out: Any, attrs: dict[str, Any] | None = None) -> Case:
    graph = Graph((*nodes, Node("output", "output", "output", (out,))), attrs or {})
    return Case(graph, tuple({"tensor": i} for i, _ in enumerate(graph.placeholders)))


def text(*nodes: Node, out: Any, attrs: dict[str, Any] | None = None) -> str:
    printed = print_graph(case(*nodes, out=out, attrs=attrs))
    compile(printed.text, "printed", "exec")
    return printed.text


TENSOR: dict[str, Any] = {"dtype": "float32", "shape": [2, 3]}


def test_the_minimal_graph_is_two_lines() -> None:
    node = x("l_energy_", "L_energy_")
    assert text(node, fn("acosh_17", "torch.acosh", ref("l_energy_")), out={"tuple": [ref("acosh_17")]}) == (
        "def forward(energy):\n    return torch.acosh(energy)"
    )


def test_operators_print_as_syntax() -> None:
    assert text(
        x(),
        fn("a", "_operator.add", ref("l_x_"), -2),
        fn("b", "_operator.neg", ref("a")),
        fn("c", "_operator.getitem", ref("b"), {"tuple": [{"ellipsis": True}, {"slice": [None, 2, None]}, None]}),
        fn("d", "_operator.matmul", ref("c"), ref("b")),
        out=ref("d"),
    ).splitlines()[1:] == ["    a = x + (-2)", "    b = -a", "    c = b[..., :2, None]", "    return c @ b"]


def test_a_method_of_a_number_stands_behind_brackets() -> None:
    assert text(x(), Node("s", "call_method", "sum", (0,)), out=ref("s")) == "def forward(x):\n    return (0).sum()"
    assert text(x(), fn("r", "builtins.getattr", 1.5, "real"), out=ref("r")) == "def forward(x):\n    return (1.5).real"


def test_numbers_of_dropped_nodes_are_not_kept() -> None:
    lines = text(x(), fn("sin_4", "torch.sin", ref("l_x_")), fn("sin_9", "torch.sin", ref("sin_4")),
                 out={"tuple": [ref("sin_4"), ref("sin_9")]}).splitlines()  # fmt: skip
    assert lines[1:] == ["    sin = torch.sin(x)", "    sin_1 = torch.sin(sin)", "    return (sin, sin_1)"]


def test_in_place_operator_on_a_tensor_is_a_statement() -> None:
    lines = text(x(**TENSOR), fn("y", "_operator.iadd", ref("l_x_"), 1),
                 fn("z", "_operator.mul", ref("y"), ref("l_x_")), out=ref("z")).splitlines()  # fmt: skip
    assert lines[1:] == ["    x += 1", "    return x * x"]


def test_in_place_operator_on_an_int_that_is_read_again_stays_a_call() -> None:
    lines = text(x(), fn("y", "_operator.iadd", ref("l_x_"), 1),
                 out={"tuple": [ref("y"), ref("l_x_")]}).splitlines()  # fmt: skip
    assert lines[1:] == ["    y = operator.iadd(x, 1)", "    return (y, x)"]


def test_autocast_calls_become_a_block() -> None:
    lines = text(
        x(),
        fn("enter", "torch.amp.autocast_mode._enter_autocast", "cpu", {"dtype": "bfloat16"}, True, None),
        fn("y", "torch.mm", ref("l_x_"), ref("l_x_")),
        fn("leave", "torch.amp.autocast_mode._exit_autocast", ref("enter")),
        out=ref("y"),
    ).splitlines()
    assert lines[1:] == [
        '    with torch.autocast("cpu", dtype=torch.bfloat16):',
        "        return torch.mm(x, x)",
    ]


def test_sub_graphs_are_functions_before_their_user() -> None:
    branch = Graph((x("arg0_1", "arg0_1"), fn("sin", "torch.sin", ref("arg0_1")),
                    Node("output", "output", "output", ({"tuple": [ref("sin")]},))))  # fmt: skip
    cond = Node("cond", "call_function", {"hop": "cond"},
                (ref("l_p_"), ref("cond_true_0"), ref("cond_true_0"), {"tuple": [ref("l_x_")]}))  # fmt: skip
    assert text(
        x(), x("l_p_", "L_p_"), Node("cond_true_0", "get_attr", "cond_true_0"), cond,
        fn("getitem", "_operator.getitem", ref("cond"), 0),
        out=ref("getitem"), attrs={"cond_true_0": {"graph": branch}},
    ).splitlines() == [
        "def cond_true(x):",
        "    return torch.sin(x)",
        "",
        "def forward(x, p):",
        "    return torch.cond(p, cond_true, cond_true, (x,))",
    ]  # fmt: skip


def test_inputs_of_modules_get_the_shortest_names_that_differ() -> None:
    stem = "L_self_modules_layers_modules_"
    targets = [f"{stem}0_modules_attn_parameters_weight_", f"{stem}1_modules_attn_parameters_weight_",
               f"{stem}1_modules_attn_parameters_bias_", "L_kwargs_input_ids_", "s77"]  # fmt: skip
    nodes = [x(t.lower(), t) for t in targets]
    assert print_graph(case(*nodes, out=None)).parameters == (
        "layers_0_attn_weight", "layers_1_attn_weight", "bias", "input_ids", "s77",
    )  # fmt: skip


def test_a_held_tensor_is_a_module_level_name() -> None:
    printed = print_graph(
        case(x(), Node("_tensor_constant0", "get_attr", "_tensor_constant0"),
             fn("y", "torch.add", ref("l_x_"), ref("_tensor_constant0")), out=ref("y"),
             attrs={"_tensor_constant0": {"tensor": 5, "kind": "attribute"}})
    )  # fmt: skip
    assert printed.text.splitlines()[-1] == "    return torch.add(x, constant)"
    assert [(c.name, c.tensor) for c in printed.constants] == [("constant", 5)]


@pytest.mark.parametrize(
    "node",
    [
        fn("y", "torch.relu;evil"),
        fn("y", "torch.relu\nevil"),
        Node("y", "call_method", "a)(", (ref("l_x_"),)),
        Node("y", "call_method", "sin\n", (ref("l_x_"),)),
        Node("y", "call_function", {"op": "aten::relu.default\n"}, (ref("l_x_"),)),
        Node("y", "call_function", {"fn": "torch.relu"}, (ref("l_x_"),), {"a=evil()": 1}),
        fn("y", "torch.relu", {"dtype": "float32)("}),
        fn("y", "torch.relu", {"device": "cpu')("}),
        fn("y", "torch.relu", {"object": 3}),
        fn("y", "torch.relu", {"float": "evil()"}),
        fn("y", "torch.relu", ref("nowhere")),
        Node("y", "call_module", "m", (ref("l_x_"),)),
    ],
)
def test_what_is_not_a_plain_name_is_refused_with_its_node(node: Node) -> None:
    with pytest.raises(Unprintable) as caught:
        print_graph(case(x(), node, out=ref("y")))
    assert caught.value.node == "y"


def test_hostile_texts_stay_inside_literals_and_comments() -> None:
    hostile = '\'"""\\\n\r\u2028 eval()'
    printed = text(
        x("l_x_", "x=evil()"),
        fn("y", "torch.relu", ref("l_x_"), hostile, meta={"dtype": "float32", "shape": ["s\nevil()"]}),
        fn("z", "torch.relu", ref("y"), meta={"dtype": "\nevil()", "shape": [3]}),
        fn("u", "torch.relu", ref("z")),
        out=ref("u"),
    )
    assert printed.isascii()
    assert printed.splitlines()[0] == "def forward(x_evil):"
    assert len(printed.splitlines()) == 4
