"""A healthy program: dropout under Inductor, forward and backward."""

import torch

torch.manual_seed(0)
layers = torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.Dropout(0.3)
layer = torch.nn.Sequential(*layers).cuda()
compiled = torch.compile(layer)
for _ in range(4):
    compiled(torch.randn(8, 64, device="cuda")).sum().backward()
print("done")
