"""Small programs whose graphs, between them, hold about everything that Dynamo and AOTAutograd put into one.

A source is a function that takes ``compiled``, a stand-in for `torch.compile`, and runs something. `capture` runs
one and hands every graph with the inputs of its first call to a function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Compiled = Callable[..., Callable[..., Any]]
Source = Callable[[Compiled], Any]
Seen = Callable[[torch.fx.GraphModule, list[Any]], None]
SOURCES: dict[str, Source] = {}
SLOW: set[str] = set()


def source(function: Source) -> Source:
    SOURCES[function.__name__] = function
    return function


def simple(name: str, run: Callable[..., Any], *make: Callable[[], Any], dynamic: bool | None = None) -> None:
    """A source that calls one function with fresh arguments."""
    SOURCES[name] = lambda compiled: compiled(run, dynamic=dynamic)(*(m() for m in make))


def capture(name: str, level: str, seen: Seen) -> None:
    """Run a source and show its graphs: ``dynamo`` level, ``aot``, or ``direct`` for those made by other tracers."""

    def record(gm: torch.fx.GraphModule, boxed: bool = False) -> Callable[..., Any]:
        shown: list[bool] = []

        def call(arguments: Sequence[Any]) -> Any:
            if not shown:
                shown.append(True)
                seen(gm, list(arguments))
            return gm(*arguments)

        if not boxed:
            return lambda *arguments: call(arguments)

        def boxed_call(arguments: list[Any]) -> Any:
            # AOTAutograd runs its graphs below autograd, which no query of the grad mode shows.
            mine = list(arguments)
            arguments.clear()
            with torch.no_grad():
                return call(mine)

        boxed_call._boxed_call = True  # type: ignore[attr-defined]
        return boxed_call

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if level == "dynamo":
            return record(gm)
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=lambda g, _: record(g, boxed=True))(gm, inputs)

    torch._dynamo.reset()
    torch.manual_seed(0)
    if level == "direct":
        TRACED[name](seen)
    else:
        SOURCES[name](lambda f, **options: torch.compile(f, backend=backend, **options))


def normal(*shape: int, **options: Any) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(shape, **options)


def learned(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(shape, requires_grad=True)


def train(compiled: Compiled, module: Callable[..., Any], *inputs: Any) -> None:
    out = compiled(module)(*inputs)
    (out[0] if isinstance(out, tuple) else out).sum().backward()


# Networks.


@source
def convolutions(compiled: Compiled) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Dropout(0.3),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip
    train(compiled, net, torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))


@source
def volumes(compiled: Compiled) -> None:
    net = nn.Sequential(
        nn.Conv3d(2, 4, 3), nn.InstanceNorm3d(4, affine=True), nn.AvgPool3d(2), nn.Upsample(scale_factor=2)
    )
    train(compiled, net, torch.randn(1, 2, 6, 6, 6))


@source
def recurrent(compiled: Compiled) -> None:
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        gru, cell = nn.GRU(4, 8, 2, bidirectional=True), nn.LSTMCell(4, 8)
        compiled(lambda x: (gru(x)[0], cell(x[0])))(torch.randn(5, 2, 4))


@source
def attention(compiled: Compiled) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    train(compiled, layer, torch.randn(2, 5, 16))


@source
def attention_kernels(compiled: Compiled) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel([SDPBackend.MATH]):
            a = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
            return a + F.scaled_dot_product_attention(q, q, q, attn_mask=mask, scale=0.3)

    train(compiled, run, torch.randn(1, 2, 5, 8, requires_grad=True), torch.ones(5, 5, dtype=torch.bool))


@source
def flex_attention(compiled: Compiled) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    bias = torch.randn(2, 16, 16)

    def run(q: torch.Tensor) -> torch.Tensor:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)
        out: torch.Tensor = flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[h, i, j], block_mask=mask)
        return out

    with torch.no_grad():
        compiled(run)(torch.randn(1, 2, 16, 16))


@source
def embeddings(compiled: Compiled) -> None:
    bag, table = nn.EmbeddingBag(10, 4, mode="mean"), nn.Embedding(10, 4, padding_idx=0)
    train(compiled, lambda i, o: bag(i, o) + table(i[:2]), torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2]))


@source
def buffers(compiled: Compiled) -> None:
    net, average = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.zeros(4)

    def run(x: torch.Tensor) -> Any:
        y = net(x)
        average.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y

    train(compiled, run, torch.randn(3, 4))


@source
def tied_weights(compiled: Compiled) -> None:
    net: Any = nn.Linear(4, 4)
    net.tied = net.weight
    net.flipped = nn.Parameter(net.weight.detach().t())
    net.register_buffer("strided", torch.randn(4).as_strided((2, 2), (1, 2)))
    train(
        compiled,
        lambda x: F.linear(x, net.weight) + net.tied.mean() + net.flipped.sum() + net.strided.sum(),
        torch.randn(2, 4),
    )


@source
def parametrized(compiled: Compiled) -> None:
    from torch.nn.utils.parametrizations import orthogonal, weight_norm

    train(compiled, nn.Sequential(weight_norm(nn.Linear(4, 4)), orthogonal(nn.Linear(4, 4))), torch.randn(2, 4))


simple(
    "losses",
    lambda x, t: (
        F.cross_entropy(x, t, label_smoothing=0.1) + F.nll_loss(x, t) + F.kl_div(x, x.exp()) + F.huber_loss(x, -x)
    ),
    learned(5, 5),
    lambda: torch.randint(0, 5, (5,)),
)


# Higher-order operators.


@source
def branches(compiled: Compiled) -> None:
    net = nn.Linear(4, 4)

    def run(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (net(x).sin(), x + 1), lambda x: (net(x).cos(), x - 1), (x,))

    train(compiled, run, torch.randn(3, 4))


@source
def nested_branches(compiled: Compiled) -> None:
    def inner(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(y.sum() > 2, lambda x, y: x * 2, lambda x, y: x * y, (x, y))

    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(x.shape[0] > 4, inner, lambda x, y: x - y, (x, y))

    compiled(run, dynamic=True)(torch.randn(6, 4), torch.randn(6, 4))


@source
def loops(compiled: Compiled) -> None:
    from torch._higher_order_ops.while_loop import while_loop

    weight = torch.randn(4, 4)
    with torch.no_grad():
        compiled(lambda i, x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(x @ weight)), (i, x)))(
            torch.tensor(0), torch.randn(2, 4)
        )


@source
def scans(compiled: Compiled) -> None:
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.map import map as map_over
    from torch._higher_order_ops.scan import scan

    compiled(lambda c, xs: scan(lambda c, x: (c + x, (c * x).clone()), c, xs, dim=0))(torch.zeros(4), torch.randn(5, 4))
    compiled(lambda xs: associative_scan(lambda a, b: a + b, xs, dim=0, combine_mode="generic"))(torch.randn(8, 4))
    compiled(lambda xs, y: map_over(lambda x, y: x.sin() + y, xs, y))(torch.randn(5, 4), torch.randn(4))


@source
def checkpointing(compiled: Compiled) -> None:
    from torch.utils.checkpoint import checkpoint

    net = nn.Linear(4, 4)
    train(
        compiled,
        lambda x: checkpoint(lambda x: F.dropout(net(x).relu(), 0.2), x, use_reentrant=False),
        torch.randn(3, 4),
    )


@source
def selective_checkpointing(compiled: Compiled) -> None:
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op == torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    run = lambda x: checkpoint(lambda x: torch.mm(x.relu(), x.t()), x, use_reentrant=False, context_fn=contexts)  # noqa: E731
    train(compiled, run, torch.randn(3, 4, requires_grad=True))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x.clone() * k

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * ctx.k * ctx.saved_tensors[0].sign(), None


simple("autograd_function", lambda x: Scaled.apply(x.sin(), 2.5).sum(), learned(3))  # type: ignore[no-untyped-call]


@source
def foreach_and_hints(compiled: Compiled) -> None:
    from torch._higher_order_ops.foreach_map import foreach_map
    from torch._higher_order_ops.hints_wrap import hints_wrapper

    compiled(lambda xs: foreach_map(torch.add, xs, xs))([torch.randn(3), torch.randn(2)])
    compiled(lambda x: hints_wrapper(lambda x: x.sin(), (x,), {}, hints={"quant": 8, "name": "b"}))(torch.randn(3))


@source
def accumulation_type(compiled: Compiled) -> None:
    from torch._higher_order_ops.out_dtype import out_dtype

    x = torch.randint(-5, 5, (3, 3), dtype=torch.int8)
    compiled(lambda a: out_dtype(torch.ops.aten.mm.default, torch.int32, a, a))(x)


# Regions.


@source
def mixed_precision(compiled: Compiled) -> None:
    net = nn.Linear(4, 4)

    def run(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = net(x)
        with torch.autocast("cpu", enabled=False):
            return y.float() + net(x)

    train(compiled, run, torch.randn(2, 4))


@source
def gradient_regions(compiled: Compiled) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            a = x * 2
        torch.set_grad_enabled(False)
        b = y.sin()
        torch.set_grad_enabled(True)
        with torch.autograd.graph.disable_saved_tensors_hooks("no 'hooks'\n"):
            return a + b + y * 3

    train(compiled, run, torch.randn(3), torch.randn(3, requires_grad=True))


@source
def inference(compiled: Compiled) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            a = x * 2
        return a.sum() + x

    compiled(run)(torch.randn(3))
    with torch.inference_mode():
        compiled(lambda x: x.cos() * 2)(torch.randn(3))


def _cubes(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum()


simple("vmap", lambda x, y: torch.vmap(lambda a, b: (a @ b).sin(), in_dims=(0, None))(x, y), normal(3, 4), normal(4))
simple("gradient", lambda x: torch.func.grad(lambda a: (a.sin() ** 2).sum())(x), normal(4))
simple("jacobians", lambda x: (torch.func.jacrev(torch.sin)(x), torch.func.jacfwd(torch.cos)(x)), normal(3))
simple("tangents", lambda x, v: torch.func.jvp(torch.func.grad(_cubes), (x,), (v,)), normal(4), normal(4))
simple("gradient_inside", lambda x: torch.autograd.grad((x.sin() ** 2).sum(), x)[0] * 2, learned(3))


# Shapes.

simple(
    "dynamic_shapes",
    lambda x, y: (x.view(x.shape[0] * 2, -1).sum(0) + y[: x.shape[0] // 2].sum(), x.size(), x.shape[0] * 3),
    normal(6, 8),
    normal(9),
    dynamic=True,
)
simple(
    "dynamic_numbers",
    lambda x, i, s: ((x * s + i).clamp(min=s / 2, max=math.sqrt(i) + 1), i + 1, x.expand(i, *x.shape)),
    normal(3),
    lambda: 5,
    lambda: 1.5,
    dynamic=True,
)


@source
def data_dependent_shapes(compiled: Compiled) -> None:
    def run(x: torch.Tensor, k: torch.Tensor) -> Any:
        n: Any = k.item()
        torch._check(n >= 0)
        torch._check(n < 10)
        return torch.zeros(n) + 1, x.nonzero().sum(), x[x > 0].sum()

    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled(run)(torch.randn(5), torch.tensor(3))


@source
def dynamic_training(compiled: Compiled) -> None:
    net = nn.Linear(8, 8)
    step = compiled(lambda x: net(x).relu().reshape(-1, x.shape[0]), dynamic=True)
    step(torch.randn(5, 8)).sum().backward()


# Tensors, aliasing, mutation, random numbers.

simple(
    "out_argument", lambda x, o: (torch.add(x, 1, out=o), torch.mul(x, 2, out=torch.empty(3)) + o), normal(3), normal(3)
)
simple("random_numbers", lambda x: F.dropout(x) + torch.rand_like(x) + torch.randn(3) + torch.randperm(3), normal(3))
simple("random_in_place", lambda x: torch.empty(3).uniform_(0, 1).normal_() + torch.bernoulli(x.sigmoid()), normal(3))


@source
def views_in_place(compiled: Compiled) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        v = x[1:]
        v.mul_(2)
        x.view(-1)[0] = 5
        y.copy_(x.sum(0))
        x.transpose_(0, 1)
        return v, x.view(-1).narrow(0, 1, 2) if x.is_contiguous() else x, x.diagonal().as_strided((2,), (1,))

    compiled(run)(torch.randn(3, 3), torch.randn(3))


@source
def aliased_inputs(compiled: Compiled) -> None:
    base = torch.randn(20)
    inputs = base[2:14].view(3, 4), base[6:10], torch.randn(4).expand(3, 4), torch.randn(6, 4)[::2].t(), base[6:10]
    compiled(lambda x, y, z, w, v: (x + z, y * 2, w.sum(0), x.add_(1), v))(*inputs)


@source
def aliased_results(compiled: Compiled) -> None:
    base = torch.randn(6, requires_grad=True) * 1
    compiled(lambda x, y: (x.mul_(2), y.sum()))(base[:4], base[2:])[1].backward()


simple(
    "overlap",
    lambda x, e, s: (x.sum() + e.sum(), s * 2),
    lambda: torch.randn(9).as_strided((3, 3), (2, 1)),
    normal(0, 3),
    normal(),
)
simple("nothing_and_numbers", lambda x, n, b, s: (x * 2, n, b, s), learned(), lambda: None, lambda: True, lambda: "abc")
simple(
    "lazy_conjugate",
    lambda x, y: x * 2 + y,
    lambda: torch.randn(4, dtype=torch.complex64).conj(),
    lambda: torch.randn(4, dtype=torch.complex64).conj().imag,
)
simple(
    "complex_numbers",
    lambda x: (torch.fft.fft(x) * (1 + 2j), torch.view_as_real(x), torch.polar(x.abs(), x.angle())),
    normal(4, 4, dtype=torch.complex64),
)
simple("float8", lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2)), normal(4))
simple(
    "unsigned",
    lambda a, b: (a.int() + 1, b.view(torch.int64), a.view(torch.int16)),
    lambda: torch.arange(4).to(torch.uint16),
    lambda: torch.arange(4).to(torch.uint64),
)
simple(
    "half",
    lambda x, y: (x @ x.t()).float() + y.double().sum(),
    normal(3, 4, dtype=torch.bfloat16),
    normal(3, dtype=torch.float16),
)
simple(
    "bits",
    lambda w: ((w.unsqueeze(-1) >> torch.tensor([0, 4], dtype=torch.uint8)) & 0xF).float(),
    lambda: torch.arange(6, dtype=torch.uint8),
)
simple(
    "infinities",
    lambda x: (
        torch.where(x > 0, float("inf"), float("nan")).nan_to_num(nan=-0.0, posinf=1e308) + torch.finfo(x.dtype).min
    ),
    normal(3),
)
simple("quantized", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), normal(4))
simple(
    "indexing",
    lambda x, i: (x[..., 1:3, None], x[i], x[x > 0], x[i, [0, 1]], x[:, ::2]),
    normal(4, 4),
    lambda: torch.tensor([0, 2]),
)
simple(
    "return_types",
    lambda x: (torch.max(x, dim=1), torch.topk(x, 2), torch.linalg.svd(x), torch.aminmax(x), torch.frexp(x)),
    normal(3, 3),
)
simple(
    "einsum",
    lambda x: (torch.einsum("bij,bkj->bik", x, x), x.permute(0, 2, 1).unflatten(2, (2, 2)), x.movedim(0, -1)),
    normal(2, 4, 3),
)
simple(
    "constants",
    lambda x: x + torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(7) + torch.arange(0, 3) + torch.full((3,), True),
    normal(3),
)
simple(
    "factories",
    lambda x: (
        torch.zeros(2, dtype=torch.int8, device="cpu"),
        torch.empty_strided((2, 2), (1, 2)).fill_(1),
        x.new_full((2,), 3),
        torch.eye(2),
    ),
    normal(3),
)
simple(
    "conversions",
    lambda x: x.to("cpu", torch.float64).contiguous(memory_format=torch.channels_last).type(torch.float16),
    normal(1, 2, 3, 3),
)
simple(
    "operators",
    lambda x: (2**x, x // 2, x % 2, -x, abs(x), x.eq(0) | x.gt(1), ~x.bool(), x.T, x.mT, x.data, x.stride()),
    normal(3, 3),
)
simple(
    "scatter",
    lambda x, b: (torch.bucketize(x, b), x.scatter_reduce(0, torch.tensor([0, 1, 2]), x, "amax"), torch.unique(x)),
    normal(3),
    lambda: torch.arange(4.0),
)
simple(
    "images",
    lambda x, g: (
        F.grid_sample(x, g),
        F.interpolate(x, size=(5, 5), mode="bicubic"),
        F.pad(x, (1, 1, 1, 1), "circular"),
        F.pixel_shuffle(x, 2),
    ),
    normal(1, 4, 4, 4),
    normal(1, 3, 3, 2),
)
simple("asserts", lambda x: (torch._assert_async((x < 100).all(), 'a "b"\'\n'), x * 2)[1], normal(3))
simple(
    "masked",
    lambda x, m: torch.masked._ops.softmax(x, 1, mask=m),
    normal(3, 3),
    lambda: torch.ones(3, 3, dtype=torch.bool),
)
simple(
    "overloads",
    lambda x: torch.ops.aten.add.Tensor(x, x, alpha=2) + torch.ops.aten.mul(x, 2) + torch._foreach_add([x], 1.0)[0],
    normal(3),
)
simple("chain", lambda x: functools.reduce(lambda y, i: (y + i).sin() * 0.5, range(150), x), normal(4))
simple("sparse_inside", lambda x: x.to_sparse().to_dense(), normal(3, 3))


@source
def distributions(compiled: Compiled) -> None:
    def run(m: torch.Tensor, s: torch.Tensor) -> Any:
        n = torch.distributions.Normal(m, s, validate_args=False)
        return n.log_prob(n.rsample((2,))), torch.distributions.Categorical(logits=m, validate_args=False).entropy()

    compiled(run)(torch.randn(3), torch.rand(3) + 1)


@source
def optimizer(compiled: Compiled) -> None:
    for make in (
        lambda p: torch.optim.AdamW(p, lr=1e-3),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    ):
        net = nn.Linear(4, 4)
        steps = make(net.parameters())
        net(torch.randn(2, 4)).sum().backward()
        compiled(lambda: steps.step())()  # noqa: B023  called at once


@source
def gradient_norm(compiled: Compiled) -> None:
    net = nn.Linear(4, 4)
    net(torch.randn(2, 4)).sum().backward()
    compiled(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0))()


# Models.

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = SIZES | {"vocab_size": 50}


def ids(length: int = 6) -> torch.Tensor:
    return torch.randint(1, 50, (2, length))


def model(
    config: str, cls: str, options: dict[str, Any], inputs: Callable[[], dict[str, Any]], learn: bool = False
) -> None:
    def run(compiled: Compiled) -> None:
        import transformers

        net = getattr(transformers, cls)(getattr(transformers, config)(**options)).train(learn)
        out = compiled(net)(**inputs())
        if learn:
            out.loss.backward()

    name = cls.lower()
    SOURCES[name] = run
    SLOW.add(name)


model(
    "LlamaConfig",
    "LlamaForCausalLM",
    WORDS | {"num_key_value_heads": 1},
    lambda: {"input_ids": ids(), "use_cache": True},
)
model(
    "BertConfig",
    "BertForSequenceClassification",
    WORDS,
    lambda: {"input_ids": ids(), "labels": torch.tensor([0, 1])},
    learn=True,
)
model(
    "GPT2Config",
    "GPT2LMHeadModel",
    {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16},
    lambda: (lambda x: {"input_ids": x, "labels": x})(ids()),
    learn=True,
)
model(
    "ViTConfig",
    "ViTForImageClassification",
    SIZES | {"image_size": 16, "patch_size": 8},
    lambda: {"pixel_values": torch.randn(1, 3, 16, 16)},
)
model(
    "T5Config",
    "T5ForConditionalGeneration",
    {
        "vocab_size": 50,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 1,
        "num_heads": 2,
        "decoder_start_token_id": 0,
    },
    lambda: {"input_ids": ids(), "labels": ids(4)},
    learn=True,
)
model(
    "MambaConfig",
    "MambaForCausalLM",
    {"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1},
    lambda: {"input_ids": ids(), "use_cache": False},
)


# Graphs of other tracers.


def _symbolic_trace(seen: Seen) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(16, 3))
    seen(torch.fx.symbolic_trace(net.eval()), [torch.randn(1, 3, 4, 4)])

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.attention = nn.LSTM(4, 4), nn.MultiheadAttention(4, 2)
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.PReLU())

        def forward(self, x: torch.Tensor) -> Any:
            y, state = self.rnn(x)
            return self.attention(y, y, y)[0] + self.inner(x) @ self.inner[0].weight, state

    seen(torch.fx.symbolic_trace(Mixed()), [torch.randn(3, 2, 4)])


def _make_fx(seen: Seen) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    constant = torch.randn(3)
    seen(make_fx(lambda x: (x + constant).sin() * torch.tensor(2.0))(torch.randn(3)), [torch.randn(3)])
    traced = make_fx(lambda x: x.view(-1)[: x.shape[0] // 2] + 1, tracing_mode="symbolic")(torch.randn(4))
    seen(traced, [torch.randn(4)])


def _export(seen: Seen) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            return self.linear(x) * self.scale + torch.tensor([1.0, 2.0, 3.0])

    exported = torch.export.export(Module(), (torch.randn(2, 3),))
    inputs = [*exported.parameters(), *exported.buffers(), *exported.constants.values(), torch.randn(2, 3)]
    seen(exported.graph_module, inputs)


TRACED: dict[str, Callable[[Seen], None]] = {"symbolic_trace": _symbolic_trace, "make_fx": _make_fx, "export": _export}
