"""What Dynamo captures from real functions and models prints as source that computes the same, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxminify.backends.running import ambient
from fxminify.repro_templates.source.function import print_graph
from fxminify.repro_templates.source.inputs import SIDE_FILE, print_inputs
from fxminify.store.document.case import Case
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode

Jit = Callable[..., Callable[..., Any]]
Program = Callable[[Jit], Any]


def cases(program: Program) -> list[tuple[Case, dict[str, bytes]]]:
    """One case for each graph that is run when ``program`` runs with a recording ``torch.compile``."""
    found: list[tuple[Case, dict[str, bytes]]] = []

    def record(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        seen = False

        def run(*args: Any) -> Any:
            nonlocal seen
            if not seen:
                seen = True
                encoded = encode(gm, args)
                context = ambient.snapshot()
                found.append(
                    (Case(encoded.graph, encoded.inputs, encoded.tensors, context=context), dict(encoded.blobs))
                )
            return gm(*args)

        return run

    torch._dynamo.reset()
    torch.manual_seed(0)
    program(lambda fn, **options: torch.compile(fn, backend=record, **options))
    return found


def printed(case: Case, blobs: dict[str, bytes], folder: Path) -> str:
    """A script that defines ``forward`` and ``inputs``."""
    source = print_graph(case)
    constants = {c.name: c.tensor for c in source.constants}
    inputs = print_inputs(case, blobs, source.parameters, constants=constants, embed=True)
    (folder / SIDE_FILE).write_bytes(inputs.data or b"")
    lines = ["import torch", *source.imports, *inputs.imports, source.text]
    lines += [s.layout() for s in (*inputs.statements, *inputs.constants)]
    return "\n".join([*lines, f"inputs = [{', '.join(inputs.arguments)}]"])


def flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list | tuple):
        for value in values:
            yield from flat(value)
    else:
        yield values


def assert_equal(made: Any, wanted: Any) -> None:
    made, wanted = list(flat(made)), list(flat(wanted))
    assert len(made) == len(wanted)
    for new, old in zip(made, wanted, strict=True):
        if isinstance(old, torch.Tensor):
            assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
            assert new.requires_grad == old.requires_grad
            assert torch.equal(new.detach().nan_to_num(nan=7.5), old.detach().nan_to_num(nan=7.5))
        else:
            assert new == old


def forward_mode(jit: Jit) -> None:
    jit(lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones(3),)))(torch.randn(3))


#: Programs whose text Dynamo does not trace, because it knows the functions in their graphs only as it makes them.
NOT_TRACED_AGAIN = [forward_mode] if torch.__version__ < "2.13" else []


@pytest.fixture
def check(tmp_path: Path) -> Callable[[Program], None]:
    """Compares every graph of a program with its text, run in eager and traced by Dynamo again."""

    def check(program: Program) -> None:
        found = cases(program)
        assert found
        for case, blobs in found:
            text = printed(case, blobs, tmp_path)
            for traced in (False,) if program in NOT_TRACED_AGAIN else (False, True):
                scope: dict[str, Any] = {"__file__": str(tmp_path / "repro.py")}
                exec(compile(text, "printed", "exec"), scope)  # noqa: S102  the text under test
                function = scope["forward"]
                if traced:
                    torch._dynamo.reset()
                    function = torch.compile(function, backend="eager")
                gm, inputs = build(case, blobs)
                with ambient.applied({k: v for k, v in case.context.items() if k != "rng"}):
                    torch.manual_seed(1)
                    wanted = gm(*inputs)
                    torch.manual_seed(1)
                    made = function(*scope["inputs"])
                assert_equal(made, wanted)
                assert_equal(scope["inputs"], inputs)

    return check


def in_place(jit: Jit) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x[0] = 5
        x[:, 1:] *= 2
        x += y
        y.copy_(x.sum(0))
        return x.view(-1).narrow(0, 1, 2), F.relu(y, inplace=True)

    jit(f)(torch.randn(3, 3), torch.randn(3))


def indexing(jit: Jit) -> None:
    def f(x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> Any:
        y = x.clone()
        y[i] = 0
        y[m] = 1.0
        y[0, ::2] += 1
        return x[..., -1], x[:, None, 1:], x[i, [0, 1]], y, x[None, ..., 1:3, None]

    jit(f)(torch.randn(4, 4), torch.tensor([0, 2]), torch.randn(4, 4) > 0)


def autocast(jit: Jit) -> None:
    linear = nn.Linear(4, 4)

    def f(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x)
            with torch.autocast("cpu", enabled=False):
                z = y.float() @ x
        return z, linear(x)

    jit(f)(torch.randn(4, 4))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        jit(lambda x: linear(x).sin())(torch.randn(4, 4))


def grad_modes(jit: Jit) -> None:
    def f(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * 2
        with torch.enable_grad():
            return y, x * 3

    jit(f)(torch.randn(3, requires_grad=True))


def transforms(jit: Jit) -> None:
    from torch.func import grad, vmap

    jit(lambda x, y: vmap(lambda a, b: (a * b).sum(), in_dims=(0, 1))(x, y))(torch.randn(3, 4), torch.randn(4, 3))
    jit(lambda x: grad(lambda a: (a.sin() * a).sum())(x))(torch.randn(3))
    jit(lambda x: vmap(grad(lambda a: (a**3).sum()))(x))(torch.randn(2, 3))


def control_flow(jit: Jit) -> None:
    from torch._higher_order_ops.map import map as map_over
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    weight = torch.randn(4, 4)
    with torch.no_grad():
        jit(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: (x @ weight).cos(), (x,)))(torch.randn(3, 4))
        jit(lambda i, x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(x @ weight)), (i, x)))(
            torch.tensor(0), torch.randn(2, 4)
        )
        jit(lambda c, xs: scan(lambda c, x: (c + x, (c * x).clone()), c, xs, dim=0))(torch.zeros(4), torch.randn(5, 4))
        jit(lambda xs, y: map_over(lambda x, y: x.sin() + y, xs, y))(torch.randn(5, 4), torch.randn(4))


def checkpointing(jit: Jit) -> None:
    from torch.utils.checkpoint import checkpoint

    linear = nn.Linear(4, 4)
    jit(lambda x: checkpoint(lambda x: linear(x).relu(), x, use_reentrant=False))(torch.randn(3, 4, requires_grad=True))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.clone() * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * ctx.factor * x.sign(), None


def autograd_functions(jit: Jit) -> None:
    jit(lambda x: Scaled.apply(x.sin(), 2.5).sum())(torch.randn(3, requires_grad=True))  # type: ignore[no-untyped-call]


def dynamic_shapes(jit: Jit) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = x.shape[0]
        return x.view(n // 2, 2, -1).sum(1), torch.arange(n) * y.shape[1], x.new_zeros(n + 1, 3)

    jit(f, dynamic=True)(torch.randn(6, 4), torch.randn(2, 5))


def values(jit: Jit) -> None:
    constant = torch.tensor([1.0, 2.0, 3.0])

    def f(x: torch.Tensor) -> Any:
        y = x.masked_fill(x > 0, float("-inf")).to(torch.float64).to("cpu", torch.float32, non_blocking=True)
        z = torch.full((3,), float("nan"), dtype=torch.float16, device="cpu") + torch.finfo(torch.float16).max
        return y, z, x + constant, torch.max(x, dim=0), x.unflatten(0, (1, 3)), torch.empty(0, 2), None, 3, 2**x, -x % 2

    jit(f)(torch.randn(3))


def random_numbers(jit: Jit) -> None:
    jit(lambda x: F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(3) + torch.bernoulli(x.sigmoid()))(
        torch.randn(3)
    )


def memory(jit: Jit) -> None:
    base = torch.randn(20)
    views = base[2:14].view(3, 4), base[6:10], torch.randn(4).expand(3, 4), torch.randn(6, 4)[::2].t()
    jit(lambda x, y, z, w: (x + z, y * 2, w.sum(0), x.add_(1)))(*views)
    jit(lambda c, n: (c * 2, n + 1))(torch.randn(2, dtype=torch.complex64).conj(), torch.randn(2))


def optimizer(jit: Jit) -> None:
    linear = nn.Linear(4, 4)
    adam = torch.optim.Adam(linear.parameters(), lr=1e-3)
    linear(torch.randn(2, 4)).sum().backward()
    jit(lambda: adam.step())()


def convolutions(jit: Jit) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                          nn.Conv2d(8, 8, 3, groups=4, padding="same", padding_mode="reflect"), nn.GroupNorm(2, 8),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))  # fmt: skip
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    F.cross_entropy(jit(model)(x), torch.tensor([1, 2])).backward()


def attention(jit: Jit) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    jit(layer)(torch.randn(2, 5, 16)).sum().backward()


PROGRAMS = [in_place, indexing, autocast, grad_modes, transforms, forward_mode, control_flow, checkpointing,
            autograd_functions, dynamic_shapes, values, random_numbers, memory, optimizer, convolutions,
            attention]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_text_and_graph_compute_the_same(program: Program, check: Callable[[Program], None]) -> None:
    check(program)


def _model(name: str) -> tuple[nn.Module, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    ids = torch.randint(1, 99, (2, 8))
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(vocab_size=99, **sizes)).eval(), {"input_ids": ids}
    if name == "llama":
        config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **sizes)
        return transformers.LlamaForCausalLM(config).eval(), {"input_ids": ids, "use_cache": False}
    config = transformers.ViTConfig(image_size=32, patch_size=8, **sizes)
    return transformers.ViTModel(config).eval(), {"pixel_values": torch.randn(2, 3, 32, 32)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "vit"])
def test_text_and_graph_of_a_transformer_compute_the_same(name: str, check: Callable[[Program], None]) -> None:
    model, inputs = _model(name)
    check(lambda jit: jit(model)(**inputs))
