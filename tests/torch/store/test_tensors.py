"""Every kind of tensor an input can be comes back with its bits, its place in a storage and its place in autograd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from identical import difference, places, tensors_in

from fxminify.store.document.case import Case, Graph, Node, TensorSpec, to_json
from fxminify.store.document.decode import InvalidDocument, parse, validate
from fxminify.store.live.build import build, build_value
from fxminify.store.live.encode import Encoder, Unsupported

torch.set_num_threads(1)
EMPTY = Graph((Node("output", "output", "output", (None,)),))


def round_trip(values: list[Any]) -> list[Any]:
    """``values`` as data, through JSON and every check, and back."""
    encoder = Encoder(grads=True)
    encoded = tuple(encoder.value(v) for v in values)
    tensors, blobs = encoder.finish()
    names = [f"x{i}" for i in range(len(values))]
    graph = replace(EMPTY, nodes=(*(Node(n, "placeholder", n) for n in names), *EMPTY.nodes))
    case = Case(graph, encoded, tensors)
    again = validate(parse(json.dumps(to_json(case), allow_nan=False)))
    assert again == case
    return build(again, blobs)[1]


def bits(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    top = 2 if dtype is torch.bool else 256
    return torch.randint(0, top, (16 * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def with_grad() -> torch.Tensor:
    x = leaf(2)
    (x * 3).sum().backward()
    return x


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(3)


def result_and_view() -> list[torch.Tensor]:
    y = leaf(4) * 2
    return [y, y[1:], y.detach()[2:]]


DTYPES = [
    d for n in sorted(dir(torch)) if isinstance(d := getattr(torch, n), torch.dtype) and str(d) == f"torch.{n}"
    and not n.startswith(("q", "quint"))
]  # fmt: skip
BASE = torch.arange(20.0)
KINDS: dict[str, Callable[[], list[Any]]] = {
    "views of one storage": lambda: [BASE[2:8].view(2, 3), BASE[4:6], BASE],
    "views of other dtypes": lambda: [BASE[1:3], BASE.view(torch.int32)[2:9], BASE.view(torch.uint8)[77:80]],
    "one object twice": lambda: [BASE, BASE],
    "two equal storages": lambda: [torch.zeros(4), torch.zeros(4), torch.zeros(4)[1:]],
    "two empty storages": lambda: [torch.empty(0, 3), torch.empty(0)],
    "expanded": lambda: [torch.randn(4).expand(3, 4)],
    "overlapping": lambda: [torch.randn(20).as_strided((4, 4), (2, 1))],
    "transposed with an offset": lambda: [torch.randn(6, 4)[::2].t()],
    "no dimensions": lambda: [torch.tensor(3.0)],
    "channels last": lambda: [torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last)],
    "conjugate": lambda: [torch.randn(4, dtype=torch.complex64).conj()],
    "negative view": lambda: [torch.randn(4, dtype=torch.complex64).conj().imag],
    "sparse": lambda: [
        torch.eye(3).to_sparse(),
        torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([1.0, 2.0]), (2,)),
    ],
    "compressed": lambda: [torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_csc()],
    "compressed blocks": lambda: [torch.eye(4).to_sparse_bsr((2, 2)), torch.eye(4).to_sparse_bsc((2, 2))],
    "quantized": lambda: [torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8)],
    "quantized by channel": lambda: [
        torch.quantize_per_channel(torch.randn(2, 4), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8)
    ],
    "mkldnn": lambda: [torch.randn(2, 2).to_mkldnn()],
    "leaf": lambda: [leaf(3)],
    "result": lambda: [leaf(3) * 2],
    "view of a leaf": lambda: [leaf(3)[1:]],
    "leaf and its view": lambda: (lambda x: [x, x[1:]])(leaf(3)),
    "result, its view, and a detached one": result_and_view,
    "expanded result": lambda: [(leaf(3) * 2).expand(2, 3)],
    "conjugate result": lambda: [(torch.randn(3, dtype=torch.complex64, requires_grad=True) * 2).conj()],
    "parameter": lambda: [torch.nn.Parameter(torch.randn(2)), torch.nn.Parameter(torch.randn(2), False)],
    "gradient": lambda: [with_grad()],
    "meta": lambda: [torch.empty(3, 4, device="meta")],
    "inference": lambda: [inference()],
    "not a number": lambda: [torch.tensor([0x7FC00001, 0x7F800001], dtype=torch.int32).view(torch.float32)],
    "signed zero": lambda: [torch.tensor([-0.0, float("inf")])],
    "random generator": lambda: [torch.Generator().manual_seed(3)],
    "scalars": lambda: [1, 2.5, float("nan"), float("-inf"), -0.0, 1 + 2j, complex("nan-infj"), True, None, 2**70],
    "strings": lambda: ["x\n\"'\\", "\u2028 \u00e9", "\0", b"\0\xff"],
    "containers": lambda: [
        [1, (2, [3])],
        {"a": 1, 2: (None,)},
        torch.Size([1, 2]),
        slice(1, None, 2),
        ...,
        range(3),
        {3, 1},
    ],
    "types": lambda: [torch.float8_e4m3fn, torch.device("cuda:1"), torch.strided, torch.channels_last, float, int],
    "numeric limits": lambda: [torch.finfo(torch.float16), torch.iinfo(torch.int8)],
    "schemes": lambda: [
        torch.per_tensor_affine,
        torch.nn.attention.SDPBackend.MATH,
        torch.relu,
        torch.ops.aten.add.Tensor,
    ],
    "return types": lambda: [torch.max(torch.randn(2, 2), dim=1)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_comes_back_the_same(kind: str) -> None:
    values = KINDS[kind]()
    again = round_trip(values)
    assert difference(values, again) is None
    if kind != "result, its view, and a detached one":
        assert places(tensors_in(values)) == places(tensors_in(again))
    for a, b in zip(tensors_in(values), tensors_in(again), strict=True):
        assert (a.grad is None) == (b.grad is None) if a.is_leaf else True
        if a.layout is torch.strided and a.device.type == "cpu":
            assert a.numel() == 0 or a.data_ptr() % 64 == b.data_ptr() % 64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_the_same(dtype: torch.dtype) -> None:
    values = [bits(dtype), bits(dtype)[3:5]]
    assert difference(values, round_trip(values)) is None


def test_a_detached_tensor_shares_the_storage_of_a_result() -> None:
    y, view, detached = round_trip(result_and_view())
    detached.add_(100)
    assert y[2].item() > 50
    assert view[1].item() > 50


def test_a_result_can_be_written_to_and_has_a_gradient() -> None:
    y, view, _ = round_trip(result_and_view())
    view.mul_(2)
    (gradient,) = torch.autograd.grad(y.sum(), view, allow_unused=True, retain_graph=True)
    assert gradient is None or gradient.shape == view.shape
    y.sum().backward()
    assert y.grad_fn is not None


def test_only_the_span_in_use_is_stored() -> None:
    big = torch.randn(1 << 20)
    encoder = Encoder()
    encoder.tensor(big[1000:1010])
    encoder.tensor(big[1020:1030])
    tensors, blobs = encoder.finish()
    assert sum(map(len, blobs.values())) <= 64 + 30 * 4
    assert [t.offset for t in tensors] == [1000 % 16, 1020 - 1000 + 1000 % 16]


def test_whole_storages_are_kept_where_a_graph_counts_from_their_start() -> None:
    from fxminify.store.live.encode import encode

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2,), (1,), 5)

    gm, x = torch.fx.symbolic_trace(run), torch.arange(100.0)[50:]
    encoded = encode(gm, [x])
    again, inputs = build(Case(encoded.graph, encoded.inputs, encoded.tensors), encoded.blobs)
    assert again(*inputs).tolist() == [5.0, 6.0]


def test_encoding_neither_changes_nor_keeps_anything_of_the_users() -> None:
    x = leaf(4)
    y = x * 2
    versions, storage = (x._version, y._version), y.untyped_storage().data_ptr()
    encoder = Encoder()
    encoder.tensor(x)
    encoder.tensor(y)
    tensors, blobs = encoder.finish()
    assert (x._version, y._version) == versions
    with torch.no_grad():
        x.zero_()
    built = build_value({"tensor": 1}, tensors, blobs)
    assert built.untyped_storage().data_ptr() != storage
    assert build_value({"tensor": 0}, tensors, blobs).detach().any()


def test_modes_around_a_backend_do_not_disturb() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{func} was dispatched")

    x: Any = [torch.randn(3), leaf(2) * 2, torch.eye(2).to_sparse(), torch.Generator()]
    for mode in (FakeTensorMode(), Refusing(), torch.device("meta"), torch.inference_mode(), torch.no_grad()):  # type: ignore[no-untyped-call]
        with mode:
            again = round_trip(x)
        assert difference(x, again) is None
    differences: Any = torch.func.vmap(lambda _: difference(x, round_trip(x)) or torch.zeros(()))(torch.zeros(2))
    assert differences.shape == (2,)


def test_a_fake_tensor_gets_seeded_values() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        values = [torch.empty(2, 3).t(), torch.empty(3, dtype=torch.int64)]
    x, index = round_trip(values)
    assert (x.stride(), x.shape, index.dtype) == ((1, 3), (3, 2), torch.int64)
    assert set(index.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]), "nested tensor"),
        (lambda: torch._efficientzerotensor((2,)), "efficient zero tensor, which has no memory"),
        (lambda: torch.randn(3).as_subclass(type("Mine", (torch.Tensor,), {})), "tensor of class .*Mine"),
        (lambda: object(), "value of type builtins.object"),
        (lambda: lambda: 1, "function .*lambda.* has no name"),
        (lambda: torch.nn.Linear(1, 1), "value of type torch.nn.modules.linear.Linear"),
        (lambda: "\ud800", "lone surrogates"),
        (lambda: 1 << 300, "integer of 301 bits"),
        (lambda: torch.cuda.Stream, "has no name"),
    ],
)
def test_what_has_no_description_is_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        Encoder().value(make())


def test_what_has_no_description_stays_live_in_process() -> None:
    live: list[object] = []
    thing = object()
    encoder = Encoder(live=live)
    value = [encoder.value(thing), encoder.value(3), encoder.value(thing)]
    assert value == [{"object": 0}, 3, {"object": 0}]
    assert build_value(value, (), {}, live=live)[0] is thing
    with pytest.raises(InvalidDocument, match="a process that is gone"):
        build_value(value, (), {})


SEEDED = [
    ({"fn": "randn"}, "float32", "torch.randn((2, 3), dtype=torch.float32)"),
    ({"fn": "rand"}, "float64", "torch.rand((2, 3), dtype=torch.float64)"),
    ({"fn": "randn"}, "complex64", "torch.randn((2, 3), dtype=torch.complex64)"),
    ({"fn": "randn"}, "float8_e4m3fn", "torch.randn((2, 3), dtype=torch.float32).to(torch.float8_e4m3fn)"),
    ({"fn": "randint", "low": -2, "high": 5}, "int8", "torch.randint(-2, 5, (2, 3), dtype=torch.int8)"),
    ({"fn": "randint", "low": 0, "high": 2}, "bool", "torch.randint(0, 2, (2, 3), dtype=torch.bool)"),
    (
        {"fn": "randint", "low": 0, "high": 9},
        "uint16",
        "torch.randint(0, 9, (2, 3), dtype=torch.int64).to(torch.uint16)",
    ),
    ({"fn": "full", "value": {"float": "-inf"}}, "float16", "torch.full((2, 3), float('-inf'), dtype=torch.float16)"),
    ({"fn": "arange"}, "int32", "torch.arange(6, dtype=torch.int32).reshape((2, 3))"),
]


@pytest.mark.parametrize(("init", "dtype", "call"), SEEDED, ids=[s[2] for s in SEEDED])
def test_a_seeded_tensor_is_what_the_script_makes(init: dict[str, Any], dtype: str, call: str) -> None:
    spec = TensorSpec(dtype, (2, 3), (3, 1), init=init)
    before = torch.get_rng_state()
    built = build_value({"tensor": 0}, (spec,), {})
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        made = expected(call)
    assert difference(made, built) is None


def expected(call: str) -> torch.Tensor:
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"made = {call}", namespace)  # noqa: S102  the text a script holds
    made: torch.Tensor = namespace["made"]
    return made


def test_seeded_tensors_draw_in_the_order_of_the_inputs() -> None:
    specs = tuple(TensorSpec("float32", (2,), (1,), init={"fn": "randn"}) for _ in range(3))
    graph = replace(EMPTY, nodes=(Node("a", "placeholder", "a"), Node("b", "placeholder", "b"), *EMPTY.nodes))
    a, b = build(Case(graph, ({"tensor": 2}, [{"tensor": 0}]), specs), {})[1]
    torch.manual_seed(0)
    assert torch.equal(a, torch.randn(2))
    assert torch.equal(b[0], torch.randn(2))


def test_seeded_tensors_keep_strides_and_autograd_state() -> None:
    spec = TensorSpec("float32", (2, 3), (1, 2), init={"fn": "randn"}, requires_grad=True)
    x = build_value({"tensor": 0}, (spec,), {})
    assert (x.stride(), x.requires_grad, x.is_leaf) == ((1, 2), True, True)
    y = build_value({"tensor": 0}, (replace(spec, leaf=False),), {})
    assert (y.stride(), y.requires_grad, y.is_leaf) == ((1, 2), True, False)
    assert torch.equal(x, y)


def test_a_tensor_larger_than_its_storage_is_refused_before_it_grows() -> None:
    encoder = Encoder()
    encoder.tensor(torch.zeros(4))
    (spec,), blobs = encoder.finish()
    with pytest.raises(InvalidDocument, match="reaches byte 4000 of a storage of 16"):
        build_value({"tensor": 0}, (replace(spec, shape=(1000,)),), blobs)
    with pytest.raises(InvalidDocument, match=r"bytes of storage .* are missing"):
        build_value({"tensor": 0}, (spec,), {})


def test_sparse_indices_out_of_range_are_refused() -> None:
    encoder = Encoder()
    encoder.tensor(torch.eye(3).to_sparse())
    tensors, blobs = encoder.finish()
    small = tuple(replace(t, shape=(2, 2)) if t.parts else t for t in tensors)
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        build_value({"tensor": len(tensors) - 1}, small, blobs)
