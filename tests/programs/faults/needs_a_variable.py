"""The backend is wrong only with ``ACME_OPT=2``."""

import os

import torch


def acme(gm, inputs):
    wrong = os.environ.get("ACME_OPT") == "2"

    def run(*args):
        return tuple(value + 1 if wrong else value for value in gm(*args))

    return run


torch.compile(lambda x: x.sin() * 2, backend=acme)(torch.randn(5))
