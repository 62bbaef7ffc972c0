"""A healthy training loop under CUDA graphs. It prints its losses."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(6):
    torch.compiler.cudagraph_mark_step_begin()
    x = torch.randn(16, 32, device="cuda")
    loss = (compiled(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
