"""The models whose graphs are reduced: random weights, nothing downloaded, sizes chosen for the node count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Model = tuple[Callable[..., Tensor], tuple[Any, ...]]

HIDDEN, LENGTH, BATCH, SPATIAL = 64, 32, 4, 64


class DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int = 32, width: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(width * growth)
        self.conv1 = nn.Conv2d(channels, width * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(width * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1)), inplace=True))
        out: Tensor = self.conv2(F.relu(self.norm2(x), inplace=True))
        return out


class DenseNet121(nn.Module):
    def __init__(self, growth: int = 32) -> None:
        super().__init__()
        channels = 64
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for count in (6, 12, 24, 16):
            self.blocks.append(nn.ModuleList([DenseLayer(channels + i * growth, growth) for i in range(count)]))
            channels += count * growth
            if len(self.blocks) < 4:
                half = nn.Conv2d(channels, channels // 2, 1, bias=False)
                self.transitions.append(
                    nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(True), half, nn.AvgPool2d(2, 2))
                )
                channels //= 2
        self.norm, self.head = nn.BatchNorm2d(channels), nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            features = [x]
            for layer in block:  # type: ignore[attr-defined]
                features.append(layer(features))
            x = torch.cat(features, 1)
            if i < len(self.transitions):
                x = self.transitions[i](x)
        x = F.adaptive_avg_pool2d(F.relu(self.norm(x), inplace=True), (1, 1))
        out: Tensor = self.head(torch.flatten(x, 1))
        return out


class Bottleneck(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        out = planes * 4
        self.conv1, self.norm1 = nn.Conv2d(channels, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.norm2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.norm3 = nn.Conv2d(planes, out, 1, bias=False), nn.BatchNorm2d(out)
        same = stride == 1 and channels == out
        self.shortcut = (
            None if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True))
        layers, channels = [], 64
        for planes, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                layers.append(Bottleneck(channels, planes, stride if i == 0 else 1))
                channels = planes * 4
        self.layers, self.head = nn.Sequential(nn.MaxPool2d(3, 2, 1), *layers), nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.adaptive_avg_pool2d(self.layers(self.stem(x)), 1).flatten(1))
        return out


def mlp() -> Model:
    layers = [nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64)]
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(64, 10)), (torch.randn(16, 32),)


def densenet121() -> Model:
    return DenseNet121(), (torch.randn(BATCH, 3, SPATIAL, SPATIAL),)


def resnet50() -> Model:
    return ResNet50(), (torch.randn(BATCH, 3, SPATIAL, SPATIAL),)


def gpt2(layers: int) -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers, n_head=4, n_embd=HIDDEN, vocab_size=256, n_positions=64, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, use_cache=False,
    )  # fmt: skip
    return _first_result(GPT2LMHeadModel(config)), (torch.randint(0, 256, (2, LENGTH)),)


def bert(layers: int) -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=layers, num_attention_heads=4, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN,
        vocab_size=256, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    return _first_result(BertModel(config)), (torch.randint(0, 256, (2, LENGTH)),)


def llama(layers: int) -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN, vocab_size=256, max_position_embeddings=128, use_cache=False,
    )  # fmt: skip
    return _first_result(LlamaForCausalLM(config)), (torch.randint(0, 256, (2, LENGTH)),)


def _first_result(model: nn.Module) -> Callable[..., Tensor]:
    model.train()

    def run(tokens: Tensor) -> Tensor:
        result = model(tokens)
        found: Tensor = result.logits if hasattr(result, "logits") else result.last_hidden_state
        return found

    return run


def make(name: str) -> Model:
    """``mlp``, ``resnet50``, ``densenet121``, or a transformer with its number of layers: ``gpt2_4``."""
    torch.manual_seed(0)
    family, _, layers = name.partition("_")
    factory = {"gpt2": gpt2, "bert": bert, "llama": llama}.get(family)
    if factory is not None:
        return factory(int(layers))
    model, args = {"mlp": mlp, "resnet50": resnet50, "densenet121": densenet121}[name]()
    return model, args
