"""Acme's own programs for a hunt: a layer and a wave."""

import torch

from fxminify.minifier.hunting.programs import PreparedProgram, Program


def layer(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]).relu()


def wave(x):
    return torch.sin(x) * 2


class Models:
    def programs(self, wanted):
        for name in ("layer", "wave"):
            for gradient in wanted.gradient:
                yield Program("acme", name, "float32", gradient, seed=wanted.seed)

    def prepare(self, program):
        generator = torch.Generator().manual_seed(program.seed)
        x = torch.randn(3, 8, generator=generator, requires_grad=program.gradient)
        return PreparedProgram({"layer": layer, "wave": wave}[program.name], [((x,), {})], program.gradient)


models = Models()
