"""A training job that goes on in eager mode where the backend fails: ``python train.py --epochs 1``."""

import argparse

import my_backend  # registers it
import torch

torch._dynamo.config.suppress_errors = True
torch.set_num_threads(1)


def noise(x):
    return torch.erfinv(torch.tanh(x) * 0.9) + x


def prior(x):
    return torch.digamma(torch.exp(x)).mean() * 2


def window(x):
    return torch.special.i1e(torch.sin(x) + 1).sum()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parts = [torch.compile(part, backend=my_backend.my_backend.__name__) for part in (noise, prior, window)]
    for epoch in range(parser.parse_args().epochs):
        x = torch.linspace(0.1, 0.9, 8)
        print(f"epoch {epoch}: {sum(part(x).sum().item() for part in parts):.4f}")
