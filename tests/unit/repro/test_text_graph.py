"""Graphs drawn in text: every value runs in a lane from where it is made to where it is read."""

from __future__ import annotations

from fxminify.repro_templates.report.text_graph import MOST_LANES, text_graph
from fxminify.store.document.case import Graph, Node


def call(name: str, function: str, *inputs: str) -> Node:
    target = {"fn": f"torch.{function}"}
    return Node(
        name, "call_function", target, tuple({"ref": i} for i in inputs), meta={"dtype": "float32", "shape": [2]}
    )


def graph(*nodes: Node, returned: tuple[str, ...], **attrs: Graph) -> Graph:
    output = Node("output", "output", "output", ({"tuple": [{"ref": name} for name in returned]},))
    return Graph((*nodes, output), {path: {"graph": body} for path, body in attrs.items()})


X, W = Node("x", "placeholder", "L_x_"), Node("w", "placeholder", "L_self_modules_fc_parameters_weight_")


def test_a_chain_is_one_lane() -> None:
    assert text_graph(graph(X, call("a", "sin", "x"), call("b", "cos", "a"), returned=("b",))) == [
        "○  x",
        "●  a = sin(x)  f32[2]",
        "●  b = cos(a)  f32[2]",
        "■  return (b,)",
    ]


def test_lanes_part_and_meet_and_a_node_is_pointed_at() -> None:
    nodes = (X, W, call("a", "mm", "x", "w"), call("b", "sin", "a"), call("c", "add", "x", "b"))
    more = (call("d", "cat", "a", "c"),)
    assert text_graph(graph(*nodes, *more, call("e", "mul", "w", "d"), returned=("e", "b")), culprits=["d"]) == [
        "○        x",
        "│ ○      weight",
        "├─┼─┐",
        "│ │ ●    a = mm(x, weight)  f32[2]",
        "│ │ ├─┐",
        "│ │ │ ●  b = sin(a)  f32[2]",
        "├─│─│─┤",
        "● │ │ │  c = add(x, b)  f32[2]",
        "├─│─┘ │",
        "● │   │  d = cat(a, c)  f32[2]  ← here",
        "├─┘   │",
        "●     │  e = mul(weight, d)  f32[2]",
        "├─────┘",
        "■        return (e, b)",
    ]


def test_a_value_nobody_reads_ends_where_it_is_made() -> None:
    assert text_graph(graph(W, X, call("unused", "cos", "x"), call("a", "sin", "x"), returned=("a",))) == [
        "○    weight",
        "○    x",
        "├─┐",
        "│ ●  unused = cos(x)  f32[2]",
        "●    a = sin(x)  f32[2]",
        "■    return (a,)",
    ]


def test_inputs_stand_above_their_first_reader() -> None:
    more = [Node(f"p{i}", "placeholder", f"L_p{i}_") for i in range(40)]
    sums = [call(f"s{i}", "add", f"s{i - 1}" if i else "x", f"p{i}") for i in range(40)]
    drawn = text_graph(graph(X, *more, *sums, returned=("s39",)))
    assert max(line.index(line.split()[-1]) for line in drawn if line.strip()) < 60
    assert drawn[:5] == ["○    x", "│ ○  p0", "├─┘", "●    s0 = add(x, p0)  f32[2]", "│ ○  p1"]


def test_more_lanes_than_fit_are_left_to_the_names() -> None:
    many = [call(f"a{i}", "sin", "x") for i in range(60)]
    drawn = text_graph(graph(X, *many, call("all", "cat", *(n.name for n in many)), returned=("all",)))
    assert max(len(line.partition("  ")[0]) for line in drawn) <= 2 * MOST_LANES
    assert drawn[-1].split(maxsplit=1)[1] == "return (all,)"


def test_a_body_follows_under_its_name() -> None:
    body = graph(Node("y", "placeholder", "y"), call("t", "tanh", "y"), returned=("t",))
    held = Node("body_0", "get_attr", "body_0")
    drawn = text_graph(graph(X, held, call("c", "cond", "x", "body_0"), returned=("c",), body_0=body))
    assert drawn[-5:] == ["", "body_0:", "  ○  y", "  ●  t = tanh(y)  f32[2]", "  ■  return (t,)"]
    assert "◇" in drawn[1]


def test_without_unicode_the_drawing_is_ascii() -> None:
    text = "\n".join(text_graph(graph(X, W, call("a", "mm", "x", "w"), returned=("a",)), culprits=["a"], ascii=True))
    assert text == "o    x\n| o  weight\n+-+\n*    a = mm(x, weight)  f32[2]  < here\n=    return (a,)"
