"""A backend that splits each graph, as servers of language models do, and gives the pieces to Inductor.

Attention runs in eager. The object cannot be made again elsewhere: it holds an open file. ``sys.argv`` says by which
function of torch pieces are compiled, and what happens in one of them.
"""

import sys

import torch
from torch import nn
from torch._inductor import standalone_compile
from torch._inductor.compile_fx import compile_fx
from torch.fx.passes.split_module import split_module

HOW, WHAT = sys.argv[1:3]
ATTENTION = torch.nn.functional.scaled_dot_product_attention


class Piece(nn.Module):
    def __init__(self, compiled, single):
        super().__init__()
        self.compiled, self.single = compiled, single

    def forward(self, *args):
        result = self.compiled(*args)
        return result[0] if self.single else result


class Splitter:
    def __init__(self, settings):
        self.settings = settings
        self.log = open(__file__)  # noqa: SIM115  it stays open

    def __call__(self, gm, inputs):
        number, part = 0, {}
        for node in gm.graph.nodes:
            if node.op not in ("placeholder", "get_attr", "output"):
                number += node.target is ATTENTION
                part[node] = number
                number += node.target is ATTENTION
        split = split_module(gm, None, part.__getitem__, keep_original_order=True)
        for name, piece in list(split.named_children()):
            if all(node.target is not ATTENTION for node in piece.graph.nodes):
                split.add_module(name, self.compiled(piece))
        return split.forward

    def compiled(self, piece):
        given = [node.meta["example_value"] for node in piece.graph.nodes if node.op == "placeholder"]
        output = piece.graph.output_node()
        single = not isinstance(output.args[0], tuple)
        if single:
            output.args = ((output.args[0],),)
            piece.recompile()
        if HOW == "standalone":
            made = standalone_compile(
                piece, given, dynamic_shapes="from_tracing_context", options={"config_patches": self.settings}
            )
        else:
            made = compile_fx(piece, given, config_patches=self.settings)
        return Piece(made, single)


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        y = self.out(ATTENTION(q, k, v)) + x
        if WHAT == "raises":
            return y + torch.logspace(0, 0, 1, base=-0.5)
        if WHAT == "wrong":
            return torch.acosh(1 + y.abs() * 1e30)
        return y.relu()


torch.manual_seed(0)
compiled = torch.compile(Model(), backend=Splitter({"epilogue_fusion": False}), dynamic=True)
with torch.no_grad():
    for length in (8, 9):
        print(compiled(torch.randn(2, length, 32)).sum().item())
