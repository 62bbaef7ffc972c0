"""The exporter of onnxruntime lacks lgamma, so it lacks whatever is made of it; the part is at fault, not the whole."""

import torch

BACKEND = "ort_export"
KIND = "compile_error"
EXPECT = "DispatchError: no ONNX function for aten.lgamma, which multigammaln consists of"
MIN_NODES = 1
CULPRIT = "torch.lgamma("
SOURCE = "039, one level up"


def make():
    def f(x):
        return torch.special.multigammaln(x.abs() + 4, 3).tanh()

    return f, [torch.randn(4, 4)]
