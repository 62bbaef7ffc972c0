"""Looking at ONNX: a model as text and as a picture, in Python and from the command line."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import onnx
import onnx.helper as oh
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto

from fxminify.backends.drawing.svg import MOST_BOXES
from fxminify.backends.shipped.onnxrt import Storage, compile_fx, listing, picture

SVG = "{http://www.w3.org/2000/svg}"


def stored(function: Callable[..., Any], *inputs: Any, **options: Any) -> Storage:
    storage = Storage()
    with torch.no_grad():
        torch.compile(function, backend=compile_fx, options=cast(Any, {"storage": storage, **options}))(*inputs)
    return storage


def branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.cond(x.sum() > 0, lambda x: (x @ w).relu(), lambda x: x @ w - 1, (x,))
    return out


def branching() -> onnx.ModelProto:
    """A model with a branch that reads a value of the graph around it."""
    value = oh.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    inner = oh.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    then = oh.make_graph([oh.make_node("Softmax", ["x"], ["y"], axis=1)], "then", [], [inner])
    other = oh.make_graph([oh.make_node("Add", ["x", "w"], ["y"])], "else", [], [inner])
    weights = oh.make_tensor("w", TensorProto.FLOAT, [2], [0.25, 3])
    sizes = oh.make_tensor("k", TensorProto.INT64, [], [7])
    nodes = [
        oh.make_node("Cast", ["k"], ["c"], to=TensorProto.BOOL),
        oh.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other),
    ]
    result = oh.make_tensor_value_info("z", TensorProto.FLOAT, None)
    graph = oh.make_graph(nodes, "main", [value], [result], [weights, sizes])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=10, producer_name="test")


def test_the_text_of_a_model() -> None:
    assert listing.text(branching()) == (
        "opset ai.onnx 18; IR version 10, made by test\n"
        "input x: float32[N, 4]\n"
        "initializer w: float32[2]\n"
        "initializer k: int64[] = 7\n"
        "c = Cast(k) {to=bool}\n"
        "z: float32[...] = If(c)\n"
        "  else_branch:\n"
        "    y: float32[N, 4] = Add(x, w)\n"
        "    output y: float32[N, 4]\n"
        "  then_branch:\n"
        "    y: float32[N, 4] = Softmax(x) {axis=1}\n"
        "    output y: float32[N, 4]\n"
        "output z: float32[...]\n"
    )
    assert "initializer w: float32[2] = [0.25, 3]\n" in listing.text(branching(), weights=True)


def test_functions_stand_at_the_end() -> None:
    (model,) = stored(branches, torch.ones(2, 2), torch.ones(2, 2))
    head, _, functions = model.text().partition("\n\n")
    assert "\n  then_branch:\n    relu_true_graph_0 = pkg.torch.__subgraph__::true_graph_0(arg1_1, arg0_1)\n" in head
    assert "function pkg.torch.__subgraph__::true_graph_0(arg0_1, arg1_1)\n  mm = MatMul(" in functions


def drawn(source: str) -> tuple[list[list[str]], set[tuple[str, str, bool]]]:
    """The lines of each box, and the edges as (first line of source, of target, dashed)."""
    root = ET.fromstring(source)
    boxes = [[text.text or "" for text in group.iter(f"{SVG}text")] for group in root.iter(f"{SVG}g")]
    edges = set()
    for path in root.iter(f"{SVG}path"):
        source_box, target_box = (boxes[int(i)][0] for i in str(path.get("data-e")).split())
        edges.add((source_box, target_box, path.get("class") == "dashed"))
    return boxes, edges


def test_the_picture_of_a_model() -> None:
    boxes, edges = drawn(picture.svg(branching()))
    assert boxes == [
        ["x", "float32[N, 4]"],
        ["w", "float32[2]"],
        ["Cast", "7, to=bool"],
        ["Add", "float32[N, 4]"],
        ["else_branch: y", "float32[N, 4]"],
        ["Softmax", "axis=1", "float32[N, 4]"],
        ["then_branch: y", "float32[N, 4]"],
        ["If", "float32[...]"],
        ["z", "float32[...]"],
    ]
    assert edges == {
        ("x", "Add", False),
        ("w", "Add", False),
        ("Add", "else_branch: y", False),
        ("x", "Softmax", False),
        ("Softmax", "then_branch: y", False),
        ("Cast", "If", False),
        ("else_branch: y", "If", True),
        ("then_branch: y", "If", True),
        ("If", "z", False),
    }


def test_functions_are_drawn_where_they_are_called() -> None:
    (model,) = stored(branches, torch.ones(2, 2), torch.ones(2, 2))
    boxes, edges = drawn(model.svg())
    assert sorted(lines[0] for lines in boxes if lines[0] in ("MatMul", "Relu", "Sub")) == [
        "MatMul", "MatMul", "Relu", "Sub"
    ]  # fmt: skip
    assert {("Relu", "true_graph_0", True), ("Sub", "false_graph_0", True)} <= edges


def test_a_picture_loads_nothing_and_holds_hostile_names() -> None:
    model = branching()
    model.graph.input[0].name = '"><script>alert(1)</script>'
    model.graph.node[0].name = model.graph.node[0].op_type = "<b>\x00"
    source = picture.svg(model, title="<i>")
    names = {element.tag.removeprefix(SVG) for element in ET.fromstring(source).iter()}
    assert names <= {"svg", "style", "g", "rect", "text", "title", "path"}
    assert "href" not in source
    assert "url(" not in source


@pytest.mark.process
@pytest.mark.parametrize("count", [5, 500])
def test_no_two_boxes_overlap(count: int) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for k in range(count // 2):
            x = F.relu(x) + (x * 2 if k % 7 == 0 else 1)
        return x

    (model,) = stored(chain, torch.ones(2))
    root = ET.fromstring(model.svg())
    taken = []
    for group in root.iter(f"{SVG}g"):
        x, y = map(float, str(group.get("transform")).removeprefix("translate(").rstrip(")").split())
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        w, h = float(str(rect.get("width"))) / 2, float(str(rect.get("height"))) / 2
        taken.append((x - w, x + w, y - h, y + h))
    assert len(taken) >= count // 2
    for i, (left, right, top, bottom) in enumerate(taken):
        for other in taken[i + 1 :]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top


def test_a_huge_model_has_no_picture() -> None:
    nodes = [oh.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(MOST_BOXES)]
    ends = [oh.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("v0", f"v{MOST_BOXES}")]
    model = oh.make_model(oh.make_graph(nodes, "long", ends[:1], ends[1:]))
    with pytest.raises(ValueError, match="more than a picture holds"):
        picture.svg(model)


@pytest.mark.process
def test_from_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "model.onnx", tmp_path / "model.svg"
    file.write_bytes(branching().SerializeToString())
    command = [sys.executable, "-m", "fxminify.backends.shipped.onnxrt"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == listing.text(branching())
    script = "import sys; from fxminify.backends.shipped.onnxrt.__main__ import main\n"
    script += f"for a in {[[str(file), '-o', str(out)], [str(tmp_path / 'no.onnx')]]}:\n"
    script += "    sys.argv[1:] = a\n    main()\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No such file" in done.stderr
    assert ET.parse(out).getroot().get("aria-label") == "model.onnx"
