"""The network of ``conll_ner.py``: emissions from words, characters and windows."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import smoothsp
from ner.features import AFFIXES, FLAGS, PADDING, UNKNOWN, Batch, Vocabulary

CHARACTER_SIZE, CHARACTER_FILTERS = 25, 50
SHAPE_SIZE, AFFIX_SIZE = 16, 16
HIDDEN = 128
DROP_INPUT, DROP_OUTPUT, DROP_WINDOW, DROP_WORD = 0.3, 0.5, 0.5, 0.5


class Emissions(nn.Module):
    """A bidirectional LSTM over word, character, shape and affix embeddings, plus a
    linear model of the window features.

    The two learn together: what a hand-made feature tells, the LSTM need not learn.
    """

    def __init__(self, vocabulary: Vocabulary, size: int, num_tags: int) -> None:
        super().__init__()
        self.word = _embedding(vocabulary.words, size, math.sqrt(1 / size))
        self.character = _embedding(vocabulary.characters, CHARACTER_SIZE, 0.3)
        self.convolution = nn.Conv1d(CHARACTER_SIZE, CHARACTER_FILTERS, 3, padding=1)
        self.shape = _embedding(vocabulary.shapes, SHAPE_SIZE, 0.3)
        self.affix = nn.ModuleList(
            _embedding(known, AFFIX_SIZE, 0.3) for known in vocabulary.affixes
        )
        inputs = size + CHARACTER_FILTERS + SHAPE_SIZE
        inputs += AFFIX_SIZE * len(AFFIXES) + len(FLAGS)
        self.ahead = nn.LSTM(inputs, HIDDEN, batch_first=True)
        self.back = nn.LSTM(inputs, HIDDEN, batch_first=True)
        self.output = nn.Linear(2 * HIDDEN, num_tags)
        # Sparse gradients: a batch touches few of the buckets.
        self.window = nn.EmbeddingBag(
            vocabulary.buckets, num_tags, mode="sum", sparse=True
        )
        nn.init.zeros_(self.window.weight)
        rare = torch.tensor([False, False, *vocabulary.rare])
        self.register_buffer("rare", rare, persistent=False)

    def set_vectors(
        self, vocabulary: Vocabulary, vectors: Mapping[str, np.ndarray]
    ) -> None:
        """Start the words that have a vector from it."""
        with torch.no_grad():
            for row, word in enumerate(vocabulary.words, start=UNKNOWN + 1):
                if word in vectors:
                    self.word.weight[row] = torch.from_numpy(vectors[word])

    def forward(self, batch: Batch) -> Tensor:
        words = F.embedding(batch.rows, self._words(batch))  # [B, T, D]
        words = F.dropout(words, DROP_INPUT, self.training)
        ahead, _ = self.ahead(words)
        # Reversed by position, so that the way back starts at the last real word.
        step = torch.arange(batch.mask.shape[1], device=batch.mask.device)
        mirrored = batch.mask.sum(1, keepdim=True) - 1 - step
        mirrored = torch.where(batch.mask, mirrored, step)[..., None]
        back, _ = self.back(words.gather(1, mirrored.expand_as(words)))
        back = back.gather(1, mirrored.expand_as(back))
        hidden = torch.cat([ahead, back], 2)[batch.mask]  # [N, 2 H]
        deep = self.output(F.dropout(hidden, DROP_OUTPUT, self.training))
        kept = torch.ones(batch.window.shape, device=deep.device)
        kept = F.dropout(kept, DROP_WINDOW, self.training)
        wide = self.window(batch.window, per_sample_weights=kept)
        emissions = deep.new_zeros(*batch.mask.shape, deep.shape[1])
        return emissions.masked_scatter(batch.mask[..., None], deep + wide)

    def _words(self, batch: Batch) -> Tensor:
        """One vector for each distinct word of the batch."""
        table = batch.table
        word = table.word
        if self.training:
            hidden = torch.rand(word.shape, device=word.device) < DROP_WORD
            word = word.masked_fill(hidden & self.rare[word], UNKNOWN)
        characters = self.character(table.characters).transpose(1, 2)  # [U, E, C]
        filters = F.relu(self.convolution(characters))
        real = (table.characters != PADDING)[:, None]
        return torch.cat(
            [
                self.word(word),
                (filters * real).amax(2),
                self.shape(table.shape),
                *(embed(table.affixes[:, i]) for i, embed in enumerate(self.affix)),
                table.flags,
            ],
            1,
        )


class Tagger(nn.Module):
    """Emissions on the device, a chain over them on the CPU."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: list[str],
        size: int,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.emissions = Emissions(vocabulary, size, len(labels)).to(device)
        constraints = smoothsp.constraints.bio(labels, "BIOES")
        self.head = smoothsp.LinearChain(len(labels), constraints)
        self.device = device

    def forward(self, batch: Batch) -> Tensor:
        # The oracles are compiled for the CPU; emissions are small, a few numbers a
        # word, so that the move costs little and gradients flow back through it.
        return self.emissions(batch.to(self.device)).cpu()

    def dense_parameters(self) -> list[nn.Parameter]:
        window = self.emissions.window.weight
        return [p for p in self.parameters() if p is not window]


def _embedding(known: list[str], size: int, spread: float) -> nn.Embedding:
    table = nn.Embedding(UNKNOWN + 1 + len(known), size, padding_idx=PADDING)
    with torch.no_grad():
        table.weight.normal_(0, spread)[PADDING] = 0
    return table
