"""FlexAttention on a CPU reads the size of its query from the buffer behind it: a query that is a view has another."""

import torch
import torch.nn as nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BACKEND = "inductor"
KIND = "compile_error"
EXPECT = "ValueError: not enough values to unpack"
MIN_NODES = 3  # a view, flex_attention and its first result
LINES = 50  # two functions, and a call with 31 arguments
CULPRIT = "flex_attention"
SOURCE = "found while heads were split in a small decoder"


def window(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    return (q >= kv) & (q - kv < 32)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask) -> torch.Tensor:
        batch, steps, width = x.shape
        h = self.norm(x)
        q = self.q(h).view(batch, steps, 2, width // 2).transpose(1, 2)
        k, v = self.kv(h).view(batch, steps, 2, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = flex_attention(q, k, v, block_mask=mask).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.out(mixed)
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def make():
    layers = nn.ModuleList(Layer(32) for _ in range(2)).eval()
    mask = create_block_mask(window, None, None, 128, 128, device="cpu")

    def decoder(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x, mask)
        return x

    return decoder, (torch.randn(1, 128, 32),)
