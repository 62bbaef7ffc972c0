"""A training job that goes on in eager mode where the backend fails: ``python train.py --epochs 1``."""

import argparse

import my_backend  # registers it
import torch

torch._dynamo.config.suppress_errors = True
torch.set_num_threads(1)


def noise(x):
    return torch.erfinv(torch.tanh(x) * 0.9) + x


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    compiled = torch.compile(noise, backend=my_backend.my_backend.__name__)
    for epoch in range(parser.parse_args().epochs):
        print(f"epoch {epoch}: {compiled(torch.linspace(0.1, 0.9, 8)).sum().item():.4f}")
