"""real failure: llama_std_overflow"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'aot_eager_decomp_partition'
KIND = 'divergence'
EXPECT = 'value: inf'
MIN_NODES = 1
SOURCE = 'own fuzz'


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.o, self.w = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False), nn.Parameter(torch.ones(d))
        self.up, self.gate, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def norm(self, x):
        return self.w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x):
        q, k, v = self.q(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.blocks = nn.Embedding(40, 16), nn.ModuleList(Block(16) for _ in range(3))

    def forward(self, ids, scale):
        h = self.e(ids)
        for block in self.blocks:
            h = block(h)
        return h @ self.e.weight.t() + (scale * 2).std().log() * 0.01


def make():
    return Llama(), (torch.randint(0, 40, (2, 7)), torch.tensor([1.0, 3e37, -2e37, 4.0]))
