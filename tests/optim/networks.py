"""Modules of many kinds, with the inputs to try them on."""

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Cube(torch.autograd.Function):
    """Differentiable twice in reverse, not in forward mode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class CubeOnce(Cube):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        lengths = torch.tensor([4, 2])
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).sigmoid())


def layers(*parts):
    return nn.Sequential(*parts)


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


WORDS = torch.tensor([[0, 3, 1], [2, 2, 4]])
IMAGES = (2, 2, 5, 5)
MODELS = {
    "linear": (lambda: nn.Linear(3, 2), (4, 3)),
    "elu": (lambda: layers(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 2)), (4, 3)),
    "conv": (lambda: layers(nn.Conv2d(2, 3, 3), nn.ELU(), nn.MaxPool2d(2)), IMAGES),
    "norms": (lambda: layers(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), IMAGES),
    "batch norm": (lambda: layers(nn.Linear(3, 4), nn.BatchNorm1d(4)), (5, 3)),
    "lstm": (
        lambda: layers(nn.LSTM(3, 2, 2, bidirectional=True), Apply(first)),
        (4, 2, 3),
    ),
    "packed lstm": (Packed, (2, 4, 3)),
    "gru": (lambda: layers(nn.GRU(3, 2), Apply(first)), (4, 2, 3)),
    "attention": (Attention, (2, 3, 4)),
    "attention, evaluating": (lambda: Attention().eval(), (2, 3, 4)),
    "transformer": (transformer, (2, 3, 4)),
    "transformer, evaluating": (lambda: transformer().eval(), (2, 3, 4)),
    "embedding": (lambda: layers(nn.Embedding(5, 3), nn.Tanh()), WORDS),
    "dropout": (lambda: layers(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)), (4, 3)),
    "tied": (Tied, (4, 3)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 2)), (4, 3)),
    "custom function after dropout": (
        lambda: layers(nn.Linear(3, 4), nn.Dropout(), Apply(Cube.apply)),
        (4, 3),
    ),
    "custom function": (
        lambda: layers(nn.Linear(3, 4), Apply(Cube.apply), nn.Linear(4, 2)),
        (4, 3),
    ),
}


REVERSE_ONLY = {"weight norm", "custom function", "custom function after dropout"}


def first(outputs):
    return outputs[0]
