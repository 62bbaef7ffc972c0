"""What each simplification makes of real graphs: the exact plain case, asked of predicates on live tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made import Held, canonicalize

from fxminify.minifier.passes.candidates import Canonicalize
from fxminify.minifier.passes.dtypes import SIMPLER, plain_dtypes
from fxminify.minifier.passes.duplicates import one_input_twice
from fxminify.minifier.passes.held import held_as_inputs
from fxminify.minifier.passes.layouts import gapless, plain_layouts
from fxminify.minifier.passes.surroundings import default_arguments
from fxminify.minifier.passes.values import MOST, fewer_values, plain_numbers, plain_values
from fxminify.repro_templates.source.elements import numbers, raw
from fxminify.repro_templates.source.inputs import print_inputs
from fxminify.store.document.case import Case
from fxminify.store.document.decode import validate
from fxminify.store.document.names import table
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode

Predicate = Callable[..., bool]
#: Which results, given the inputs and what eager makes of them, show the failure.
ALWAYS: Predicate = lambda *given: True  # noqa: E731


def captured(function: Callable[..., Any], *inputs: Any) -> tuple[Case, Held]:
    encoded = encode(torch.fx.symbolic_trace(function), inputs)
    return Case(encoded.graph, encoded.inputs, encoded.tensors, backend={"name": "eager"}), Held(encoded.blobs)


class Asked:
    """An oracle: ``fails(inputs..., result)`` of what eager computes; what eager cannot run does not fail."""

    def __init__(self, held: Held, fails: Predicate) -> None:
        self.held = held
        self.fails = fails
        self.known: dict[str, bool] = {}

    def __call__(self, case: Case) -> bool:
        key = repr(case)
        if key not in self.known:
            self.known[key] = self.answer(case)
        return self.known[key]

    def answer(self, case: Case) -> bool:
        gm, inputs = build(case, self.held)
        try:
            result = gm(*inputs)
        except (RuntimeError, ValueError, TypeError):
            return False
        return bool(self.fails(*inputs, result))


def plainest(simplification: Canonicalize, case: Case, held: Held, fails: Predicate) -> tuple[Case, int]:
    """The case that one simplification ends with, and how many candidates it asked about."""
    asked = Asked(held, fails)
    candidates = simplification(case, held)
    try:
        candidate = next(candidates)
        while True:
            candidate = candidates.send(asked(candidate))
    except StopIteration as end:
        return end.value, len(asked.known)


def source(case: Case, held: Held) -> list[str]:
    """The inputs as the script makes them."""
    names = [n.name for n in case.graph.placeholders]
    return [s.layout() for s in print_inputs(case, held, names).statements]


# Element types


def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.sum(x.half().to(torch.float16), 0, dtype=torch.float16)


def test_types_become_float32_in_tensors_and_in_the_graph_after_one_question() -> None:
    case, held = captured(halves, torch.randn(2, 2, dtype=torch.float16))
    plain, asked = plainest(plain_dtypes, case, held, ALWAYS)
    assert asked == 1
    assert plain.tensors[0].dtype == "float32"
    half, to, total = plain.graph.compute
    assert (half.target, to.args[1], total.kwargs) == ("float", {"dtype": "float32"}, {"dtype": {"dtype": "float32"}})


def test_types_of_the_graph_stay_where_they_matter() -> None:
    case, held = captured(halves, torch.randn(2, 2, dtype=torch.float16))
    plain, _ = plainest(plain_dtypes, case, held, lambda x, out: out.dtype is torch.float16)
    assert plain.tensors[0].dtype == "float32"
    assert [(n.target, n.args, n.kwargs) for n in plain.graph.compute] == [
        (n.target, n.args, n.kwargs) for n in case.graph.compute
    ]


def test_the_graph_alone_changes_where_a_tensor_keeps_its_type() -> None:
    case, held = captured(halves, torch.randn(2, 2, dtype=torch.float16))
    plain, _ = plainest(plain_dtypes, case, held, lambda x, out: x.dtype is torch.float16)
    assert plain.tensors == case.tensors
    assert plain.graph.compute[0].target == "float"


@pytest.mark.parametrize(
    ("recorded", "fails", "expected"),
    [
        ("float16", lambda x, out: x.dtype is torch.float16, "float16"),
        ("float16", lambda x, out: x.element_size() == 2, "bfloat16"),
        ("float16", lambda x, out: x.dtype is not torch.float32, "float64"),
        ("complex128", lambda x, out: x.is_complex(), "complex64"),
        ("complex128", ALWAYS, "float32"),
        ("uint8", ALWAYS, "int64"),
        ("uint8", lambda x, out: x.element_size() < 8, "int32"),
        ("bool", ALWAYS, "bool"),
        ("float8_e5m2", ALWAYS, "float32"),
    ],
)
def test_the_simplest_type_that_fails(recorded: str, fails: Predicate, expected: str) -> None:
    case, held = captured(lambda x: x.view(-1), torch.ones(3).to(getattr(torch, recorded)))
    plain, asked = plainest(plain_dtypes, case, held, fails)
    assert plain.tensors[0].dtype == expected
    assert asked <= 1 + len(SIMPLER.get(recorded, ()))
    _, (x,) = build(plain, held)
    assert x.tolist() == [1, 1, 1]


def test_one_of_two_tensors_keeps_its_type() -> None:
    case, held = captured(lambda x, y: (x, y), torch.ones(3).half(), torch.ones(2).half())
    plain, _ = plainest(plain_dtypes, case, held, lambda x, y, out: y.dtype is torch.float16)
    assert [t.dtype for t in plain.tensors] == ["float32", "float16"]


def test_a_storage_seen_as_two_types_keeps_both() -> None:
    x = torch.ones(4, dtype=torch.float64)
    case, held = captured(lambda x, y: (x, y), x, x.view(torch.int64))
    assert plainest(plain_dtypes, case, held, ALWAYS) == (case, 0)


def test_every_type_in_the_order_is_one_of_torch() -> None:
    named = {*SIMPLER, *(kind for kinds in SIMPLER.values() for kind in kinds)}
    assert named <= set(table().dtypes)
    assert all(to not in SIMPLER or SIMPLER[to][0] == SIMPLER[kind][0] for kind in SIMPLER for to in SIMPLER[kind])


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "int8", "uint8", "int64", "complex64"])
def test_numbers_are_rounded_as_torch_rounds(kind: str) -> None:
    values = torch.tensor([0.0, -0.0, 1.5, 3.14159, -2.71828, 65519.0, 1e-6, 100.0])
    if getattr(torch, kind).is_floating_point:
        values = torch.cat([values, torch.tensor([1e38, float("inf"), float("-inf"), float("nan")]), torch.randn(500)])
    else:
        values = values.clamp(-100, 100).abs() if kind == "uint8" else values.clamp(-100, 100)
    expected = values.to(getattr(torch, kind))
    made = numbers(kind, raw(kind, values.numpy()))
    np.testing.assert_array_equal(made, numbers(kind, expected.view(torch.uint8).numpy().tobytes()))


def test_the_few_numbers_of_a_narrow_type_keep_their_digits() -> None:
    case, held = captured(lambda x: x.sin(), torch.tensor([0.1, 65504.0, -2.7], dtype=torch.float16))
    plain, _ = plainest(plain_dtypes, case, held, ALWAYS)
    assert source(plain, held) == ["x = torch.tensor([0.1, 65504.0, -2.7])"]


def test_the_type_of_an_autocast_region_stays_one_that_it_takes(recwarn: pytest.WarningsRecorder) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    region = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    y = graph.call_function(torch.nn.functional.linear, (x, x))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (region,))
    graph.output(graph.call_method("to", (y, torch.bfloat16)))
    encoded = encode(torch.fx.GraphModule({}, graph), (torch.randn(2, 2),))
    case = Case(encoded.graph, encoded.inputs, encoded.tensors, backend={"name": "eager"})
    plain, asked = plainest(plain_dtypes, case, Held(encoded.blobs), ALWAYS)
    assert asked == 1
    assert [n.args[1] for n in plain.graph.compute if len(n.args) > 1] == [
        {"dtype": "bfloat16"}, {"ref": "x"}, {"dtype": "float32"},
    ]  # fmt: skip
    assert not [w for w in recwarn if "autocast" in str(w.message)]


# Strides, offsets, aliasing


def test_layouts_become_contiguous_after_one_question() -> None:
    base = torch.arange(48.0)
    x, y = base[3:15].view(3, 4).t(), base[5:45].view(4, 10)[:, ::2]
    z = torch.complex(torch.randn(3), torch.randn(3)).conj()
    case, held = captured(lambda x, y, z: (x, y, z), x, y, z)
    plain, asked = plainest(plain_layouts, case, held, ALWAYS)
    assert asked == 1
    assert [(t.stride, t.offset, t.conj) for t in plain.tensors] == [
        ((3, 1), 0, False),
        ((5, 1), 0, False),
        ((1,), 0, False),
    ]
    assert len(plain.storages) == 3
    _, inputs = build(plain, held)
    assert all(torch.equal(a, b) for a, b in zip(inputs, (x, y, z), strict=True))


def test_other_strides_lose_their_gaps_and_offset() -> None:
    x = torch.randn(40, 9)[2:, :6:3].t()
    case, held = captured(lambda x: x, x)
    plain, _ = plainest(plain_layouts, case, held, lambda x, out: x.stride(0) < x.stride(1))
    assert (plain.tensors[0].shape, plain.tensors[0].stride, plain.tensors[0].offset) == ((2, 38), (1, 2), 0)
    assert torch.equal(build(plain, held)[1][0], x)


def test_a_gap_that_matters_stays_in_a_short_storage() -> None:
    x = torch.randn(40, 9)[2:, :6:3]
    case, held = captured(lambda x: x, x)
    plain, _ = plainest(plain_layouts, case, held, lambda x, out: x.stride() == (9, 3))
    assert plain.tensors[0].offset == 0
    assert len(held[str(plain.tensors[0].storage)]) == 4 * (37 * 9 + 3 + 1)


def test_sharing_that_matters_stays_and_moves_to_the_start() -> None:
    base = torch.arange(100.0)
    x, y, z = base[40:44], base[42:46], base[1:5]
    case, held = captured(lambda x, y, z: (x, y, z), x, y, z)

    def shared(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, out: object) -> bool:
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()

    plain, _ = plainest(plain_layouts, case, held, shared)
    first, second, third = plain.tensors
    assert (first.offset, second.offset, third.offset) == (0, 2, 0)
    assert first.storage == second.storage != third.storage
    assert [t.tolist() for t in build(plain, held)[1]] == [x.tolist(), y.tolist(), z.tolist()]


@pytest.mark.parametrize(
    ("shape", "stride", "packed"),
    [
        ((3, 4), (4, 1), (4, 1)),
        ((3, 4), (1, 9), (1, 3)),
        ((2, 3, 4), (0, 100, 7), (0, 4, 1)),
        ((2, 3, 4, 5), (600, 1, 150, 10), (60, 1, 15, 3)),
        ((), (), ()),
    ],
)
def test_strides_without_gaps(shape: tuple[int, ...], stride: tuple[int, ...], packed: tuple[int, ...]) -> None:
    assert gapless(shape, stride) == packed


# Values


def recorded(values: torch.Tensor) -> tuple[Case, Held]:
    return captured(lambda x: x * 2, values)


def noise(*shape: int) -> torch.Tensor:
    """Numbers that no generator gives again."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)) * 37


def test_the_one_element_that_matters_ends_as_a_literal() -> None:
    values = noise(40, 50)
    values[3, 4] = float("inf")
    values[31, 17] = float("nan")

    def fails(x: torch.Tensor, out: torch.Tensor) -> bool:
        return bool(out.isnan().any()) and not bool(out.isnan().all() and out.numel() > 1)

    case, held = recorded(values)
    asked = Asked(held, fails)
    plain = canonicalize(case, held, asked)
    assert source(plain, held) == ["x = torch.tensor([nan])"]
    assert len(asked.known) <= MOST


def test_two_elements_that_matter_are_found_and_made_round() -> None:
    values = noise(30, 30).clamp(-900, 900)
    values[2, 3], values[2, 8] = 1234.567, -4321.0
    case, held = recorded(values)
    plain, asked = plainest(fewer_values, case, held, lambda x, out: bool((x > 1000).any() and (x < -1000).any()))
    left = numbers("float32", held[str(plain.tensors[0].storage)])
    assert left[left != 0].tolist() == [np.float32(1234.567), -4321]
    assert asked <= MOST
    small, held = recorded(torch.tensor([0.0, 1234.567, 0.0, -4321.0]))
    plain, _ = plainest(plain_numbers, small, held, lambda x, out: bool((x > 1000).any() and (x < -1000).any()))
    assert source(plain, held) == ["x = torch.tensor([0.0, 1200.0, 0.0, -4300.0])"]


def test_zeros_that_would_fail_otherwise_are_ones() -> None:
    case, held = recorded(noise(64).abs() + 0.5)
    plain, _ = plainest(fewer_values, case, held, lambda x, out: bool((x > 2).any() and (x != 0).all()))
    left = numbers("float32", held[str(plain.tensors[0].storage)])
    assert (left == 1).sum() == 63


def test_few_recorded_numbers_are_plainer_than_random_ones() -> None:
    """Random numbers would fail, too, and need a seed."""
    case, held = captured(lambda x: x.sin(), torch.tensor([2.6, 1.4], dtype=torch.float16))

    def falls(x: torch.Tensor, out: torch.Tensor) -> bool:
        return x.numel() == 2 and bool(x[0] > x[1] + 1)

    torch.manual_seed(0)
    assert falls(made := torch.randn(2), made)
    plain = canonicalize(case, held, Asked(held, falls))
    assert source(plain, held) == ["x = torch.tensor([3.0, 0.0])"]


def test_random_numbers_go_once_a_tensor_is_small() -> None:
    case, held = captured(lambda x: x.sin(), torch.randn(8, 64).abs() + torch.linspace(0.3, 0.9, 64))
    one = canonicalize(case, held, Asked(held, lambda x, out: bool((x % 1 != 0).any())))
    assert source(one, held) == ["x = torch.full((1,), 0.1)"]
    case, held = captured(lambda x: x.sin(), torch.arange(20.0).flip(0) * 3)
    six = canonicalize(case, held, Asked(held, lambda x, out: bool((x > 5.5).any())))
    assert source(six, held) == ["x = torch.full((1,), 10.0)"]
    case, held = captured(lambda x: x * 2, torch.randn(8, 64, dtype=torch.complex64))
    turned = canonicalize(case, held, Asked(held, lambda x, out: x.is_complex() and bool((x.imag != 0).any())))
    assert source(turned, held) == ["x = torch.full((1,), 1.0j)"]


def test_nan_and_infinities_stay_only_where_they_matter() -> None:
    case, held = recorded(torch.tensor([float("nan"), 3.25, float("inf")]))
    plain, _ = plainest(plain_numbers, case, held, lambda x, out: bool((x > 3).any()) and x.tolist()[1] > 3)
    assert source(plain, held) == ["x = torch.tensor([1.0, 4.0, 1.0])"]


@pytest.mark.parametrize(
    ("values", "least", "shown"),
    [
        ([0.0, 3e30, -2e-30], 1.5, "x = torch.tensor([0.0, 10.0, 10.0])"),
        ([7e8, 0.0], 300.0, "x = torch.tensor([1000.0, 0.0])"),
        ([2e30, 0.0], 1e20, "x = torch.tensor([2e+30, 0.0])"),
        ([float("inf"), 1.0], 50.0, "x = torch.tensor([100.0, 1.0])"),
    ],
)
def test_numbers_beyond_the_everyday_become_everyday_ones_where_that_will_do(
    values: list[float], least: float, shown: str
) -> None:
    case, held = recorded(torch.tensor(values))
    plain, asked = plainest(
        plain_numbers, case, held, lambda x, out: bool((x > least).any()) and len(set(x.tolist())) > 1
    )
    assert source(plain, held) == [shown]
    assert asked <= 12


@pytest.mark.parametrize(
    ("dtype", "value", "least", "shown"),
    [
        ("float32", -1e30, 5.0, "x = torch.full((3,), -10.0)"),
        ("float32", 1e-30, 0.0, "x = torch.full((3,), 0.1)"),
        ("int64", 2**40, 99, "x = torch.full((3,), 100)"),
        ("int64", 2**40, 2**39, f"x = torch.full((3,), {10**12})"),
    ],
)
def test_one_number_beyond_the_everyday_becomes_an_everyday_one(
    dtype: str, value: float, least: float, shown: str
) -> None:
    case, held = captured(lambda x: x * 2, torch.full((3,), value, dtype=getattr(torch, dtype)))
    spec = replace(case.tensors[0], storage=None, init={"fn": "full", "value": value})
    plain, _ = plainest(
        plain_numbers, replace(case, tensors=(spec,)), held,
        lambda x, out: bool((x.abs() > least).all() and (x != 1).all()),
    )  # fmt: skip
    assert source(plain, held) == [shown]


def test_values_are_simplified_tensor_by_tensor_where_one_matters() -> None:
    case, held = captured(lambda x, y, z: x + y + z, noise(4), noise(4) * 2, noise(4) * 3)
    wanted = noise(4) * 2
    plain, asked = plainest(plain_values, case, held, lambda x, y, z, out: torch.equal(y, wanted))
    assert [t.init for t in plain.tensors] == [{"fn": "full", "value": 0.0}, None, {"fn": "full", "value": 0.0}]
    assert asked <= 10


def test_values_that_a_capture_left_out_become_constants_where_they_do_not_matter() -> None:
    case, held = captured(lambda x, y, z: x + y + z, noise(4), noise(4), torch.zeros(4, dtype=torch.int64))
    inits: tuple[dict[str, Any], ...] = {"fn": "randn"}, {"fn": "rand"}, {"fn": "randint", "low": 3, "high": 9}
    specs = [replace(spec, storage=None, init=init) for spec, init in zip(case.tensors, inits, strict=True)]
    case = replace(case, tensors=tuple(specs))
    plain, asked = plainest(plain_values, case, held, ALWAYS)
    assert (source(plain, held), asked) == (["x = torch.zeros(4)", "y = torch.zeros(4)",
                                             "z = torch.zeros(4, dtype=torch.int64)"], 1)  # fmt: skip
    plain, _ = plainest(plain_values, case, held, lambda x, y, z, out: len(set(x.tolist())) > 1 and bool(y.all()))
    assert [t.init for t in plain.tensors] == [
        {"fn": "randn"}, {"fn": "full", "value": 1.0}, {"fn": "full", "value": 0}
    ]  # fmt: skip


def test_one_number_is_preferred_to_a_sequence_and_an_index_is_as_small_as_it_can_be() -> None:
    case, held = captured(lambda x, i: x.sum() + i, noise(6), torch.tensor([5, 901, 40]))
    plain, asked = plainest(
        plain_values, case, held, lambda x, i, out: bool(((x != 0) & (x != 1)).any()) and int(i.max()) > 255
    )
    assert source(plain, held) == ["x = torch.full((6,), 2.0)", "i = torch.full((3,), 256)"]
    assert asked < 25
    case, held = captured(lambda i: i >> 1, torch.tensor([5, -901, 40]))
    plain, _ = plainest(plain_values, case, held, lambda i, out: bool((i < 0).any()))
    assert source(plain, held) == ["i = torch.full((3,), -1)"]
    case, held = captured(lambda x, i: x.sum() + i, noise(6), torch.full((3,), 900))
    plain, asked = plainest(plain_values, case, held, lambda x, i, out: bool((x != 0).any() and (x != 1).any()))
    assert (source(plain, held)[1], asked) == ("i = torch.zeros(3, dtype=torch.int64)", 6)


# What stands around


def driven(
    simplification: Canonicalize, case: Case, same: Callable[[Case], bool], field: str
) -> tuple[dict[str, Any], int]:
    candidates, asked = simplification(case, Held()), 0
    try:
        candidate = next(candidates)
        while True:
            asked += 1
            candidate = candidates.send(same(candidate))
    except StopIteration as end:
        return getattr(end.value, field), asked


def test_arguments_of_compile_go_each_alone() -> None:
    options = {"dict": [["a", 1], ["b", 2], ["c", 3]]}
    backend = {"name": "inductor", "mode": "max-autotune", "dynamic": True, "options": options}
    case = replace(captured(lambda x: x + 1, torch.ones(1))[0], backend=backend)

    def has(item: list[object]) -> Callable[[Case], bool]:
        return lambda c: item in c.backend.get("options", {}).get("dict", [])

    assert driven(default_arguments, case, lambda c: True, "backend") == ({"name": "inductor"}, 1)
    kept, asked = driven(default_arguments, case, has(["b", 2]), "backend")
    assert kept == {"name": "inductor", "options": {"dict": [["b", 2]]}}
    assert asked <= 7
    kept, _ = driven(default_arguments, case, lambda c: c.backend.get("mode") is not None, "backend")
    assert kept == {"name": "inductor", "mode": "max-autotune"}


# Duplicates


def test_inputs_that_look_alike_become_one() -> None:
    zeros = [torch.zeros(2), torch.zeros(2), torch.ones(2), torch.zeros(2)]
    case, held = captured(lambda x, y, z, w: (x + y) * z - w, *zeros)
    case, _ = plainest(plain_values, case, held, ALWAYS)
    case = replace(case, tensors=(*case.tensors[:2], replace(case.tensors[2], init={"fn": "arange"}), case.tensors[3]))
    plain, asked = plainest(one_input_twice, case, held, ALWAYS)
    assert asked == 1
    assert [n.name for n in plain.graph.placeholders] == ["x", "z"]
    assert [n.inputs for n in plain.graph.compute] == [("x",), ("add", "z"), ("mul", "x")]
    assert len(plain.tensors) == len(plain.inputs) == 2
    plain, _ = plainest(one_input_twice, case, held, lambda *given: len(given) == 4)
    assert [n.name for n in plain.graph.placeholders] == ["x", "y", "z"]


# All of it


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift: torch.Tensor = self.get_buffer("shift")
        return torch.addcmul(shift, x, self.scale) + shift


def test_tensors_that_a_graph_holds_become_inputs() -> None:
    encoded = encode(torch.fx.symbolic_trace(Scale()), (torch.randn(3),))
    case, held = Case(encoded.graph, encoded.inputs, encoded.tensors, backend={"name": "eager"}), Held(encoded.blobs)
    gm, inputs = build(case, held)
    plain, asked = plainest(held_as_inputs, case, held, ALWAYS)
    assert asked == 1
    assert plain.graph.attrs == {}
    assert [n.op for n in plain.graph.nodes].count("get_attr") == 0
    same, given = build(plain, held)
    assert len(given) == 3
    assert torch.equal(same(*given), gm(*inputs))
    one, _ = plainest(held_as_inputs, case, held, lambda *given: len(given) <= 3)
    assert len(one.graph.attrs) == 1
    same, given = build(one, held)
    assert torch.equal(same(*given), gm(*inputs))


def test_a_failure_that_needs_nothing_takes_one_question() -> None:
    base = torch.randn(200).half()
    case, held = captured(lambda x, y: torch.matmul(x, y).half(), base[8:128].view(12, 10).t(), base[:144].view(12, 12))
    case = replace(case, context={"grad": False, "threads": 1}, backward=True)
    asked = Asked(held, ALWAYS)
    plain = canonicalize(case, held, asked)
    assert len(asked.known) == 1
    assert (plain.context, plain.backward) == ({}, False)
    assert source(plain, held) == ["x = torch.zeros(1)"]
    assert plain.graph.compute[-1].target == "float"


def test_a_simplified_case_is_a_valid_document() -> None:
    from fxminify.minifier.tracing.content_address import content_addressed
    from fxminify.store.document.case import to_json

    z = torch.complex(noise(6), noise(6)).conj()
    case, held = captured(lambda x, y: (x, y), noise(6, 6).t()[1:], z)
    for fails in (ALWAYS, lambda x, *_: x.stride(0) == 1, lambda *given: given[-2].is_complex()):
        addressed, blobs = content_addressed(canonicalize(case, held, Asked(held, fails)), held)
        assert Asked(Held(blobs), fails)(validate(to_json(addressed)))
