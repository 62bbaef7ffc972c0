"""What is asked about a minimal case, and which answers become its explanation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made import Held

from fxminify.minifier.candidate.validity import Way
from fxminify.minifier.oracle.keys import Keys
from fxminify.minifier.oracle.oracle import Votes
from fxminify.minifier.oracle.scheduler import Budget, BudgetSpent, MemoryLog, QueryScheduler
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.reducer.history import EXPLAIN
from fxminify.minifier.reducer.validity import KnownValidity
from fxminify.minifier.reporting import remake
from fxminify.minifier.reporting.explain import Background, explain
from fxminify.minifier.reporting.explanation import Explanation
from fxminify.minifier.reporting.features import Aspect, Claim
from fxminify.minifier.reporting.luck import Luck
from fxminify.minifier.tracing import rules, validity
from fxminify.minifier.tracing.study import study
from fxminify.store.document.case import Blobs, Case, Graph, Node, TensorSpec
from fxminify.store.document.strides import contiguous
from fxminify.store.live.build import build, build_value

OUTPUT = Node("output", "output", "output", ({"tuple": [{"ref": "out"}]},))


def zeros(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, shape, contiguous(shape), init={"fn": "full", "value": 0.0})


def case(*tensors: TensorSpec, fn: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Case:
    names = [f"x{i}" for i in range(len(tensors))]
    nodes = [Node(n, "placeholder", n) for n in names]
    nodes.append(Node("out", "call_function", {"fn": fn}, args, kwargs or {}))
    return Case(Graph((*nodes, OUTPUT)), tuple({"tensor": i} for i in range(len(tensors))), tensors)


def explained(start: Case, fails: Callable[[Case], bool], blobs: Blobs | None = None, most: int = 100) -> Explanation:
    """The explanation by an oracle that runs eager and then asks ``fails``, of ``most`` questions."""
    assert fails(start)
    held = Held(blobs or {})
    return explain(
        start, held, QueryScheduler(Eager(fails, held)), put=held.put, budget=Budget(most), clock=lambda: 0.0
    )


class Eager:
    def __init__(self, fails: Callable[[Case], bool], blobs: Blobs) -> None:
        self.fails = fails
        self.blobs = blobs

    def ask(self, candidate: Case) -> Verdict:
        gm, inputs = build(candidate, self.blobs)
        try:
            gm(*inputs)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return Verdict(Outcome.INVALID)
        return Verdict(Outcome.SAME if self.fails(candidate) else Outcome.PASS)


def words(found: Explanation, aspect: Aspect) -> dict[str, str]:
    claims = {Claim.FREE: "free", Claim.MATTERS: "matters", Claim.FAILS: "fails"}
    return {s.name: claims.get(s.claim, "") for s in found.features if s.aspect is aspect}


X0, X1 = {"ref": "x0"}, {"ref": "x1"}


def test_a_threshold_in_tied_dimensions_and_the_nearest_variant_that_passes() -> None:
    start = case(zeros(1, 17), zeros(17, 1), fn="torch.matmul", args=(X0, X1))
    found = explained(start, lambda c: c.tensors[0].shape[1] >= 17)
    assert words(found, Aspect.SIZE) == {
        "x0.shape[1] = x1.shape[0]": "matters",
        "x0.shape[0]": "free",
        "x1.shape[1]": "free",
    }
    assert found.summary() == (
        "Needs size 17 or more in x0.shape[1] and x1.shape[0] (16 passes; 18, 64 and 69 fail). "
        "Does not matter (as tested): dtype (float64, float16, bfloat16), values (ones, random numbers), "
        "sizes in x0.shape[0] and x1.shape[1] (2, 16, 17), requires_grad."
    )
    assert found.passes_with() == "size 16 in x0.shape[1] and x1.shape[0]"
    assert found.passing_variant is not None
    assert found.passing_variant.what == "16 instead of 17 as x0.shape[1] = x1.shape[0]"
    assert found.passing_variant.difference.splitlines() == [
        "- x0: float32[1, 17], zeros", "+ x0: float32[1, 16], zeros",
        "- x1: float32[17, 1], zeros", "+ x1: float32[16, 1], zeros",
    ]  # fmt: skip


def test_small_sizes_are_tied_only_where_eager_says_so() -> None:
    start = case(zeros(1, 1), zeros(1, 1), fn="torch.matmul", args=(X0, X1))
    found = explained(start, lambda c: True)
    assert words(found, Aspect.SIZE) == dict.fromkeys(
        ["x0.shape[0]", "x0.shape[1] = x1.shape[0]", "x1.shape[1]"], "free"
    )
    assert found.passing_variant is None
    assert found.summary().startswith("Does not matter (as tested): ")


def test_numbers_of_the_graph_follow_a_size() -> None:
    start = case(zeros(2, 24), fn="torch.reshape", args=(X0, [24, 2]))
    found = explained(start, lambda c: c.tensors[0].shape[1] > 20)
    assert found.summary().startswith("Needs a size over 12 in x0.shape[1] (12 passes; 23, 25, 64 and 97 fail).")


def test_a_size_is_not_needed_where_fewer_of_several_or_more_elements_elsewhere_fail_too() -> None:
    start = case(zeros(4, 4), fn="torch.relu", args=(X0,))
    either = explained(start, lambda c: max(c.tensors[0].shape) >= 4)
    assert "Passes with size 3 in x0.shape[0] and x0.shape[1] (4, 5, 16 and 17 fail; in x0.shape[0] alone 3 fails; " \
        "in x0.shape[1] alone 3 fails)." in either.summary()  # fmt: skip
    both = explained(start, lambda c: min(c.tensors[0].shape) >= 4)
    assert both.summary().startswith("Needs size 4 or more in x0.shape[0] and x0.shape[1] (3 passes; ")
    many = explained(case(zeros(2, 2), fn="torch.relu", args=(X0,)), lambda c: c.tensors[0].numel >= 4)
    assert "Passes with size 1 in x0.shape[0] (2, 3, 16 and 17 fail; with x0.shape[1] = 4 1 fails)" in many.summary()
    assert "size 1 in x0.shape[1] (2, 3, 16 and 17 fail; with x0.shape[0] = 4 1 fails)." in many.summary()


def test_symbolic_sizes_take_other_numbers_with_all_their_dimensions() -> None:
    start = case(zeros(4, 3), zeros(4), fn="torch.sub", args=(X0, 1))
    nodes = (Node("s0", "placeholder", "s0"), *start.graph.nodes)
    size = {"sym": {"kind": "SymInt", "expr": "s0", "hint": 4}}
    start = replace(start, graph=replace(start.graph, nodes=nodes), inputs=(size, *start.inputs))
    asked: list[tuple[Any, ...]] = []

    def fails(c: Case) -> bool:
        asked.append((c.inputs[0]["sym"]["hint"], c.tensors[0].shape[0], c.tensors[1].shape[0]))
        return c.tensors[0].shape[0] >= 4

    name = "s0 = x0.shape[0] = x1.shape[0]"
    found = explained(start, fails)
    assert words(found, Aspect.SIZE) == {name: "matters", "x0.shape[1]": "free"}
    assert "size 4 or more in s0, x0.shape[0] and x1.shape[0] (" in found.summary()
    assert all(len(set(sizes)) == 1 for sizes in asked)
    assert min(asked)[0] >= 2


def test_calls_have_the_names_that_the_script_has() -> None:
    nodes = [
        Node("x0", "placeholder", "x0"),
        Node("sin", "call_function", {"fn": "torch.neg"}, (X0,)),
        Node("cos", "call_function", {"fn": "torch.mul"}, ({"ref": "sin"}, 2)),
        Node("out", "call_function", {"fn": "torch.mul"}, ({"ref": "cos"}, 3)),
    ]
    start = replace(case(zeros(4), fn="torch.neg", args=(X0,)), graph=Graph((*nodes, OUTPUT)))
    found = explained(start, lambda c: c.graph.nodes[2].args[1] == 2)
    assert words(found, Aspect.ARGUMENT) == {
        "argument 1 of torch.mul (call 1)": "matters", "argument 1 of torch.mul (call 2)": "free",
    }  # fmt: skip
    assert [s.name for s in found.features if s.aspect is Aspect.OPERATOR] == [
        "operator torch.neg", "operator torch.mul (call 1)", "operator torch.mul (call 2)",
    ]  # fmt: skip


def test_dtypes_change_with_what_the_graph_says_of_them() -> None:
    start = case(zeros(4), fn="torch.sum", args=(X0,), kwargs={"dtype": {"dtype": "float32"}})
    asked: list[Any] = []

    def fails(c: Case) -> bool:
        asked.append((c.tensors[0].dtype, c.graph.nodes[1].kwargs.get("dtype")))
        return c.tensors[0].dtype == "float32"

    found = explained(start, fails)
    assert words(found, Aspect.DTYPE) == {"dtype of x0": "matters"}
    assert found.summary().startswith("Needs float32 (float64, float16 and bfloat16 pass)")
    assert ("bfloat16", {"dtype": "bfloat16"}) in asked


def test_values_of_one_tensor_are_asked_about_where_all_together_matter() -> None:
    ones = replace(zeros(4), init={"fn": "full", "value": 1.0})
    start = case(zeros(4), ones, fn="torch.add", args=(X0, X1))
    found = explained(start, lambda c: c.tensors[1].init == {"fn": "full", "value": 1.0})
    assert words(found, Aspect.VALUES) == {
        "values": "matters", "values of x0": "free", "values of x1": "matters",
    }  # fmt: skip
    assert found.summary().startswith("Needs ones in x1 (zeros and random numbers pass). ")
    assert words(explained(start, lambda c: True), Aspect.VALUES) == {"values": "free"}


def test_few_integers_are_not_random() -> None:
    """One random integer of zero and one is a zero as often as not, which is no answer about other numbers."""
    one = replace(zeros(1, dtype="int64"), init={"fn": "full", "value": 1})
    start = case(one, fn="torch.neg", args=(X0,))
    found = explained(start, lambda c: int(build(c, {})[1][0].sum()) != 0)
    values = next(s for s in found.features if s.aspect is Aspect.VALUES)
    assert (values.that(Outcome.SAME), values.that(Outcome.PASS)) == (["ones", "all 2"], ["zeros"])
    assert "Passes with zeros as values (ones and all 2 fail)." in found.summary()
    many = case(replace(one, shape=(16,), stride=(1,)), fn="torch.neg", args=(X0,))
    tried = next(s for s in explained(many, lambda c: True).features if s.aspect is Aspect.VALUES)
    assert [a.value for a in tried.answers] == ["zeros", "all 2", "random zeros and ones"]


def test_how_large_a_number_must_be() -> None:
    start = case(replace(zeros(4), init={"fn": "full", "value": 1e30}), fn="torch.acosh", args=(X0,))
    found = explained(start, lambda c: (c.tensors[0].init or {}).get("value", 0.0) > 3e18)
    values = next(s for s in found.features if s.aspect is Aspect.VALUES)
    assert values.that(Outcome.SAME) == ["all 1e+30", "all 1e+22", "all 1e+20", "all 1e+19"]
    assert values.that(Outcome.PASS) == ["zeros", "ones", "random numbers", "all 1e+15", "all 1e+18"]
    assert found.summary().startswith("Needs numbers of 1e+19 or more as values (1e+18 passes). ")


def test_a_zero_with_a_sign_is_asked_about_without_it() -> None:
    start = case(replace(zeros(4), init={"fn": "full", "value": -0.0}), fn="torch.atan2", args=(X0, X0))
    found = explained(start, lambda c: str((c.tensors[0].init or {}).get("value")) == "-0.0")
    assert found.summary().startswith("Needs all -0.0 as values (zeros, ones and random numbers pass)")


def test_settings_arguments_and_operators() -> None:
    start = replace(
        case(zeros(2, 2), fn="torch.sum", args=(X0, 1), kwargs={"keepdim": True}),
        context={"grad": False},
        backend={"name": "b", "options": {"dict": [["fuse", True], ["level", 2]]}},
    )

    def fails(c: Case) -> bool:
        node = c.graph.nodes[1]
        fuses = ["fuse", True] in c.backend.get("options", {}).get("dict", [])
        return fuses and node.args[1] == 1 and node.target["fn"].split(".")[1] in ("sum", "mean")

    found = explained(start, fails)
    assert words(found, Aspect.SETTING) == {
        "grad": "free", 'option "fuse"': "matters", 'option "level"': "fails",
        "requires_grad": "free",
    }  # fmt: skip
    assert words(found, Aspect.ARGUMENT) == {
        "argument 1 of torch.sum": "matters", "argument keepdim of torch.sum": "free",
    }  # fmt: skip
    operators = next(s for s in found.features if s.aspect is Aspect.OPERATOR)
    assert (operators.now, operators.that(Outcome.SAME)) == ("torch.sum", ["torch.sum", "torch.mean"])


def test_many_dimensions_leave_something_for_the_rest() -> None:
    """Twelve dimensions that have nothing to do with each other: a part of them is asked about, and all else."""
    start = case(*(zeros(1, 1, 1, 1) for _ in range(3)), fn="torch.addcmul", args=(X0, X1, {"ref": "x2"}))
    found = explained(start, lambda c: True, most=40)
    assert found.complete
    assert 4 <= len(words(found, Aspect.SIZE)) <= 6
    assert words(found, Aspect.VALUES) == {"values": "free"}


def test_a_budget_ends_it_and_what_was_asked_stands() -> None:
    start = case(zeros(1, 17), zeros(17, 1), fn="torch.matmul", args=(X0, X1))
    found = explained(start, lambda c: c.tensors[0].shape[1] >= 17, most=3)
    assert (found.asked, found.complete) == (3, False)
    assert sum(len(s.answers) for s in found.features) <= 3


DATA = np.linspace(-1, 2, 40, dtype=np.float32)
RECORDED = TensorSpec("float32", (5, 8), (1, 5), storage="s", requires_grad=True)


def tensor(made: remake.Made | None) -> torch.Tensor:
    assert made is not None
    built: torch.Tensor = build_value({"tensor": 0}, (made[0],), {"s": DATA.tobytes(), **made[1]})
    return built.detach()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_recorded_values_are_cast_as_torch_does(dtype: str) -> None:
    before = tensor((RECORDED, {}))
    shifted = DATA + (1 if dtype == "uint8" else 0)
    made = remake.cast(RECORDED, dtype, {"s": shifted.tobytes()})
    expected = (before + (1 if dtype == "uint8" else 0)).to(getattr(torch, dtype))
    assert torch.equal(tensor(made), expected)
    assert made is not None
    assert made[0].requires_grad == (dtype not in ("int32", "uint8", "bool"))


def test_recorded_values_are_repeated_and_cut_off() -> None:
    before = tensor((RECORDED, {}))
    assert torch.equal(tensor(remake.resize(RECORDED, (7, 8), {"s": DATA.tobytes()})), before[[0, 1, 2, 3, 4, 0, 1]])
    assert torch.equal(tensor(remake.resize(RECORDED, (2, 3), {"s": DATA.tobytes()})), before[:2, :3])
    dense = remake.relaid(RECORDED, (8, 1), {"s": DATA.tobytes()})
    assert torch.equal(tensor(dense), before)
    assert tensor(dense).is_contiguous()


def test_what_has_no_values_there_is_left_alone() -> None:
    drawn = TensorSpec("float32", (4,), (1,), init={"fn": "randn"})
    large = replace(drawn, init={"fn": "full", "value": 1e30})
    assert [remake.cast(large, dtype, {}) is None for dtype in ("float16", "int64", "bfloat16")] == [True, True, False]
    assert remake.cast(drawn, "int64", {}) is None
    assert remake.cast(replace(drawn, init={"fn": "full", "value": {"float": "nan"}}), "int64", {}) is None
    assert remake.cast(replace(drawn, layout="sparse_coo"), "float64", {}) is None
    assert remake.resize(drawn, (1 << 21,), {}) is None


class Slow:
    """An oracle that can be asked ahead; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Case] = []

    def ask(self, case: Case) -> Verdict:
        return self.submit(case).result()

    def submit(self, case: Case) -> Future[Verdict]:
        self.asked.append(case)
        future: Future[Verdict] = Future()
        future.set_result(Verdict(Outcome.PASS))
        return future


def test_queries_are_counted_logged_and_asked_ahead() -> None:
    cases = [case(zeros(n), fn="torch.relu", args=(X0,)) for n in range(1, 6)]
    oracle, log = Slow(), Log()
    log.known[Keys().key(cases[0])] = Verdict(Outcome.SAME)
    scheduler = QueryScheduler(oracle, log=log, jobs=2)
    with scheduler.limited(Budget(3)):
        scheduler.ahead((c, EXPLAIN) for c in cases)
        assert oracle.asked == cases[1:3]
        assert scheduler.ask(cases[0], EXPLAIN).same
        assert not scheduler.ask(cases[1], EXPLAIN).same
        assert oracle.asked == cases[1:3]
        assert not scheduler.ask(cases[3], EXPLAIN).same
        with pytest.raises(BudgetSpent):
            scheduler.ask(cases[4], EXPLAIN)
        assert not scheduler.ask(cases[2], EXPLAIN).same
    assert log.names == [EXPLAIN] * 3
    assert not scheduler.ask(cases[4], "later").same


class Log(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def asked(self, key: str, name: str) -> None:
        self.names.append(name)


class InThisProcess:
    """Tells which candidates eager accepts."""

    def way(self, base: Case) -> Way:
        return validity.way(base)

    def valid(self, way: Way, candidates: Sequence[Case]) -> list[bool]:
        return validity.validity(way, candidates)

    def obeys_rules(self, cases: Sequence[Case]) -> list[bool]:
        return rules.obeyed(cases)


class Counted(Eager):
    """Remembers how each query ended."""

    def __init__(self, blobs: Blobs) -> None:
        super().__init__(lambda case: True, blobs)
        self.outcomes: list[Outcome] = []

    def ask(self, candidate: Case) -> Verdict:
        verdict = super().ask(candidate)
        self.outcomes.append(verdict.outcome)
        return verdict


def test_what_eager_refuses_is_no_query() -> None:
    x, w, b = ({"ref": f"x{i}"} for i in range(3))
    tensors = zeros(1, 4, 3, 3), zeros(6, 2, 3, 3), zeros(6)
    start = case(*tensors, fn="torch.conv2d", args=(x, w, b), kwargs={"groups": 2})

    def made(validator: InThisProcess | None) -> tuple[Explanation, list[Outcome]]:
        held = Held()
        oracle = Counted(held)
        scheduler = QueryScheduler(oracle)
        known = None if validator is None else KnownValidity(validator, scheduler.key)
        found = explain(start, held, scheduler, put=held.put, validity=known, budget=Budget(60), clock=lambda: 0.0)
        return found, oracle.outcomes

    (plain, asked), (informed, fewer) = made(None), made(InThisProcess())
    assert plain.features == informed.features
    assert Outcome.INVALID in asked
    assert fewer == [outcome for outcome in asked if outcome is not Outcome.INVALID]


def pooled(shape: tuple[int, ...], kwargs: Mapping[str, Any]) -> Case:
    return case(zeros(*shape), fn="torch.nn.functional.avg_pool2d", args=(X0, [1, 2]), kwargs=kwargs)


def told(start: Case, fails: Callable[[Case], bool], **background: Any) -> Explanation:
    """The explanation of a studied case."""
    held = Held()
    known = Background(trace=study(start, held, put=lambda key, data: held.put({key: data})), **background)
    scheduler = QueryScheduler(Eager(fails, held))
    return explain(start, held, scheduler, put=held.put, background=known, budget=Budget(100), clock=lambda: 0.0)


def node_of(c: Case) -> Node:
    return c.graph.compute[0]


def test_what_eager_refuses_is_tried_with_another_size() -> None:
    start = pooled((1, 1, 1), {"ceil_mode": True})
    found = told(start, lambda c: node_of(c).kwargs == {"ceil_mode": True})
    ceil = next(f for f in found.features if "ceil_mode" in f.name)
    assert (ceil.claim, [(a.value, a.outcome, a.on) for a in ceil.answers]) == (
        Claim.MATTERS,
        [
            ("left out", Outcome.INVALID, ""),
            ("left out", Outcome.PASS, "with x0.shape[2] = 17"),
        ],
    )


def test_what_eager_refuses_is_tried_on_an_earlier_step() -> None:
    start = replace(pooled((1, 1, 1), {"ceil_mode": True}), earlier=({"tuple": [{"tensor": 0}]},))  # sizes stay
    before = pooled((1, 1, 5), {"ceil_mode": True})
    trace = study(before, {}, put=lambda key, data: None)
    found = told(start, lambda c: "ceil_mode" in node_of(c).kwargs, steps=[(3, before)], step_trace=trace)
    assert found.summary().startswith(
        "Needs ceil_mode=True of torch.nn.functional.avg_pool2d "
        "(in step 3 of the reduction (x0: float32[1, 1, 5]) leaving it out passes and True fails)."
    )
    only_false = told(start, lambda c: True, steps=[(3, before)], step_trace=trace)
    ceil = next(f for f in only_false.features if "ceil_mode" in f.name)
    assert (ceil.claim, ceil.fails_with) == (Claim.FREE, ["left out"])
    alone = told(start, lambda c: True)
    assert (
        "Not tested, because eager refuses it: ceil_mode of torch.nn.functional.avg_pool2d left out."
        in alone.sentences()
    )


def test_arguments_that_are_left_out_are_given_and_named_only_where_they_matter() -> None:
    start = pooled((1, 1, 8), {})
    found = told(start, lambda c: "stride" not in node_of(c).kwargs)
    assert {f.name.split()[1]: f.claim for f in found.features if f.aspect is Aspect.DEFAULT} == {
        "stride": Claim.MATTERS, "ceil_mode": Claim.FREE, "count_include_pad": Claim.FREE, "padding": Claim.UNTESTED,
    }  # fmt: skip
    assert "Passes with stride=[1, 1] of torch.nn.functional.avg_pool2d." in found.summary()
    assert "count_include_pad" not in " ".join(found.told())


def test_what_passes_once_is_asked_again() -> None:
    start = case(zeros(4), fn="torch.relu", args=(X0,))

    def again(c: Case, votes: Votes | None) -> Verdict:
        assert votes is None
        return Verdict(Outcome.SAME if c.tensors[0].dtype == "float64" else Outcome.PASS)

    found = told(start, lambda c: c.tensors[0].dtype == "float32", again=again)
    dtype = next(f for f in found.features if f.aspect is Aspect.DTYPE)
    assert [(a.value, a.outcome, a.shown, a.runs) for a in dtype.answers] == [
        ("float64", Outcome.FLAKY, 0, 1), ("float16", Outcome.PASS, 0, 2), ("bfloat16", Outcome.PASS, 0, 2),
    ]  # fmt: skip
    assert found.summary().startswith("Needs float32 (float16 and bfloat16 pass).")


def test_what_passes_although_results_differ_is_no_evidence() -> None:
    """The script of such a case fails, because `assert_close` allows less than the comparison lets pass."""
    start = case(zeros(4), fn="torch.relu", args=(X0,))

    class Near(Eager):
        def ask(self, candidate: Case) -> Verdict:
            verdict = super().ask(candidate)
            near = candidate.tensors[0].dtype == "float16"
            return replace(verdict, detail="not equal: output 0") if near else verdict

    held = Held()
    oracle = Near(lambda c: c.tensors[0].dtype in ("float32", "float64"), held)
    background = Background(again=lambda c, votes: oracle.ask(c))
    found = explain(
        start, held, QueryScheduler(oracle), put=held.put, background=background, clock=lambda: 0.0
    )  # fmt: skip
    dtype = next(f for f in found.features if f.aspect is Aspect.DTYPE)
    assert [(a.value, a.outcome) for a in dtype.answers] == [
        ("float64", Outcome.SAME), ("float16", Outcome.CLOSE), ("bfloat16", Outcome.PASS),
    ]  # fmt: skip
    assert found.summary().startswith(
        "Passes with bfloat16 (float32 and float64 fail, with float16 it differs by less than counts as a failure)."
    )
    assert found.passing_variant is not None
    assert found.passing_variant.difference.splitlines() == ["- x0: float32[4], zeros", "+ x0: bfloat16[4], zeros"]


def test_the_same_bug_in_another_dtype_is_no_other_failure() -> None:
    start = case(zeros(4), fn="torch.relu", args=(X0,))
    words = {"float64": "no kernel for DoubleTensor", "float16": "no kernel for HalfTensor"}
    words["bfloat16"] = f"out of {'range ' * 40}"

    class Refusing(Eager):
        def ask(self, candidate: Case) -> Verdict:
            dtype = candidate.tensors[0].dtype
            if dtype == "float32":
                return super().ask(candidate)
            return Verdict(Outcome.OTHER, detail=f"RuntimeError: {words[dtype]}")

    held = Held()
    background = Background(headline="RuntimeError: no kernel for FloatTensor")
    found = explain(
        start, held, QueryScheduler(Refusing(lambda c: True, held)), put=held.put, background=background,
        clock=lambda: 0.0,
    )  # fmt: skip
    dtype = next(f for f in found.features if f.aspect is Aspect.DTYPE)
    assert (dtype.fails_with, dtype.that(Outcome.OTHER)) == (["float64", "float16"], ["bfloat16"])
    (sentence,) = (text for text in found.sentences() if text.startswith("Fails in another way with bfloat16: Runtime"))
    assert sentence.endswith("range range ...")
    assert len(sentence) < 200


def test_a_failure_that_comes_and_goes_takes_more_runs_or_is_not_judged() -> None:
    start = case(zeros(4), fn="torch.relu", args=(X0,))
    asked: list[Votes] = []

    def again(c: Case, votes: Votes | None) -> Verdict:
        assert votes is not None
        asked.append(votes)
        if c.tensors[0].dtype in ("float16", "bfloat16"):
            return Verdict(Outcome.PASS, detail=f"0 of {votes.runs} runs")
        return Verdict(Outcome.SAME, detail=f"1 of {votes.runs - 3} runs")

    class Unlucky(Eager):
        def ask(self, candidate: Case) -> Verdict:
            raise AssertionError("a single run tells nothing")

    held, oracle = Held(), Unlucky(lambda c: True, {})
    found = explain(
        start, held, QueryScheduler(oracle), put=held.put, background=Background(again=again), luck=Luck(12, 40),
        clock=lambda: 0.0,
    )  # fmt: skip
    assert {(votes.needed, votes.runs) for votes in asked} == {(1, 35)}
    assert found.summary().startswith("Needs float32 or float64 (float16 and bfloat16 pass)")
    assert found.sentences()[-1] == (
        "It fails in 12 of 40 runs. Each variant that passes did so in all of its 35 runs or more."
    )
    seldom = explain(start, held, QueryScheduler(oracle), put=held.put, luck=Luck(2, 40))
    assert seldom.told() == (
        "What matters was not judged: the minimal case fails in 2 of 40 runs, and each variant would take 768 runs.",
    )
    never = explain(start, held, QueryScheduler(oracle), put=held.put, luck=Luck(0, 40))
    assert never.told() == ("What matters was not judged: none of 40 runs of the minimal case failed.",)
