"""Whole models, small and with random weights: inference and training give eager's results, relative to 1e-4."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxminify.backends.shipped.onnxrt import Storage, compile_fx

Model = tuple[nn.Module, dict[str, torch.Tensor]]
SIZE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
}


class Layer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], 1)


class DenseNet(nn.Module):
    """Huang et al., Densely Connected Convolutional Networks, https://arxiv.org/abs/1608.06993."""

    def __init__(self, blocks: tuple[int, ...], growth: int, channels: int, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        for number, count in enumerate(blocks):
            for _ in range(count):
                layers.append(Layer(channels, growth))
                channels += growth
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            if number < len(blocks) - 1:
                layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
                channels //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return out


def dense() -> Model:
    return DenseNet((2, 2), 4, 8), {"x": torch.randn(2, 3, 32, 32)}


def densenet121() -> Model:
    return DenseNet((6, 12, 24, 16), 32, 64, 1000), {"x": torch.randn(16, 3, 128, 128)}


def text(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape)


def gpt2() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    drop: dict[str, Any] = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    size: dict[str, Any] = {"n_layer": 1, "n_head": 4, "n_embd": 32, "n_positions": 64}
    config = GPT2Config(vocab_size=256, use_cache=False, bos_token_id=0, eos_token_id=0, **size, **drop)
    return GPT2LMHeadModel(config), {"input_ids": text(2, 12)}


def bert() -> Model:
    from transformers import BertConfig, BertModel

    drop: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    return BertModel(BertConfig(vocab_size=256, **SIZE, **drop)), {"input_ids": text(2, 12), "attention_mask": mask}


def llama() -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=256, num_key_value_heads=2, use_cache=False, **SIZE)
    return LlamaForCausalLM(config), {"input_ids": text(2, 12)}


def t5() -> Model:
    from transformers import T5Config, T5ForConditionalGeneration

    size: dict[str, Any] = {
        "num_layers": 2,
        "num_heads": 4,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "decoder_start_token_id": 0,
    }
    config = T5Config(vocab_size=256, dropout_rate=0.0, use_cache=False, **size)
    return T5ForConditionalGeneration(config), {"input_ids": text(2, 12), "decoder_input_ids": text(2, 6)}


def vit() -> Model:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=32, patch_size=8, **SIZE)
    return ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def swin() -> Model:
    from transformers import SwinConfig, SwinModel

    size: dict[str, Any] = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    config = SwinConfig(image_size=32, patch_size=4, drop_path_rate=0.0, hidden_dropout_prob=0.0, **size)
    return SwinModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def first(out: Any) -> torch.Tensor:
    """The tensor that a loss is made of."""
    if isinstance(out, torch.Tensor):
        return out
    found = out.logits if "logits" in out else out.last_hidden_state
    assert isinstance(found, torch.Tensor)
    return found


def gradients(model: nn.Module) -> torch.Tensor:
    """All gradients in one row; AOTAutograd makes zeros where a parameter has none."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([g.reshape(-1) for g in grads]).double()


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    return float((actual - expected).abs().max() / expected.abs().max())


def exact(make: Callable[[], Model], weight: torch.Tensor) -> torch.Tensor:
    """The gradients in float64: through 121 layers of batch norm even eager's are no better than a percent."""
    torch.manual_seed(0)
    model, inputs = make()
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    out = first(model.double().train()(**wide))
    (out * weight.double()).sum().backward()
    return gradients(model)


def near(actual: torch.Tensor, expected: torch.Tensor, scale: float) -> None:
    assert float((actual - expected).detach().abs().max()) <= 1e-4 * scale


slow = pytest.mark.slow
#: A model, and the operators that stay islands in its inference and in its training.
MODELS = [
    pytest.param(dense, [], [], id="dense", marks=slow),
    pytest.param(gpt2, [], [], id="gpt2", marks=slow),
    pytest.param(bert, [], [], id="bert", marks=slow),
    pytest.param(llama, [], [], id="llama", marks=slow),
    pytest.param(t5, [], [], id="t5", marks=slow),
    pytest.param(vit, [], [], id="vit", marks=slow),
    pytest.param(swin, [], ["aten.as_strided.default", "prims.as_strided_scatter.default"], id="swin", marks=slow),
    pytest.param(densenet121, [], [], id="densenet121", marks=slow),
]


@pytest.mark.process
@pytest.mark.parametrize(("make", "inference", "training"), MODELS)
def test_model(make: Callable[[], Model], inference: list[str], training: list[str]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    storage, other = Storage(), copy.deepcopy(model)
    options: dict[str, Any] = {"storage": storage}
    fast = torch.compile(other, backend=compile_fx, options=options)
    model.eval(), other.eval()
    with torch.no_grad():
        expected = first(model(**inputs))
        near(first(fast(**inputs)), expected, float(expected.abs().max()))
    assert [island.target for report in storage.reports for island in report.islands] == inference

    storage.reports.clear()
    model.train(), other.train()
    outs = first(model(**inputs)), first(fast(**inputs))
    near(outs[1], outs[0], float(outs[0].abs().max()))
    weight = torch.randn_like(outs[0])
    for out in outs:
        (out * weight).sum().backward()
    actual, expected = gradients(other), gradients(model)
    assert distance(actual, expected) <= 1e-4 or distance(actual, truth := exact(make, weight)) <= 2 * distance(
        expected, truth
    )
    for (_, value), actual in zip(model.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(actual, value, rtol=1e-4, atol=1e-5)
    assert [report.kind for report in storage.reports] == ["forward", "backward"]
    assert [island.target for report in storage.reports for island in report.islands] == training
