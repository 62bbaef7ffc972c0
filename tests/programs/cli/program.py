"""Ordinary programs: ``python program.py NAME...`` compiles a small model for each name and calls it."""

import resource
import sys

import planted
import torch


def model(x):
    x = torch.sin(x) + torch.cos(x)
    x = torch.relu(x) * 2
    return x.sum()


def two_bugs(x):
    return torch.relu(torch.tanh(torch.sin(x))).sum()


def long(x):
    x = torch.sigmoid(x)
    for _ in range(12):
        x = torch.cos(x) * 0.5
    return torch.relu(x).sum()


def custom(x):
    import myops

    return myops.twice(torch.sin(x)).sum()


def run(name) -> None:
    x = torch.linspace(0.1, 0.9, 8)
    if name == "imported":
        torch.compile(model, backend=planted.imported)(x)
    elif name == "fuses":
        torch.compile(model, backend="fuses")(x)  # healthy
        torch._dynamo.reset()
        torch.compile(model, backend="fuses", options={"fuse": True})(x)
    elif name == "no_kernel":
        torch.compile(custom, backend="no_kernel")(x)
    elif name == "two_bugs":
        torch.compile(two_bugs, backend="raises")(x)
    elif name in ("slow_pair", "fades"):
        torch.compile(long, backend=name)(x)
    elif name in ("negates", "flips"):
        torch.compile(lambda x: torch.sin(x) * 2, backend=name)(x.requires_grad_()).sum().backward()
    elif name == "greedy":
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        torch.compile(model, backend="greedy")(x)
    elif name == "checksum":
        weight = torch.rand(100, 100, generator=torch.Generator().manual_seed(77))
        torch.compile(lambda w: torch.sin(w).sum(), backend="checksum")(weight * (5432.1 / weight.sum()))
    else:
        torch.compile(model, backend=name)(x)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            run(name)
        except Exception as error:  # noqa: BLE001  whatever the backend raises
            print(f"{name}: {type(error).__name__}")
        torch._dynamo.reset()
