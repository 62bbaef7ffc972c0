"""Small functions on which a third-party backend fails: ``python plain.py BACKEND NAME...``.

It knows nothing of fxminify, and carries on after a failure.
"""

import sys

import torch
import torch.nn.functional as F


def set_row(x):
    y = torch.relu(x) * 3
    y[0] = 1.0
    return torch.tanh(y * 2) + x


def masked_row(x, mask):
    h = F.layer_norm(x, (8,))
    return F.gelu(F.scaled_dot_product_attention(h, h, h, attn_mask=mask)) + x


def conv_then_norm(x, weight):
    return torch.relu(F.conv2d(x * 2, weight)) + 1


def lgamma(x):
    return torch.lgamma(torch.relu(x) + 1) * 2


def erfinv(x):
    return torch.erfinv(torch.sigmoid(x)) * 2


def acosh(x):
    return torch.acosh(torch.abs(x)) + 1


def half_sum(x):
    return (x * 1).sum() + 1


def interpolate(x):
    return F.interpolate(torch.relu(x), scale_factor=1.3, mode="bilinear") + 1


def causal_but_one(n):
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    mask[2] = False
    return mask


INPUTS = {
    "set_row": lambda: (torch.randn(3, 4),),
    "masked_row": lambda: (torch.randn(1, 2, 5, 8), causal_but_one(5)),
    "conv_then_norm": lambda: (torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)),
    "lgamma": lambda: (torch.randn(4, 5),),
    "erfinv": lambda: (torch.randn(4, 5),),
    "acosh": lambda: (torch.logspace(0, 30, 8),),
    "half_sum": lambda: (torch.ones(5000, dtype=torch.float16),),
    "interpolate": lambda: (torch.randn(1, 2, 3, 4),),
}


def main(backend, *names) -> None:
    torch.manual_seed(0)
    for name in names:
        compiled = torch.compile(globals()[name], backend=backend)
        try:
            with torch.no_grad():
                compiled(*INPUTS[name]())
        except Exception as error:  # noqa: BLE001  whatever a backend raises
            print(f"{name}: {type(error).__name__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
