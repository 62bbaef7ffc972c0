"""A saliency map whose gradient Inductor gets wrong: convolution, comparison, pooling, where."""

# SOURCE: pytorch/pytorch#185509 (2026-05)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x):
        up = F.interpolate(x, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)[:, :, 1:7, 1:8]
        c = self.edge(up)
        p = F.max_pool2d(c, 3, 1, 1)
        return torch.where(c > 0.1, c, p)


if __name__ == "__main__":
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    torch.compile(Probe())(x).abs().sum().backward()
    print(x.grad.abs().sum().item())
