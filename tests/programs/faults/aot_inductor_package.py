"""``torch.export``, then ``aoti_compile_and_package`` raises inside Inductor."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8))

    def forward(self, x):
        h = self.body(x)
        return h + torch.logspace(0, 0, 0, base=-0.5).sum()


exported = torch.export.export(Pipeline().eval(), (torch.randn(2, 8),))
torch._inductor.aoti_compile_and_package(exported, package_path="u01.pt2")
