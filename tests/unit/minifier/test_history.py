"""What a step changed, in lines, and what each pass asked and brought."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from made import make
from rich.console import Console

from fxminify.minifier.commands.terminal import detail
from fxminify.minifier.reducer.history import EXPLAIN, begin_at, describe, difference, stored, tensor, values
from fxminify.minifier.reporting.differences import shorter
from fxminify.minifier.reporting.gathering import gather
from fxminify.minifier.session.verdict_log import VerdictLog
from fxminify.store.document.case import Case, Graph, Json, Node, TensorSpec
from fxminify.store.errors import StoreError
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index, StepInfo
from fxminify.store.signature import signature

CASE, _ = make(["x", "y"], [("a", "sin", ["x"]), ("b", "add", ["a", "y"]), ("c", "relu", ["b"])], ["c"])


def without(case: Case, name: str) -> Case:
    nodes = tuple(n for n in case.graph.nodes if n.name != name)
    return replace(case, graph=replace(case.graph, nodes=nodes))


def test_a_case_in_lines() -> None:
    odd = TensorSpec("float32", (2, 3), (1, 2), 4, init={"fn": "full", "value": 0.0}, requires_grad=True)
    case = replace(
        CASE,
        tensors=(odd, TensorSpec("int64", (), (), init={"fn": "randint", "low": 0, "high": 5}, device="cuda:0")),
        backend={"name": "inductor", "options": {"dict": [["max_autotune", True]]}, "dynamic": True},
        context={"grad": False, "rng": {"cpu": "secret"}},
        backward=True,
        calls=2,
    )
    assert describe(case) == [
        "compile dynamic = True",
        'compile options = {"max_autotune": True}',
        "context grad = False",
        "backward pass",
        "2 calls",
        "x: float32[2, 3] strides (1, 2) offset 4 requires_grad, zeros",
        "y: int64[] on cuda:0, randint 0 to 4",
        "a = torch.sin(x)",
        "b = torch.add(a, y)",
        "c = torch.relu(b)",
        "return (c,)",
    ]


def test_the_difference_is_what_went_and_what_came() -> None:
    assert difference(CASE, CASE) == ""
    zeros = replace(CASE.tensors[0], storage=None, init={"fn": "full", "value": 0.0})
    nodes = tuple(replace(n, args=({"ref": "b"},)) if n.name == "c" else n for n in without(CASE, "a").graph.nodes)
    after = replace(CASE, tensors=(zeros, CASE.tensors[1]), graph=Graph(nodes), context={"grad": False})
    assert difference(CASE, after).splitlines() == [
        "- x: float32[4], recorded values",
        "+ x: float32[4], zeros",
        "- a = torch.sin(x)",
        "+ context grad = False",
    ]
    assert (
        difference(CASE, replace(CASE, tensors=(replace(CASE.tensors[0], dynamic=(0,)), CASE.tensors[1]))).splitlines()[
            1
        ]
        == "+ x: float32[4] dynamic [0], recorded values"
    )


def test_what_both_cases_do_is_no_difference() -> None:
    """The backward pass, further calls and earlier calls have a line of their own, with nothing after the name."""
    whole = replace(CASE, backward=True, calls=2, earlier=({"s0": 3},))
    said = ["backward pass", "2 calls", "earlier call 1 with other s0"]
    assert difference(whole, whole) == ""
    assert difference(whole, without(whole, "a")) == "- a = torch.sin(x)"
    assert difference(whole, CASE).splitlines() == [f"- {line}" for line in said]
    assert difference(CASE, whole).splitlines() == [f"+ {line}" for line in said]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "zeros"), (0.0, "zeros"), (-0.0, "all -0.0"), (1, "ones"), (1.0, "ones"), (-1.0, "all -1.0"),
        (True, "all True"), ({"complex": [0.0, -0.0]}, "all complex(0.0, -0.0)"), ({"float": "nan"}, "all nan"),
    ],
)  # fmt: skip
def test_a_zero_has_its_sign(value: object, words: str) -> None:
    spec = TensorSpec("float32", (4,), (1,), init={"fn": "full", "value": value})
    assert values(spec) == words
    assert tensor(spec) == f"float32[4], {words}"


def test_methods_attributes_and_bodies_have_lines() -> None:
    inner = Graph((Node("z", "placeholder", "z"), Node("output", "output", "output", ({"tuple": [{"ref": "z"}]},))))
    nodes = (
        CASE.graph.nodes[0],
        Node("w", "get_attr", "weight"),
        Node("v", "call_method", "view", ({"ref": "x"}, -1)),
        Node("f", "call_function", {"hop": "no such operator"}, ({"ref": "w"},), {"k": {"float": "inf"}}),
        CASE.graph.nodes[-1],
    )
    attrs: dict[str, Json] = {"weight": {"tensor": 0, "kind": "parameter"}, "body_0": {"graph": inner}}
    case = Case(Graph(nodes, attrs), CASE.inputs[:1], CASE.tensors)
    assert describe(case)[1:] == [
        "weight: float32[4], recorded values",
        "w = self.weight",
        "v = x.view(-1)",
        "f = no such operator(w, k=inf)",
        "return (c,)",
        "body_0: z is given",
        "body_0: return (z,)",
    ]


@pytest.mark.parametrize("finished", [True, False])
def test_a_history_counts_what_each_pass_asked_and_brought(tmp_path: Path, finished: bool) -> None:
    zeros = replace(CASE.tensors[0], storage=None, init={"fn": "full", "value": 0.0})
    case = replace(CASE, tensors=(zeros, zeros), backend={"name": "b"})
    failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "boom")
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        index.captures.add(case=case, blobs={}, failure=failure, signature=signature(failure), provenance={})
        assert stored(index, 1) is None
        reduction = index.reductions.begin(1, {"entry": "direct"}).id
        asked = [("a", "slices", "same"), ("b", "slices", "other"), ("c", "nodes", "invalid"), ("d", EXPLAIN, "pass")]
        for key, name, outcome in asked:
            index.verdicts.asked(reduction, key, name)
            index.verdicts.answered(reduction, key, outcome, None, 0.5, "")
        index.reductions.add_step(reduction, StepInfo(1, "slices", "a", 2, 1, difference="- relu"), case, {})
        index.reductions.finish(reduction, queries=3, nodes_before=5, nodes_after=2, seconds=9.0, finished=finished)
        found = stored(index, 1)
    assert found is not None
    assert (found.reduction, found.start_nodes, found.config) == (reduction, 5, {"entry": "direct"})
    assert [(e.pass_name, e.asked, e.accepted, e.removed, e.invalid, e.other, e.seconds) for e in found.passes] == [
        ("slices", 2, 1, 3, 0, 1, 1.0),
        ("nodes", 1, 0, 0, 1, 0, 0.5),
    ]
    assert found.to_json()["steps"][0]["difference"] == ["- relu"]


def test_what_was_wrong_with_a_pass_is_kept_and_is_no_question(tmp_path: Path) -> None:
    zeros = replace(CASE.tensors[0], storage=None, init={"fn": "full", "value": 0.0})
    case = replace(CASE, tensors=(zeros, zeros), backend={"name": "b"})
    failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "boom")
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        index.captures.add(case=case, blobs={}, failure=failure, signature=signature(failure), provenance={})
        reduction = index.reductions.begin(1, {}).id
        log = VerdictLog(index, reduction)
        assert log.problem("plain-values", "KeyError: 'x'")
        assert not log.problem("plain-values", "KeyError: 'x'")
        index.reductions.accept(reduction, case, {})
        assert (log.queries, VerdictLog(index, reduction).known) == (0, {})
        found = stored(index, 1)
        shown = gather(index, 1)
    assert found is not None
    assert [(e.pass_name, e.asked, e.problems) for e in found.passes] == [("plain-values", 0, ["KeyError: 'x'"])]
    assert shown.story is not None
    assert shown.story.failed_passes == {"plain-values": ("KeyError: 'x'",)}
    stream = io.StringIO()
    detail.history(found, console=Console(file=stream, width=200))
    assert "the pass plain-values failed, and the reduction went on: KeyError: 'x'" in stream.getvalue()


def test_going_on_from_a_step_runs_what_the_capture_names(tmp_path: Path) -> None:
    """A step may have dropped arguments of torch.compile; what it says of backend and imports besides is not heeded."""
    zeros = replace(CASE.tensors[0], storage=None, init={"fn": "full", "value": 0.0})
    backend = {"name": "b", "module": "mine", "mode": "default", "options": {"dict": [["a", 1], ["b", 2]]}}
    case = replace(CASE, tensors=(zeros, zeros), backend=backend, imports=({"module": "myops"},))
    failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "boom")
    step = replace(
        case,
        backend={"name": "evil", "module": "evil", "options": {"dict": [["b", 3], ["c", 4]]}},
        imports=({"module": "evil"},),
        context={"grad": False},
    )
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        index.captures.add(case=case, blobs={}, failure=failure, signature=signature(failure), provenance={})
        with pytest.raises(StoreError, match="capture 1 was not minified yet: minify run"):
            begin_at(index, 1, 1)
        reduction = index.reductions.begin(1, {}).id
        index.reductions.add_step(reduction, StepInfo(1, "slices", "a", 3, 2), step, {})
        with pytest.raises(StoreError, match="step 2 does not exist; those kept are 1"):
            begin_at(index, 1, 2)
        number, found = begin_at(index, 1, 1)
    assert number == reduction
    assert found.case.backend == {"name": "b", "module": "mine", "options": {"dict": [["b", 2]]}}
    assert (found.case.imports, found.case.context, found.ours) == (case.imports, {"grad": False}, False)


def test_a_long_difference_says_how_many_of_what() -> None:
    lines = [f"- l_weight_{n}_: float32[8] parameter, recorded values" for n in range(12)]
    lines += [f"- conv_{n} = torch.conv2d(x, l_weight_{n}_, None)" for n in range(5)]
    lines += [f"- view_{n} = conv_{n}.view(2, -1)" for n in range(3)]
    lines += ["- mul = operator.mul(a, b)", "- relu = torch.relu(mul)", "- w = self.weight", "- context grad = False"]
    lines += [
        "- sin = torch.sin(a)",
        "+ sin = torch.sin(b)",
        "- return (w,)",
        "+ return (sin,)",
        "+ b: float32[2], zeros",
    ]
    assert shorter(lines, 40) == lines
    assert shorter(lines, 8) == [
        "- 11 nodes: 5 torch.conv2d, 3 .view, 1 operator.mul, 2 others",
        "- 12 inputs",
        "- 1 setting",
        "+ b: float32[2], zeros",
        *lines[-5:-1],
    ]
    assert shorter(lines, 7)[4:] == ["- sin = torch.sin(a)", "+ sin = torch.sin(b)", "  1 other change"]
    assert shorter(lines, 3)[4:] == ["  2 changes"]


def test_one_node_that_goes_is_shown_itself() -> None:
    lines = ["- exp = torch.exp(x)", *(f"- y_{n}: float32[2], zeros" for n in range(9)), "- backward pass"]
    assert shorter(lines, 3) == ["- exp = torch.exp(x)", "- 9 inputs", "- 1 other line"]
    assert shorter([f"- return ({'x, ' * 90})", "+ return (x,)", "- 2 calls"], 2)[1] == "  1 change"
