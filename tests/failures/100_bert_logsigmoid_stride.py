"""real failure: bert_logsigmoid_stride"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'aot_eager_decomp_partition'
KIND = 'divergence'
EXPECT = 'stride'
MIN_NODES = 2
SOURCE = 'own fuzz'
TRAIN = True


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, ids):
        h = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.head(h[:, 0]), F.logsigmoid(self.head.weight.t() * 2)


def make():
    return Bert(), (torch.randint(0, 50, (2, 12)),)
