"""A tensor subclass that only carries a name, multiplied with itself: Inductor fails at the first call and no other."""

# SOURCE: pytorch/pytorch#193932 (2026-08)
import torch

torch.manual_seed(0)


class Tagged(torch.Tensor):
    pass


@torch.compile
def gram(t):
    return torch.relu(t @ t.t()).sum()


print(gram(torch.randn(4, 4).as_subclass(Tagged)))
