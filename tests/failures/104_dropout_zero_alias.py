"""real failure: dropout_zero_alias"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'aot_eager_decomp_partition'
KIND = 'divergence'
EXPECT = 'alias'
MIN_NODES = 1
SOURCE = 'own fuzz'
TRAIN = True


def fn(x, w):
    h = (x @ w).relu().softmax(-1)
    return h.sum(), F.dropout(w, 0.0)


def make():
    return fn, (torch.randn(4, 5), torch.randn(5, 5))
