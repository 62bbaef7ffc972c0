"""What is printed rebuilds the same tensors: bits, dtype, strides, offset, sharing, autograd state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fxminify.repro_templates.source.elements import COMPLEX, FLOATS, INTEGERS
from fxminify.repro_templates.source.inputs import SIDE_FILE, NeedsData, print_inputs
from fxminify.repro_templates.source.recipes import recipes
from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.live.build import Builder
from fxminify.store.live.encode import Encoder


def case_of(*tensors: Any) -> tuple[Case, dict[str, bytes]]:
    encoder = Encoder()
    values = tuple(encoder.value(t) for t in tensors)
    specs, blobs = encoder.finish()
    names = [f"x{i}" for i, _ in enumerate(tensors)]
    graph = Graph((*(Node(n, "placeholder", n) for n in names), Node("output", "output", "output", (None,))))
    return Case(graph, values, specs), blobs


def text_of(case: Case, blobs: dict[str, bytes], **options: Any) -> str:
    names = ["x", "y", "z", "w"][: len(case.inputs)]
    printed = print_inputs(case, blobs, names, **options)
    lines = ["import torch", *printed.imports, *(s.layout() for s in printed.statements)]
    return "\n".join([*lines, f"result = [{', '.join(printed.arguments)}]"])


def executed(text: str, file: str = "script.py") -> list[Any]:
    scope: dict[str, Any] = {"__file__": file}
    exec(compile(text, "script", "exec"), scope)  # noqa: S102  the text under test
    found: list[Any] = scope["result"]
    return found


def bits(t: torch.Tensor) -> bytes:
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())
    dense = torch.empty(t.shape, dtype=t.dtype).copy_(flat) if t.numel() else torch.empty(0)
    return bytes(dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def assert_same(made: torch.Tensor, wanted: torch.Tensor, *, offset: bool = True) -> None:
    assert type(made) is type(wanted)
    for what in ("dtype", "shape", "requires_grad", "is_leaf", "device"):
        assert getattr(made, what) == getattr(wanted, what), what
    assert made.stride() == wanted.stride()
    assert (made.is_conj(), made.is_neg(), made.is_inference()) == (
        wanted.is_conj(), wanted.is_neg(), wanted.is_inference()
    )  # fmt: skip
    if offset:
        assert made.storage_offset() == wanted.storage_offset()
    with torch.no_grad(), torch.inference_mode(wanted.is_inference()):
        assert bits(made) == bits(wanted)


def f32(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values])


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "torch.tensor([1.0, 1e+30])": lambda: f32(1.0, 1e30),
    "torch.tensor([0.1, inf, -inf, nan, -0.0])": lambda: f32(0.1, float("inf"), -float("inf"), float("nan"), -0.0),
    "torch.tensor([1.1754944e-38, 3.4028235e+38, 1e-45])": lambda: f32(1.1754943508222875e-38, 3.4028234e38, 1e-45),
    "torch.tensor(2.0)": lambda: torch.tensor(2.0),
    "torch.tensor([-9223372036854775808, 7])": lambda: torch.tensor([-(2**63), 7]),
    "torch.tensor([True, False])": lambda: torch.tensor([True, False]),
    "torch.tensor([[1.0, 2.0], [3.0, 4.5]])": lambda: torch.tensor([[1.0, 2.0], [3.0, 4.5]]),
    "torch.tensor([0.1, -2.0], dtype=torch.float64)": lambda: torch.tensor([0.1, -2.0], dtype=torch.float64),
    "torch.tensor([0.1, 65500.0], dtype=torch.float16)": lambda: torch.tensor([0.1, 65504.0]).half(),
    "torch.tensor([0.1, 3e+38], dtype=torch.bfloat16)": lambda: torch.tensor([0.1, 3e38]).bfloat16(),
    "torch.tensor([448.0, -0.001953125], dtype=torch.float8_e4m3fn)": lambda: torch.tensor([448.0, -(2**-9)]).to(
        torch.float8_e4m3fn
    ),
    "torch.tensor([1.0+2.5j, 0.0-1.0j])": lambda: torch.tensor([1 + 2.5j, complex(0, -1)]),
    "torch.tensor([complex(-0.0, inf)], dtype=torch.complex128)": lambda: torch.tensor(
        [complex(-0.0, float("inf"))], dtype=torch.complex128
    ),
    "torch.tensor([1, 65535], dtype=torch.uint16)": lambda: torch.tensor([1, 65535], dtype=torch.uint16),
    "torch.zeros(11, dtype=torch.int64)": lambda: torch.zeros(11, dtype=torch.int64),
    "torch.full((5000,), 1.5, dtype=torch.float16)": lambda: torch.full((5000,), 1.5).half(),
    "torch.ones(2, 3, 4)": lambda: torch.ones(2, 3, 4),
    "torch.full((2, 4), 7)": lambda: torch.full((2, 4), 7),
    "torch.full((9,), nan)": lambda: torch.full((9,), float("nan")),
    "torch.full((9,), -0.0)": lambda: -torch.zeros(9),
    "torch.ones(6, dtype=torch.bool)": lambda: torch.ones(6, dtype=torch.bool),
    "torch.arange(100, dtype=torch.uint8)": lambda: torch.arange(100).to(torch.uint8),
    "torch.arange(-3, 9)": lambda: torch.arange(-3, 9),
    "torch.arange(10, -10, -2)": lambda: torch.arange(10, -10, -2),
    "torch.arange(12, dtype=torch.float32).reshape(3, 4)": lambda: torch.arange(12.0).reshape(3, 4),
    "torch.empty(0, 3)": lambda: torch.empty(0, 3),
    "torch.tensor([[1.0, 2.0], [3.0, 5.0], [9.0, 7.0]]).t()": lambda: torch.tensor(
        [[1.0, 2.0], [3.0, 5.0], [9.0, 7.0]]
    ).t(),
    "torch.tensor([[[1, 2], [3, 5]], [[4, 4], [9, 7]]]).mT": lambda: torch.tensor(
        [[[1, 2], [3, 5]], [[4, 4], [9, 7]]]
    ).mT,
    "torch.ones(2, 4, 5, 3).permute(0, 3, 1, 2)": lambda: torch.ones(2, 3, 4, 5).to(
        memory_format=torch.channels_last
    ),
    "torch.tensor([1.0, 2.0, 4.0]).expand(2, 3)": lambda: f32(1, 2, 4).expand(2, 3),
    "torch.tensor([[1.0], [2.0]]).expand(2, 3)": lambda: torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "torch.tensor(3.0).expand(2, 3)": lambda: torch.tensor(3.0).expand(2, 3),
    "torch.tensor([0, 1, 5, 3, 4]).as_strided((3,), (2,))": lambda: torch.tensor([0, 1, 5, 3, 4])[::2],
    "torch.tensor([0, 1, 5, 3, 4]).as_strided((2,), (2,), 1)": lambda: torch.tensor([0, 1, 5, 3, 4, 9])[1:4:2],
    "torch.tensor([[1.0, 2.0]]).as_strided((1, 2), (7, 1))": lambda: f32(1, 2).as_strided((1, 2), (7, 1)),
    "torch.tensor([1.0, 2.0]).requires_grad_()": lambda: f32(1, 2).requires_grad_(),
    "torch.tensor([1.0, 2.0]).requires_grad_().clone()": lambda: f32(1, 2).requires_grad_() * 1,
    "torch.nn.Parameter(torch.tensor([1.0, 2.0]))": lambda: torch.nn.Parameter(f32(1, 2)),
    "torch.nn.Parameter(torch.tensor([1.0, 2.0]), requires_grad=False)": lambda: torch.nn.Parameter(
        f32(1, 2), requires_grad=False
    ),
    "torch.tensor([1.0+2.0j]).conj()": lambda: torch.tensor([1 + 2j]).conj(),
    "torch._neg_view(torch.tensor([1.0, 2.0]))": lambda: torch._neg_view(f32(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("text", KINDS)
def test_a_tensor_prints_as_expected_and_rebuilds_the_same(text: str) -> None:
    wanted = KINDS[text]()
    case, blobs = case_of(wanted)
    printed = text_of(case, blobs).splitlines()
    if "as_strided" not in text:
        assert f"x = {text}" in printed
    rebuilt = executed("\n".join(printed))[0]
    built = Builder(case.tensors, blobs).value(case.inputs[0])
    assert_same(rebuilt, built)
    assert_same(rebuilt, wanted, offset=False)


def test_bytes_of_a_dtype_without_literals_are_viewed() -> None:
    wanted = torch.tensor([1, 35, 7], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    case, blobs = case_of(wanted)
    assert executed(text_of(case, blobs))[0].view(torch.uint8).tolist() == [1, 35, 7]


def test_an_inference_tensor_is_made_in_inference_mode() -> None:
    with torch.inference_mode():
        wanted = f32(1, 2)
    case, blobs = case_of(wanted)
    assert_same(executed(text_of(case, blobs))[0], wanted)


def test_inputs_in_one_storage_are_views_of_one_name() -> None:
    base = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    case, blobs = case_of(base[2:8].view(2, 3), base[4:6], base[::2], base[2:8])
    made = executed(text_of(case, blobs))
    for new, old in zip(made, (base[2:8].view(2, 3), base[4:6], base[::2], base[2:8]), strict=True):
        assert_same(new, old)
    assert len({t.untyped_storage().data_ptr() for t in made}) == 1


def test_the_same_tensor_twice_is_one_name() -> None:
    x = f32(1, 2)
    case, blobs = case_of(x, x)
    made = executed(text_of(case, blobs))
    assert made[0] is made[1]


def test_equal_bytes_in_two_storages_do_not_alias() -> None:
    case, blobs = case_of(f32(1, 2), f32(1, 2))
    made = executed(text_of(case, blobs))
    assert made[0].untyped_storage().data_ptr() != made[1].untyped_storage().data_ptr()


def test_a_leaf_keeps_its_grad() -> None:
    x = f32(1, 2).requires_grad_()
    x.grad = f32(3, 4)
    encoder = Encoder(grads=True)
    value = encoder.value(x)
    specs, blobs = encoder.finish()
    graph = Graph((Node("x", "placeholder", "x"), Node("output", "output", "output", (None,))))
    made = executed(text_of(Case(graph, (value,), specs), blobs))[0]
    assert made.grad is not None
    assert made.grad.tolist() == [3.0, 4.0]


def test_plain_values_print_in_place() -> None:
    case, blobs = case_of(4, 2.5, float("inf"), None)
    assert executed(text_of(case, blobs)) == [4, 2.5, float("inf"), None]


@pytest.mark.parametrize(
    ("init", "dtype", "shape", "stride", "text"),
    [
        ({"fn": "randn"}, "float32", (2, 8), (8, 1), "torch.randn(2, 8)"),
        ({"fn": "randn"}, "complex64", (2,), (1,), "torch.randn(2, dtype=torch.complex64)"),
        ({"fn": "full", "value": 0}, "complex64", (2,), (1,), "torch.zeros(2, dtype=torch.complex64)"),
        ({"fn": "full", "value": {"complex": [1.0, 0.0]}}, "complex64", (1,), (1,),
         "torch.ones(1, dtype=torch.complex64)"),
        ({"fn": "randn"}, "float8_e5m2", (2,), (1,), "torch.randn(2).to(torch.float8_e5m2)"),
        ({"fn": "rand"}, "bfloat16", (3,), (1,), "torch.rand(3, dtype=torch.bfloat16)"),
        ({"fn": "rand"}, "float32", (), (), "torch.rand(())"),
        ({"fn": "randint", "low": 0, "high": 99}, "int64", (2, 8), (8, 1), "torch.randint(0, 99, (2, 8))"),
        ({"fn": "randint", "low": 0, "high": 2}, "bool", (3,), (1,), "torch.randint(0, 2, (3,), dtype=torch.bool)"),
        ({"fn": "randint", "low": 1, "high": 9}, "uint16", (3,), (1,), "torch.randint(1, 9, (3,)).to(torch.uint16)"),
        ({"fn": "full", "value": 0.0}, "float32", (3, 2), (2, 1), "torch.zeros(3, 2)"),
        ({"fn": "full", "value": {"float": "inf"}}, "float64", (3,), (1,),
         "torch.full((3,), inf, dtype=torch.float64)"),
        ({"fn": "full", "value": 1}, "int64", (3,), (1,), "torch.ones(3, dtype=torch.int64)"),
        ({"fn": "full", "value": True}, "bool", (3,), (1,), "torch.ones(3, dtype=torch.bool)"),
        ({"fn": "full", "value": 2.0}, "float32", (3, 2), (1, 3), "torch.full((2, 3), 2.0).t()"),
        ({"fn": "arange"}, "float32", (3, 2), (2, 1), "torch.arange(6, dtype=torch.float32).reshape(3, 2)"),
        ({"fn": "randn"}, "float32", (6, 5), (1, 6), "torch.randn(5, 6).t()"),
        ({"fn": "rand"}, "float64", (2, 3, 4), (1, 8, 2), "torch.rand(3, 4, 2, dtype=torch.float64).permute(2, 0, 1)"),
        ({"fn": "arange"}, "int64", (2, 2, 3), (6, 1, 2), "torch.arange(12).reshape(2, 3, 2).mT"),
        ({"fn": "randint", "low": 0, "high": 9}, "int64", (4, 3), (0, 1), "torch.randint(0, 9, (3,)).expand(4, 3)"),
        ({"fn": "full", "value": 0.0}, "float32", (4, 1, 1, 2), (2, 1, 2, 1),
         "torch.zeros(4, 1, 2, 1).permute(0, 3, 1, 2)"),
        ({"fn": "randn"}, "float32", (2, 3, 4, 5), (60, 1, 15, 3),
         "torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)"),
        ({"fn": "randn"}, "float32", (3,), (2,), "torch.zeros(5).as_strided((3,), (2,)).copy_(torch.randn(3))"),
    ],
)  # fmt: skip
def test_a_generator_prints_as_the_call_the_build_makes(
    init: dict[str, Any], dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], text: str
) -> None:
    case, _ = case_of(f32(1), f32(2))
    spec = replace(case.tensors[0], storage=None, init=init, dtype=dtype, shape=shape, stride=stride)
    first = replace(spec, init={"fn": "randn"}, dtype="float32", shape=(3,), stride=(1,))
    case = replace(case, tensors=(spec, first), inputs=({"tensor": 1}, {"tensor": 0}))
    printed = text_of(case, {})
    assert f"y = {text}" in printed.splitlines()
    before = torch.get_rng_state()
    built = Builder(case.tensors, {}, first=(1, 0))
    for made, value in zip(executed(printed), case.inputs, strict=True):
        assert_same(made, built.value(value))
    torch.set_rng_state(before)


def test_lazy_bits_of_a_generated_tensor_are_printed_as_the_build_sets_them() -> None:
    case, _ = case_of(f32(1))
    spec = replace(case.tensors[0], storage=None, init={"fn": "randn"}, dtype="complex64", shape=(3,), conj=True)
    case = replace(
        case,
        tensors=(spec, replace(spec, dtype="float32", conj=False, neg=True)),
        inputs=({"tensor": 0}, {"tensor": 1}),
    )
    built = Builder(case.tensors, {}, first=(0, 1))
    for made, value in zip(executed(text_of(case, {})), case.inputs, strict=True):
        assert_same(made, built.value(value))


def test_large_data_is_refused_by_name_unless_embedded(tmp_path: Path) -> None:
    tensors = [torch.randn(100), torch.randn(3, 40).t(), torch.randint(0, 9, (2, 60)), f32(1, 2)]
    case, blobs = case_of(*tensors)
    with pytest.raises(NeedsData) as caught:
        text_of(case, blobs)
    assert caught.value.names == ("x", "y", "z")

    printed = print_inputs(case, blobs, ["x", "y", "z", "w"], embed=True)
    assert printed.data is not None
    (tmp_path / SIDE_FILE).write_bytes(printed.data)
    made = executed(text_of(case, blobs, embed=True), str(tmp_path / "repro.py"))
    for new, old in zip(made, tensors, strict=True):
        assert_same(new, old)


def test_recipes_keep_indices_in_range_and_start_with_the_exact_constant() -> None:
    case, blobs = case_of(torch.tensor([[5, 97, 30]]))
    (key,) = blobs
    inits = [r.init for r in recipes(case.tensors[0], blobs[key])]
    assert inits == [
        {"fn": "full", "value": 0},
        {"fn": "full", "value": 1},
        {"fn": "arange"},
        {"fn": "randint", "low": 5, "high": 98},
        {"fn": "full", "value": 97},
        {"fn": "full", "value": 5},
    ]
    case, blobs = case_of(torch.full((7,), 2.5))
    (key,) = blobs
    assert recipes(case.tensors[0], blobs[key])[0].init == {"fn": "full", "value": 2.5}


def test_recipes_offer_the_values_a_failure_may_hang_on() -> None:
    case, blobs = case_of(f32(1.0, 1e30, float("inf"), -3.0))
    (key,) = blobs
    assert [r.init for r in recipes(case.tensors[0], blobs[key])] == [
        {"fn": "full", "value": 0.0},
        {"fn": "full", "value": 1.0},
        {"fn": "arange"},
        {"fn": "randn"},
        {"fn": "rand"},
        {"fn": "full", "value": {"float": "inf"}},
        {"fn": "full", "value": 1e30},
        {"fn": "full", "value": -3.0},
    ]


LAYOUTS = [
    ((2, 3), (3, 1), 0),
    ((), (), 0),
    ((), (), 2),
    ((0, 3), (3, 1), 0),
    ((0,), (5,), 0),
    ((3, 2), (1, 3), 0),
    ((2, 3), (4, 1), 0),
    ((2, 3), (1, 4), 1),
    ((4,), (3,), 0),
    ((4,), (1,), 2),
    ((1, 3), (7, 1), 0),
    ((2, 3, 2, 2), (12, 1, 6, 3), 0),
    ((2, 3, 2, 2), (40, 1, 18, 3), 5),
    ((2, 2, 3), (6, 1, 2), 0),
    ((2, 2, 3), (1, 6, 2), 0),
]
GENERATORS: list[dict[str, Any]] = [
    {"fn": "randn"},
    {"fn": "rand"},
    {"fn": "randint", "low": 0, "high": 2},
    {"fn": "arange"},
    *({"fn": "full", "value": value} for value in (0, 1, 0.0, -0.0, 1.0, 2.5, 100, True, False, {"float": "inf"})),
    {"fn": "full", "value": {"complex": [1.0, -2.0]}},
    {"fn": "full", "value": 2**24 + 1},
]


def is_meant(fn: str, value: Any, dtype: str) -> bool:
    """Whether a constant is one of the numbers of ``dtype``: no other is proposed."""
    if fn != "full":
        return True
    if dtype in COMPLEX:
        return not isinstance(value, bool)
    if dtype == "bool":
        return isinstance(value, bool)
    if dtype in INTEGERS:
        return type(value) is int and (value <= 100 or "32" in dtype or "64" in dtype)
    return type(value) is float or (value == {"float": "inf"} and dtype != "float8_e4m3fn")


@pytest.mark.parametrize("dtype", sorted(INTEGERS | FLOATS | COMPLEX | {"bool", "float8_e4m3fn", "float8_e5m2"}))
def test_worker_and_script_make_the_same_storage_to_the_bit(dtype: str) -> None:
    compared = 0
    for (shape, stride, offset), init in itertools.product(LAYOUTS, GENERATORS):
        if not is_meant(init["fn"], init.get("value"), dtype):
            continue
        for requires_grad in (False, True) if dtype in FLOATS else (False,):
            spec = TensorSpec(
                dtype, shape, stride, offset, init=init, requires_grad=requires_grad, leaf=not requires_grad
            )
            case = Case(Graph((Node("x", "placeholder", "x"),)), ({"tensor": 0},), (spec,))
            text = text_of(case, {})
            (made,) = executed(text)
            wanted = Builder([spec], {}).tensor(0)
            assert_same(made, wanted)
            pair = [bytes(t.detach().untyped_storage().tolist()) for t in (made, wanted)]
            assert pair[0] == pair[1], text
            compared += 1
    assert compared > 4 * len(LAYOUTS)
