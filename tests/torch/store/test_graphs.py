"""Real graphs survive: node by node the same, and bit by bit the same results in a process that saw no tracing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch
from identical import difference, graph_difference, places, tensors_in
from work import Lines

from fxminify.store.document.case import Case, Graph, Node, to_json
from fxminify.store.document.decode import parse, validate
from fxminify.store.live.build import build, build_value
from fxminify.store.live.encode import Encoder, Unsupported, encode, graph_text, user_line

torch.set_num_threads(1)
FAST = [n for n in corpus.SOURCES if n not in corpus.SLOW]


def run(gm: torch.fx.GraphModule, inputs: list[Any]) -> list[Any]:
    torch.manual_seed(1234)
    out = gm(*inputs)
    return [list(out) if isinstance(out, list | tuple) else out, inputs]


def check(
    gm: torch.fx.GraphModule, inputs: list[Any], files: list[Path] | None = None, folder: Path | None = None
) -> None:
    """Write ``gm``, read it back, compare; leave in ``folder`` what another process needs to do it again."""
    encoded = encode(gm, inputs)
    case = Case(encoded.graph, encoded.inputs, encoded.tensors, torch=torch.__version__)
    text = json.dumps(to_json(case), allow_nan=False)
    assert "/" + "home" not in text
    read = validate(parse(text))
    assert read == case
    again, values = build(read, encoded.blobs)
    assert graph_difference(gm, again) is None
    # Dynamo hands a symbolic integer to the backend and a plain one to the compiled function.
    assert difference([int(x) if isinstance(x, torch.SymInt) else x for x in inputs], values) is None
    assert places(tensors_in(inputs)) == places(tensors_in(values))
    expected = run(gm, build(read, encoded.blobs)[1])
    assert difference(expected, run(again, values)) is None
    if folder is None or files is None:
        return
    encoder = Encoder()
    value = encoder.value(expected)
    tensors, blobs = encoder.finish()
    results = to_json(Case(Graph((Node("output", "output", "output", (value,)),)), (), tensors))
    file = folder / f"{len(files)}.json"
    file.write_text(json.dumps([text, results, torch.is_grad_enabled(), torch.is_inference_mode_enabled()]))
    for key, data in ({**encoded.blobs, **blobs}).items():
        (folder / key).write_bytes(data)
    files.append(file)


def replay(folder: Path) -> list[str]:
    """In a process of its own: read every document of ``folder``, run it, compare with the stored results."""
    blobs = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".json"}
    problems = []
    for file in sorted(folder.glob("*.json")):
        text, results, grad, inference = json.loads(file.read_text())
        stored = validate(results)
        expected = build_value(stored.graph.output.args[0], stored.tensors, blobs)
        # Leaving inference mode turns gradients on, so it comes first.
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            found = difference(expected, run(*build(validate(parse(text)), blobs)))
        if found is not None:
            problems.append(f"{file.name}: {found}")
    return problems


def capture_and_check(names: list[str], levels: tuple[str, ...], folder: Path) -> int:
    """Check every graph of the named sources here and in another process; the number of graphs."""
    files: list[Path] = []
    for name in names:
        for level in levels:
            corpus.capture(name, level, lambda gm, inputs: check(gm, inputs, files, folder))
    code = f"import test_graphs, pathlib; print(test_graphs.replay(pathlib.Path({str(folder)!r})))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert out.stdout == "[]\n", out.stdout + out.stderr
    return len(files)


@pytest.mark.slow
def test_dynamos_graphs_survive(tmp_path: Path) -> None:
    assert capture_and_check(FAST, ("dynamo",), tmp_path) >= 64


@pytest.mark.slow
def test_aot_autograds_graphs_survive(tmp_path: Path) -> None:
    assert capture_and_check(FAST, ("aot",), tmp_path) >= 80


@pytest.mark.process
def test_graphs_of_other_tracers_survive(tmp_path: Path) -> None:
    assert capture_and_check(list(corpus.TRACED), ("direct",), tmp_path) == 5


@pytest.mark.slow
def test_models_survive(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert capture_and_check(sorted(corpus.SLOW), ("dynamo", "aot"), tmp_path) >= 12


def captured(function: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph that Dynamo makes of a function."""
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(gm: torch.fx.GraphModule, _: list[Any]) -> Any:
        def run(*arguments: Any) -> Any:
            found.append((gm, list(arguments)))
            return gm(*arguments)

        return run

    torch._dynamo.reset()
    torch.compile(function, backend=backend, **options)(*inputs)
    return found[0]


def unnamed(x: torch.Tensor) -> torch.Tensor:
    return x * 2


torch._dynamo.allow_in_graph(unnamed)


def test_a_function_without_a_name_is_refused_with_its_node() -> None:
    gm, inputs = captured(lambda x: unnamed(x) + 1, torch.ones(2))
    with pytest.raises(Unsupported, match=r"node 'unnamed': function .*\.unnamed has no name in the table") as refused:
        encode(gm, inputs)
    assert refused.value.node == "unnamed"
    assert "unnamed = call_function[unnamed](l_x_)" in graph_text(gm)


def test_a_node_inside_a_sub_graph_is_named_with_its_place() -> None:
    gm, inputs = captured(
        lambda x: torch.cond(x.sum() > 0, lambda x: unnamed(x), lambda x: x.sin(), (x,)), torch.ones(2)
    )
    with pytest.raises(Unsupported, match=r"node '\w*unnamed in cond_true_0'") as refused:
        encode(gm, inputs)
    assert "cond_true_0:" in graph_text(gm)
    assert refused.value.reason.startswith("function")


def test_what_has_no_name_stays_live_in_process() -> None:
    class Custom(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return unnamed(x)

    class Root(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.custom = Custom()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.custom(x)
            return out

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
            return isinstance(module, Custom)

    root = Root()
    gm = torch.fx.GraphModule(root, Tracer().trace(root))
    placeholder, *_, output = gm.graph.nodes
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(unnamed, (placeholder,)),)
    gm.recompile()
    with pytest.raises(Unsupported, match=r"module of class .*Custom"):
        encode(gm, [torch.ones(2)])
    live: list[object] = []
    encoded = encode(gm, [torch.ones(2)], live=live)
    again, inputs = build(Case(encoded.graph, encoded.inputs, encoded.tensors), encoded.blobs, live=live)
    assert torch.equal(again(*inputs), gm(*inputs))
    assert live == [root.custom, unnamed]


def test_building_twice_shares_nothing() -> None:
    gm, inputs = captured(lambda x: x.add_(1), torch.zeros(3))
    encoded = encode(gm, [torch.zeros(3)])
    case = Case(encoded.graph, encoded.inputs, encoded.tensors)
    first, a = build(case, encoded.blobs)
    second, b = build(case, encoded.blobs)
    first(*a)
    assert b[0].tolist() == [0, 0, 0]
    assert encoded.blobs[encoded.tensors[0].storage or ""] == bytes(12)
    assert second(*b)[0].tolist() == [1, 1, 1]
    assert inputs[0].tolist() == [1, 1, 1]


def test_metadata_shows_the_users_line_and_no_path() -> None:
    gm, inputs = captured(lambda x: x.sin(), torch.ones(2, 3), dynamic=True)
    node = encode(gm, inputs).graph.compute[0]
    assert node.meta["dtype"] == "float32"
    assert [type(s) for s in node.meta["shape"]] == [str, str]
    assert node.meta["stack"].startswith("test_graphs.py:")
    assert "/" not in node.meta["stack"]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (["/home/me/model.py", f"{os.path.dirname(torch.__file__)}/nn/functional.py"], "model.py:1 f0"),
        ([f"{os.path.dirname(torch.__file__)}/nn/functional.py"], "torch/nn/functional.py:1 f0"),
        (["C:\\me\\model.py", "/lib/transformers/bert.py"], "bert.py:2 f1"),
        (["<eval_with_key>.0 from /home/me/model.py:7 in <lambda>"], "model.py:7 <lambda>"),
        (["model.py", "<eval_with_key>.12"], "model.py:1 f0"),
        (["<eval_with_key>.12"], ""),
        ([], ""),
    ],
)
def test_the_users_line_is_the_innermost_outside_of_torch(files: list[str], shown: str) -> None:
    trace = "".join(f'  File "{file}", line {i + 1}, in f{i}\n    return y\n' for i, file in enumerate(files))
    assert user_line({"stack_trace": trace}) == shown


class Holds(torch.nn.Module):
    def __init__(self, held: torch.nn.Module) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.held(x)
        return y + 1


def test_metadata_of_a_module_is_its_path_as_a_program_writes_it() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def modules(compiled: Callable[..., Any]) -> list[str]:
        gm, inputs = captured(compiled, torch.ones(2, 2))
        return [n.meta.get("module", "") for n in encode(gm, inputs).graph.compute]

    assert modules(net) == ["Sequential.0", "Sequential.1"]
    assert modules(lambda x: net(x) + 1) == ["net.0", "net.1", ""]
    assert modules(Holds(net)) == ["held.0", "held.1", ""]
    assert modules(torch.nn.ReLU()) == [""]


def test_inputs_must_fit_the_placeholders() -> None:
    gm, _ = captured(lambda x: x.sin(), torch.ones(2))
    with pytest.raises(Unsupported, match="0 inputs for 1 placeholders"):
        encode(gm, [])


def test_encoding_twice_the_nodes_is_twice_the_work() -> None:
    def lines(steps: int) -> int:
        def chain(x: torch.Tensor) -> torch.Tensor:
            for i in range(steps):
                x = (x + i).sin() * 0.5
            return x

        gm, inputs = captured(chain, torch.randn(4))
        assert len(gm.graph.nodes) > 3 * steps
        encode(gm, inputs)
        with Lines() as work:
            encode(gm, inputs)
        return work.count

    assert lines(80) < 3 * lines(40)


def test_custom_libraries_are_known_by_their_operators() -> None:
    from fxminify.store.document.names import libraries

    with torch.library._scoped_library("fxminify_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("twice", torch.empty_like, "Meta")
        with torch.no_grad():
            gm, inputs = captured(lambda x: torch.ops.fxminify_test.twice(x) + 1, torch.ones(2))
        encoded = encode(gm, inputs)
    assert libraries(encoded.graph) == {"fxminify_test"}
    doc = to_json(Case(encoded.graph, encoded.inputs, encoded.tensors))
    with pytest.raises(ValueError, match="fxminify_test::twice"):
        validate(doc)
    assert validate(doc | {"imports": [{"module": "mylib"}]}).graph == encoded.graph
