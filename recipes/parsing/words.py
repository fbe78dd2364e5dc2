"""Vectors of words in their sentence: embeddings, then bidirectional LSTMs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.features import AFFIXES, FLAGS, PADDING, UNKNOWN, Batch, Vocabulary

CHARACTER_SIZE, CHARACTER_FILTERS, SHAPE_SIZE, AFFIX_SIZE = 25, 50, 16, 16
DROP_WORD = 0.5


@dataclass(frozen=True)
class Sizes:
    """How large a network is."""

    word: int = 100
    hidden: int = 200
    """Units of an LSTM, each way."""
    layers: int = 2
    arc: int = 200
    label: int = 64
    dropout: float = 0.3


class WordVectors(nn.Module):
    """Of words, characters (a convolution), shapes and affixes; then the LSTMs."""

    rare: Tensor

    def __init__(self, vocabulary: Vocabulary, sizes: Sizes) -> None:
        super().__init__()
        self.dropout = sizes.dropout
        self.word = _embedding(vocabulary.words, sizes.word)
        self.character = _embedding(vocabulary.characters, CHARACTER_SIZE)
        self.convolution = nn.Conv1d(CHARACTER_SIZE, CHARACTER_FILTERS, 3, padding=1)
        self.shape = _embedding(vocabulary.shapes, SHAPE_SIZE)
        self.affix = nn.ModuleList(
            _embedding(known, AFFIX_SIZE) for known in vocabulary.affixes
        )
        size = sizes.word + CHARACTER_FILTERS + SHAPE_SIZE + len(FLAGS)
        size += AFFIX_SIZE * len(AFFIXES)
        self.layers = nn.ModuleList()
        for _ in range(sizes.layers):
            ways = [nn.LSTM(size, sizes.hidden, batch_first=True) for _ in range(2)]
            self.layers.append(nn.ModuleList(ways))
            size = 2 * sizes.hidden
        self.size = size
        rare = torch.tensor([False, False, *vocabulary.rare])
        self.register_buffer("rare", rare, persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """``(batch, time, size)``; what lies beyond a sentence means nothing."""
        found = F.embedding(batch.rows, self._distinct(batch))
        # Reversed by position, so that the way back starts at the last real word.
        step = torch.arange(batch.mask.shape[1], device=batch.mask.device)
        mirrored = batch.mask.sum(1, keepdim=True) - 1 - step
        mirrored = torch.where(batch.mask, mirrored, step)[..., None]
        for ahead, back in self.layers:
            found = F.dropout(found, self.dropout, self.training)
            right, _ = ahead(found)
            left, _ = back(found.gather(1, mirrored.expand_as(found)))
            left = left.gather(1, mirrored.expand_as(left))
            found = torch.cat([right, left], 2)
        return F.dropout(found, self.dropout, self.training)

    def _distinct(self, batch: Batch) -> Tensor:
        """One vector for each distinct word of the batch."""
        table = batch.table
        word = table.word
        if self.training:
            hidden = torch.rand(word.shape, device=word.device) < DROP_WORD
            word = word.masked_fill(hidden & self.rare[word], UNKNOWN)
        characters = self.character(table.characters).transpose(1, 2)
        filters = F.relu(self.convolution(characters))
        real = (table.characters != PADDING)[:, None]
        affixes = [embed(table.affixes[:, i]) for i, embed in enumerate(self.affix)]
        parts = [self.word(word), (filters * real).amax(2), self.shape(table.shape)]
        return torch.cat([*parts, *affixes, table.flags], 1)


def layer(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    """A small network that gives each word a view of its own for one purpose."""
    return nn.Sequential(
        nn.Linear(inputs, outputs), nn.LeakyReLU(0.1), nn.Dropout(dropout)
    )


def _embedding(known: list[str], size: int) -> nn.Embedding:
    table = nn.Embedding(UNKNOWN + 1 + len(known), size, padding_idx=PADDING)
    with torch.no_grad():
        table.weight.normal_(0, 0.3)[PADDING] = 0
    return table
