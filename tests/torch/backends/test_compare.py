"""What counts as a divergence, what does not, and what cannot be said."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from real_failures import FOLDER, skip_if_gone
from torch import fx, nn

import fxminify
from fxminify.backends.comparison.compare import Accepted, CannotCompare, Differences, Divergence
from fxminify.backends.comparison.reference import Reference, drawn
from fxminify.backends.comparison.values import Judgement
from fxminify.backends.running.execution import Run, copy_inputs, cotangents, execute
from fxminify.backends.running.shared import SharedStorages
from fxminify.store.failure import DETACHED, Phase
from fxminify.store.index import Index
from fxminify.store.signature import signature


def compare(
    expected: Run, actual: Run, reference: Reference | None = None, *, strict: bool = False, detached: bool = False
) -> Divergence | None:
    return Differences(expected, actual, detached=detached).judged(reference, strict=strict)


def judge(
    eager: Callable[..., Any], compiled: Callable[..., Any], inputs: list[Any], backward: bool = False
) -> Divergence | None:
    """Compare two functions as if the second were the first one compiled, without and with shared storages."""
    graph = fx.symbolic_trace(eager)
    expected = execute(graph, copy_inputs(inputs), backward)
    actual = execute(compiled, copy_inputs(inputs), backward)
    shared = SharedStorages(graph, copy_inputs(inputs), large=1, copied=-1)
    shared.eager(backward)
    try:
        found = compare(expected, actual, Reference(SharedStorages(graph, inputs)))
    except CannotCompare as exc:
        with pytest.raises(CannotCompare, match=re.escape(str(exc))):
            compare(expected, actual, Reference(shared))
        raise
    other = compare(expected, actual, Reference(shared))
    assert (found and (found.kind, found.where)) == (other and (other.kind, other.where))
    return found


X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("kind", "eager", "compiled"),
    [
        ("structure", lambda x: (x, x), lambda x: (x,)),
        ("structure", lambda x: (x, None), lambda x: (x, x)),
        ("dtype", lambda x: x.sum(), lambda x: x.double().sum()),
        ("shape", lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
        ("value", lambda x: torch.sin(x), lambda x: torch.cos(x)),
        ("value", lambda x: x > 0, lambda x: x > 1),
        ("nan", lambda x: x / 1, lambda x: x / 0 * 0),
        ("inf", lambda x: x / 1, lambda x: x / 0),
        ("value", lambda x: x * 2, lambda x: x * 2.0001),
        ("stride", lambda x: x.t() * 2, lambda x: (x.t() * 2).contiguous()),
        ("alias", lambda x: x.view(-1), lambda x: x.view(-1).clone()),
        ("mutation", lambda x: x.add_(1).sum(), lambda x: (x + 1).sum()),
    ],
)
def test_the_classes_of_divergence(kind: str, eager: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    found = judge(eager, compiled, [X])
    assert found is not None
    assert (found.kind, found.phase) == (kind, Phase.FORWARD)
    assert judge(eager, eager, [X]) is None


def test_a_divergence_is_said_in_a_sentence() -> None:
    found = judge(lambda x: x * 2, lambda x: torch.cat([x[:1] * 2 + 0.5, x[1:] * 2]), [torch.ones(4)])
    assert found is not None
    assert found.message == "output 0 is off by 0.5 (eager by 0) in 1 of 4 elements"


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        (lambda x: x.sum(), lambda x: x.double().sum().float()),
        (lambda x: [x * 2], lambda x: (x * 2,)),
        (lambda x: (x + 1e4) - 1e4, lambda x: x * 1),
        (lambda x: (x.half() + 1).float(), lambda x: (x + 1).half().float()),
        (lambda x: x[:, :1] * 2, lambda x: (x[:, :1] * 2).as_strided((3, 1), (1, 7))),
        (lambda x: (x * 1e-8 + 1).argmax(), lambda x: (x * 1e-8 + 1).flatten().flip(0).argmax()),
        (lambda x: (x * 3 + 0.3 - 0.3).floor(), lambda x: ((x * 3).double() + 1e-8).floor().float()),
    ],
)
def test_arithmetic_in_another_order_is_no_divergence(eager: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    assert judge(eager, compiled, [X]) is None


def test_a_result_nearer_to_the_truth_than_eager_is_no_divergence() -> None:
    x = torch.full((1000,), 1.001).half()
    assert judge(lambda x: x.exp() * 6e4 / 6e4, lambda x: (x.double().exp() * 6e4 / 6e4).half(), [x]) is None


def test_wrong_gradients_are_found() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + (x - x.detach()) * 0.5

    found = judge(lambda x: torch.sin(x), wrong, [X.clone().requires_grad_()], backward=True)
    assert found is not None
    assert (found.kind, found.where, found.phase) == ("value", "gradient of input 0", Phase.BACKWARD)
    assert judge(lambda x: torch.sin(x), torch.sin, [X.clone().requires_grad_()], backward=True) is None


def test_no_gradient_and_a_gradient_of_zeros_are_the_same() -> None:
    inputs = [X.clone().requires_grad_(), X.clone().requires_grad_()]
    assert judge(lambda x, y: x.sin(), lambda x, y: x.sin() + y * 0, inputs, backward=True) is None


def seeded(x: torch.Tensor) -> torch.Tensor:
    """A dropout with a seed of 64 bits, as that of Inductor: eager's draws another number of bits."""
    (seed,) = torch.randint(-(2**63), 2**63 - 1, (1,)).tolist()
    generator = torch.Generator().manual_seed(seed)
    return x * 2 * torch.bernoulli(torch.full_like(x, 0.5), generator=generator)


def test_what_cannot_be_judged_is_said() -> None:
    with pytest.raises(CannotCompare, match="random"):
        judge(lambda x: F.dropout(x, 0.5), seeded, [X])
    with pytest.raises(CannotCompare, match="no gradient"):
        judge(lambda x: x * 2, lambda x: x.detach() * 2, [X.clone().requires_grad_()], backward=True)


@pytest.mark.parametrize(
    ("eager", "compiled", "off"),
    [
        (lambda x: F.dropout(x.exp(), 0.5), lambda x: F.dropout(x.exp() + 0.01, 0.5), 0.02),
        (lambda x: F.dropout(x, 0.5), lambda x: F.dropout(x, 0.5) + 0.01, 0.01),
        (lambda x: x + torch.rand_like(x), lambda x: x + torch.rand_like(x) * 3, None),
        (lambda x: (torch.rand_like(x) * 1000).sum().int(), lambda x: (torch.rand_like(x) * 1001).sum().int(), None),
    ],
)
def test_a_random_result_is_judged_where_the_generator_shows_that_the_same_numbers_were_drawn(
    eager: Callable[..., Any], compiled: Callable[..., Any], off: float | None
) -> None:
    found = judge(eager, compiled, [X])
    assert found is not None
    assert (found.kind, found.where) == ("value", "output 0")
    if off is not None:
        assert float(found.detail["error"]) == pytest.approx(off, rel=1e-3)
    assert judge(eager, eager, [X]) is None
    if found.detail["dtype"] == "float32":
        rounded = lambda x: eager(x) * (1 + 2**-22)  # noqa: E731  as far off as another order of sums is
        assert judge(eager, rounded, [X]) is None


def test_a_seed_that_takes_as_many_bits_as_the_numbers_do_tells_nothing() -> None:
    with pytest.raises(CannotCompare, match="random"):
        judge(lambda x: torch.rand_like(x), lambda x: seeded(torch.ones(2)), [torch.ones(2)])


def test_outputs_without_any_gradient_are_a_divergence_for_who_asks() -> None:
    inputs = [X.clone().requires_grad_()]
    expected = execute(lambda x: (x * 2,), copy_inputs(inputs), True)
    actual = execute(lambda x: (x.detach() * 2,), copy_inputs(inputs), True)
    found = compare(expected, actual, detached=True)
    assert found is not None
    assert (found.kind, found.where, found.phase) == ("gradient", "output 0", Phase.BACKWARD)
    assert found.detail[DETACHED] is True
    assert found.message == "output 0 requires a gradient in eager, and none compiled"
    wrong = execute(lambda x: (x.detach() * 3,), copy_inputs(inputs), True)
    values = compare(expected, wrong, detached=True)  # what is wrong besides is said alone
    assert values is not None
    assert (values.kind, values.others) == ("value", ())


@pytest.mark.parametrize(
    ("kind", "eager", "compiled"),
    [
        ("stride", lambda x: (F.dropout(x), x.t() * 2), lambda x: (seeded(x), (x.t() * 2).contiguous())),
        ("value", lambda x: (F.dropout(x), x * 2), lambda x: (seeded(x), x * 3)),
        ("mutation", lambda x: F.dropout(x.add_(1)), lambda x: seeded(x.add_(2))),
        ("alias", lambda x: (F.dropout(x), x.t()), lambda x: (seeded(x), x.clone().t())),
    ],
)
def test_random_results_do_not_hide_the_others(
    kind: str, eager: Callable[..., Any], compiled: Callable[..., Any]
) -> None:
    found = judge(eager, compiled, [X])
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("program", "outputs", "inputs"),
    [
        (lambda x: (F.dropout(x).relu().view(-1)[:2], x.relu()), {0}, set()),
        (lambda x: (x.clone().mul_(torch.rand_like(x)) + 1, x, [x.sin(), None]), {0}, set()),
        (lambda x: (x * 2, x.view(-1)[3:].bernoulli_(0.5).sum(), x + 1), {1, 2}, {0}),
        (lambda x: (torch.rand_like(x).max(0), x.max(0)), {0, 1}, set()),
        (lambda x: (x.sum(), x + 3), set(), set()),
    ],
)
def test_random_numbers_are_followed_through_views_and_writes(
    program: Callable[..., Any], outputs: set[int], inputs: set[int]
) -> None:
    found = drawn(fx.symbolic_trace(program), [X.clone()])
    assert (set(found.outputs), set(found.inputs), found.gradients) == (outputs, inputs, False)


def test_a_random_output_makes_every_gradient_random() -> None:
    with pytest.raises(CannotCompare, match="random"):
        judge(
            lambda x: (F.dropout(x, 0.5), x * 2),
            lambda x: (seeded(x), x * 2),
            [X.clone().requires_grad_()],
            backward=True,
        )
    found = judge(
        lambda x: (torch.rand_like(x), x * 2),
        lambda x: (seeded(x.detach()), (x * 2).detach() + (x - x.detach())),
        [X.clone().requires_grad_()],
        backward=True,
    )
    assert found is not None
    assert found.where == "gradient of input 0"


def test_a_graph_without_a_float64_run_is_judged_with_a_wide_margin() -> None:
    def only_float32(x: torch.Tensor) -> torch.Tensor:
        return torch._fake_quantize_learnable_per_tensor_affine(x, torch.ones(1), torch.zeros(1), -8, 8)

    assert judge(only_float32, only_float32, [X]) is None
    found = judge(only_float32, lambda x: only_float32(x) + 1, [X])
    assert found is not None
    assert found.kind == "value"


def test_copies_keep_aliases_strides_and_bits() -> None:
    base = torch.randn(100)
    transposed, overlapping = base[10:50].view(5, 8).t(), base[30:60]
    conjugate = torch.randn(4, dtype=torch.complex64).conj()
    leaf = torch.nn.Parameter(torch.randn(3))
    inputs = [transposed, overlapping, conjugate, conjugate.imag, leaf, leaf * 2, 3, transposed]
    copies = copy_inputs(inputs)
    assert copies[0] is copies[7]
    for old, new in zip(inputs, copies, strict=True):
        if isinstance(old, torch.Tensor):
            assert torch.equal(old, new)
            assert old is not new
            for read in ("stride", "is_conj", "is_neg"):
                assert getattr(old, read)() == getattr(new, read)()
            assert (old.requires_grad, old.is_leaf, type(old)) == (new.requires_grad, new.is_leaf, type(new))
    copies[0].fill_(7.0)
    assert int((copies[1] == 7.0).sum()) == 20
    assert not (base == 7.0).any()
    copies[5].mul_(2)


def test_a_tensor_without_memory_is_passed_on_as_it_is() -> None:
    zero = torch._efficientzerotensor((3, 4))
    (same,) = copy_inputs([zero])
    assert same._is_zerotensor()
    (wide,) = copy_inputs([zero], wide=True)
    assert wide.dtype is torch.float64
    assert not wide.any()


def test_running_leaves_the_generator_as_it_was() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = execute(torch.rand, [3]), execute(torch.rand, [3])
    assert torch.equal(first.outputs[0], second.outputs[0])
    assert first.random
    assert torch.equal(torch.get_rng_state(), before)


# --- real failures and real models -------------------------------------------------------------------------------


@pytest.fixture
def failures_importable() -> Iterator[None]:
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.process
@pytest.mark.usefixtures("failures_importable")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("001_arange_mul_i32", "value"),
        ("005_put_stride", "stride"),
        ("016_any_uint8_dtype", "dtype"),
        ("017_acosh_overflow", "inf"),
        ("021_interp_trilinear_scale", "value"),
        ("028_ort_sdpa_masked_row", "value"),
        ("031_ort_sum_half_dtype", "dtype"),
        ("103_llama_std_overflow", "inf"),
        pytest.param("064_big_resnet_acosh", "nan", marks=pytest.mark.slow),
    ],
)
def test_real_divergences_are_captured(db: str, name: str, kind: str) -> None:
    skip_if_gone(name)
    case = load(name)
    if case.BACKEND == "ort_export":
        pytest.importorskip("onnxruntime")
        importlib.import_module("ort_export")
    torch.manual_seed(0)
    function: Callable[..., Any]
    function, inputs = case.make()
    with fxminify.capturing(db, check=True), torch.no_grad():
        torch.compile(function, backend=case.BACKEND)(*inputs)
    with Index.open(db) as index:
        [row] = index.captures.find()
        assert row.failure is not None
        assert (row.kind, row.failure.detail["class"]) == ("divergence", kind)
        assert index.captures.case(row.id).compare
        assert signature(row.failure).message == ("value" if kind in ("nan", "inf") else kind)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.second(F.relu(self.norm(self.first(x)))))
        return F.log_softmax(self.head(x.mean((2, 3))), -1)


def gpt2() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16, use_cache=False)
    lm = transformers.GPT2LMHeadModel(config).eval()
    return (lambda ids: lm(ids).logits), (torch.randint(0, 32, (2, 8)),)


def bert() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 32}
    encoder = transformers.BertModel(
        transformers.BertConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    ).eval()
    return (lambda ids: encoder(ids).last_hidden_state), (torch.randint(0, 32, (2, 8)),)


def autocast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ w).softmax(-1)


MODELS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "convolutions": lambda: (ConvNet(), (torch.randn(2, 3, 8, 8),)),
    "layer_norm": lambda: (lambda x: F.layer_norm(x, (32,)).exp().sum(-1), (torch.randn(16, 32, requires_grad=True),)),
    "float16": lambda: (lambda a, b: (a @ b).softmax(-1), (torch.randn(32, 64).half(), torch.randn(64, 32).half())),
    "bfloat16": lambda: (
        lambda a, b: (a @ b).softmax(-1),
        (torch.randn(32, 64).bfloat16().requires_grad_(), torch.randn(64, 32).bfloat16()),
    ),
    "autocast": lambda: (autocast, (torch.randn(8, 8, requires_grad=True), torch.randn(8, 8))),
    "in_place": lambda: (lambda x, y: (x.add_(y).t(), x[0], y.relu_()), (torch.randn(3, 4), torch.randn(4))),
    "ranks": lambda: (lambda x, w: ((x @ w).argmax(-1), (x @ w).topk(3)), (torch.randn(64, 32), torch.randn(32, 50))),
    "long_sums": lambda: (lambda x: (x.sum(), x.var(), (x * x).mean()), (torch.rand(300_000),)),
    "views": lambda: (lambda x: (x.view(-1), x + 1, (x + 1).t(), x.contiguous()), (torch.randn(4, 4),)),
    "gpt2": gpt2,
    "bert": bert,
}
#: Models that Inductor compiles for long.
LARGE = ("convolutions", "gpt2", "bert")


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "aot_eager") for name in MODELS),
        *((name, "inductor") for name in MODELS if name not in LARGE),
        *(pytest.param(name, "inductor", marks=pytest.mark.slow) for name in LARGE),
    ],
)
def test_ordinary_models_do_not_diverge(db: str, name: str, backend: str, own_log: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    function, inputs = MODELS[name]()
    with fxminify.capturing(db, check=True):
        torch.compile(function, backend=backend)(*inputs)
    assert not Path(db).exists()
    assert [r.getMessage() for r in own_log.records if r.name == "fxminify"] == []


@pytest.mark.process
def test_gradients_are_compared_outside_of_autocast(db: str) -> None:
    """pytorch#179804: what autocast leaves alone is in a short dtype in the backward pass of AOTAutograd."""

    def island(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.float() @ w

    torch.manual_seed(0)
    x = torch.randn(4, 64, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(64, 64, requires_grad=True)
    with fxminify.capturing(db, check=True):
        compiled = torch.compile(island, backend="aot_eager")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            compiled(x, w)
    with Index.open(db) as index:
        (row,) = index.captures.find()
    assert (row.kind, row.phase) == ("divergence", "backward")
    assert row.failure is not None
    assert row.failure.detail["where"] == "gradient of input 0"


@pytest.mark.process
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_rounding_in_the_gradient_of_an_embedding_is_no_divergence(db: str, backend: str) -> None:
    """Nearly all of it is zero, which says nothing about the error of the rest."""
    torch.manual_seed(0)
    words, places = torch.nn.Embedding(100, 64), torch.nn.Embedding(512, 64)
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.Tanh(),
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64),
    )  # fmt: skip

    def model(t: torch.Tensor) -> torch.Tensor:
        x = words(t) + places(torch.arange(16))
        return torch.nn.functional.softmax(layers(x) @ words.weight.t(), -1)

    with fxminify.capturing(db, check=True), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.compile(model, backend=backend)(torch.randint(0, 100, (2, 16)))
    assert not Path(db).exists()


def test_zeros_do_not_say_how_large_the_error_of_the_rest_may_be() -> None:
    torch.manual_seed(0)
    exact = torch.zeros(1000, dtype=torch.float64)
    exact[:50] = torch.randn(50, dtype=torch.float64)
    eager, actual = ((exact * (1 + 1e-3 * torch.randn(1000))).float() for _ in range(2))
    eager[7] = float(exact[7])
    assert not Judgement(eager, actual, exact).differs()
    actual[7] *= 1.2
    assert Judgement(eager, actual, exact).differs()


def test_a_swapped_function_is_captured_although_the_backend_returns_a_plain_function(db: str) -> None:
    """Row 3: PyTorch's accuracy check counts what it cannot check as a pass."""

    def swapping(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return lambda x: (torch.cos(x),)

    with fxminify.capturing(db, check=True):
        torch.compile(lambda x: torch.sin(x), backend=swapping)(torch.ones(3))
    with Index.open(db) as index:
        assert [(row.kind, row.phase) for row in index.captures.find()] == [("divergence", "forward")]


def test_a_failure_of_the_first_call_alone_is_captured_though_the_check_made_that_call(db: str) -> None:
    def once(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        calls = []

        def run(*args: Any) -> Any:
            calls.append(args)
            if len(calls) == 1:
                raise RuntimeError("not warm")
            return gm(*args)

        return run

    with fxminify.capturing(db, check=True):
        assert torch.equal(torch.compile(torch.sin, backend=once)(torch.zeros(3)), torch.zeros(3))
    with Index.open(db) as index:
        (row,) = index.captures.find()
        assert (row.kind, row.phase, row.failure and row.failure.message) == ("runtime_error", "forward", "not warm")


def test_what_could_not_be_checked_is_logged(db: str, own_log: pytest.LogCaptureFixture) -> None:
    with fxminify.capturing(db, check=True):
        torch.compile(lambda x: F.dropout(x, 0.5), backend="inductor")(torch.ones(64))
    [message] = [r.getMessage() for r in own_log.records if r.name == "fxminify"]
    assert message.startswith(
        "fxminify could not check a compiled graph against eager: output 0: differs, but it is random"
    )


def remainder(x: torch.Tensor) -> torch.Tensor:
    return x % 3.0


def test_a_difference_in_an_ill_conditioned_result_is_no_divergence_and_is_told(
    db: str, own_log: pytest.LogCaptureFixture
) -> None:
    with fxminify.capturing(db, check=True):  # Inductor gives 0
        torch.compile(remainder, backend="inductor")(torch.arange(10, 14) * 1e9)
    (message,) = [r.getMessage() for r in own_log.records if r.name == "fxminify"]
    assert re.search(
        r"output 0 \(mod, test_compare\.py:\d+ remainder\): eager and float64 give [12], compiled 0, but inputs that",
        message,
    )
    assert message.endswith(" (captured with --check strict)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.0, 0.25, 3.0, 100.0])
def test_an_error_that_inputs_in_the_last_place_do_not_make_is_a_divergence(dtype: torch.dtype, value: float) -> None:
    """Rounding is no excuse in a short dtype either: eager is right, and the last element lacks 1."""
    graph = fx.symbolic_trace(lambda scale, y: (y * scale + scale,))
    inputs = [torch.ones(1, dtype=dtype), torch.full((5,), value, dtype=dtype)]
    expected = execute(graph, inputs)
    actual = execute(lambda scale, y: (y * scale + torch.tensor([1, 1, 1, 1, 0], dtype=dtype),), inputs)
    found = compare(expected, actual, Reference(SharedStorages(graph, inputs)))
    if value == 100 and dtype is not torch.float32:  # less than ten times what assert_close allows
        assert found is None
        return
    assert found is not None
    assert (found.kind, found.detail["elements"], found.detail["error"]) == ("value", 1, "1.0")


def test_a_strict_comparison_captures_it_under_a_class_of_its_own(db: str) -> None:
    x = torch.arange(10, 14) * 1e9
    with fxminify.capturing(db, check="strict"):
        torch.compile(remainder, backend="inductor")(x)
    with Index.open(db) as index:
        (row,) = index.captures.find()
        assert index.captures.case(row.id).strict
    assert row.failure is not None
    assert {k: row.failure.detail[k] for k in ("class", "of")} == {"class": "ill-conditioned", "of": 4}
    assert (row.state, row.failure.refused) == ("pending", "")
    assert "ill-conditioned: output 0: eager and float64 give 2, compiled 0" in row.failure.headline()


@pytest.mark.parametrize(("off", "times"), [(1.00005, 4.4), (1.00008, 7.1)])
def test_a_difference_of_less_than_ten_tolerances_is_let_pass_and_measured(off: float, times: float) -> None:
    """The allowed error of 1 is 1.13e-05, and rounding of sin and inputs is far below that."""
    graph, inputs = fx.symbolic_trace(lambda x: (torch.sin(x),)), [torch.full((20,), torch.pi / 2)]
    expected, actual = execute(graph, inputs), execute(lambda x: (torch.sin(x) * off,), inputs)
    accepted = Accepted()
    reference = Reference(SharedStorages(graph, inputs))
    assert Differences(expected, actual).judged(reference, accepted=accepted) is None
    assert (accepted.ill, list(accepted.times)) == ({}, ["output 0"])
    assert accepted.times["output 0"] == pytest.approx(times, abs=0.05)
    found = compare(expected, actual, Reference(SharedStorages(graph, inputs)), strict=True)
    assert found is not None
    assert (found.kind, found.detail["elements"], found.detail["of"]) == ("value", 20, 20)
    assert Differences(expected, actual, {"float32": 1e-3}).judged(Reference(SharedStorages(graph, inputs))) is None


def test_rounding_is_not_let_pass_and_no_failure_of_a_strict_comparison() -> None:
    """The sum of large numbers of both signs is off by many tolerances in eager as well."""
    torch.manual_seed(0)
    graph, inputs = fx.symbolic_trace(lambda x: (x.sum(0),)), [torch.randn(20_000, 4) * 1e3]
    expected, actual = execute(graph, inputs), execute(lambda x: (x.flip(0).cumsum(0)[-1],), inputs)
    accepted = Accepted()
    for strict in (False, True):
        reference = Reference(SharedStorages(graph, inputs))
        assert Differences(expected, actual).judged(reference, accepted=accepted, strict=strict) is None
    assert accepted.times == {}


def test_a_wrong_value_is_one_in_a_strict_comparison_too() -> None:
    found = compare(execute(lambda x: (x,), [X]), execute(lambda x: (x + 1,), [X]), strict=True)
    assert found is not None
    assert found.kind == "value"


def test_the_gradient_of_an_input_changed_in_place_goes_through_the_graph() -> None:
    inputs = [(X.clone().requires_grad_() * 1)]
    run = execute(lambda x: (x.mul_(3),), inputs, backward=True)
    assert run.gradients is not None
    (cotangent,) = cotangents([X])
    torch.testing.assert_close(run.gradients[0], cotangent * 3, rtol=0, atol=0)
