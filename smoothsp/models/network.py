"""The network of a tagger: emissions of words, characters, windows and an encoder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.constraints import bio
from smoothsp.layers import LinearChain
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import AFFIXES, FLAGS, PADDING, UNKNOWN, Batch, Vocabulary
from smoothsp.models.segments import SegmentHead

__all__ = [
    "Emissions",
    "TaggerNetwork",
    "TaggerSizes",
    "WordEmbeddings",
    "run_bidirectional",
]

CHARACTER_SIZE, CHARACTER_FILTERS = 25, 50
SHAPE_SIZE, AFFIX_SIZE = 16, 16
DROP_WORD = 0.5


@dataclass(frozen=True)
class TaggerSizes:
    """Sizes of the network, and its dropout."""

    word: int = 100
    """Columns of a word's vector."""
    hidden: int = 128
    """Units of the LSTM, each way."""
    dropout: float = 0.5
    """Share dropped above the LSTM and of window features; 0.6 times that below it."""
    softmax: bool = False
    """Labels of words independent of each other, in place of a chain?"""
    longest: int | None = None
    """Words of the longest segment; None for a chain of words, not of segments."""


class WordEmbeddings(nn.Module):
    """Vectors of words, of their characters (a convolution), shapes and affixes.

    Parameters
    ----------
    vocabulary
        What the tables are indexed by.
    size
        Columns of a word's own vector.
    spread
        Standard deviation of its first values.
    """

    rare: Tensor

    def __init__(self, vocabulary: Vocabulary, size: int, spread: float) -> None:
        super().__init__()
        self.word = _embedding(vocabulary.words, size, spread)
        self.character = _embedding(vocabulary.characters, CHARACTER_SIZE, 0.3)
        self.convolution = nn.Conv1d(CHARACTER_SIZE, CHARACTER_FILTERS, 3, padding=1)
        self.shape = _embedding(vocabulary.shapes, SHAPE_SIZE, 0.3)
        self.affix = nn.ModuleList(
            _embedding(known, AFFIX_SIZE, 0.3) for known in vocabulary.affixes
        )
        self.columns = size + CHARACTER_FILTERS + SHAPE_SIZE
        self.columns += AFFIX_SIZE * len(AFFIXES) + len(FLAGS)
        rare = torch.tensor([False, False, *vocabulary.rare])
        self.register_buffer("rare", rare, persistent=False)

    def embed(self, batch: Batch, context: Tensor | None = None) -> Tensor:
        """``(batch, time, columns)``; ``context``, an encoder's, stands behind."""
        words = F.embedding(batch.rows, self._distinct(batch))
        if context is None:
            return words
        seen = words.new_zeros(*batch.mask.shape, context.shape[1])
        seen = seen.masked_scatter(batch.mask[..., None], context.to(seen.dtype))
        return torch.cat([words, seen], 2)

    def _distinct(self, batch: Batch) -> Tensor:
        """One vector for each distinct word of the batch."""
        table = batch.table
        word = table.word
        if self.training:
            hidden = torch.rand(word.shape, device=word.device) < DROP_WORD
            word = word.masked_fill(hidden & self.rare[word], UNKNOWN)
        characters = self.character(table.characters).transpose(1, 2)  # [U, E, C]
        filters = F.relu(self.convolution(characters))
        real = (table.characters != PADDING)[:, None]
        affixes = [embed(table.affixes[:, i]) for i, embed in enumerate(self.affix)]
        parts = [self.word(word), (filters * real).amax(2), self.shape(table.shape)]
        return torch.cat([*parts, *affixes, table.flags], 1)


def run_bidirectional(
    ahead: nn.LSTM, back: nn.LSTM, words: Tensor, mask: Tensor
) -> Tensor:
    """Run one LSTM from the first word on and one from the last word back."""
    # Reversed by position, so that the way back starts at the last real word.
    step = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - step
    mirrored = torch.where(mask, mirrored, step)[..., None]
    # not all processors have LSTMs in half precision, which a trainer may ask for
    with torch.autocast(words.device.type, enabled=False):
        words = words.to(next(ahead.parameters()).dtype)
        right, _ = ahead(words)
        left, _ = back(words.gather(1, mirrored.expand_as(words)))
    return torch.cat([right, left.gather(1, mirrored.expand_as(left))], 2)


class Emissions(WordEmbeddings):
    """A bidirectional LSTM over embeddings, plus a linear model of window features.

    The two learn together: what a hand-made feature tells, the LSTM need not learn.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sizes: TaggerSizes,
        num_tags: int,
        context: int = 0,
    ) -> None:
        super().__init__(vocabulary, sizes.word, math.sqrt(1 / sizes.word))
        hidden = sizes.hidden
        self.dropout = sizes.dropout
        self.ahead = nn.LSTM(self.columns + context, hidden, batch_first=True)
        self.back = nn.LSTM(self.columns + context, hidden, batch_first=True)
        self.output = nn.Linear(2 * hidden, num_tags)
        # Sparse gradients: a batch touches few of the buckets.
        self.window = nn.EmbeddingBag(
            vocabulary.buckets, num_tags, mode="sum", sparse=True
        )
        nn.init.zeros_(self.window.weight)

    def set_vectors(
        self, vocabulary: Vocabulary, vectors: Mapping[str, NDArray[Any]]
    ) -> None:
        """Start the words that have a vector from it."""
        with torch.no_grad():
            for row, word in enumerate(vocabulary.words, start=UNKNOWN + 1):
                if word in vectors:
                    self.word.weight[row] = torch.from_numpy(vectors[word])

    def forward(self, batch: Batch, context: Tensor | None = None) -> Tensor:
        """``(batch, time, num_tags)``; ``context`` is an encoder's, of real words."""
        words = self.embed(batch, context)
        words = F.dropout(words, 0.6 * self.dropout, self.training)
        hidden = run_bidirectional(self.ahead, self.back, words, batch.mask)[batch.mask]
        deep = self.output(F.dropout(hidden, self.dropout, self.training))
        kept = torch.ones(batch.window.shape, device=deep.device)
        kept = F.dropout(kept, self.dropout, self.training)
        wide = self.window(batch.window, per_sample_weights=kept)
        scores = deep + wide
        emissions = scores.new_zeros(*batch.mask.shape, scores.shape[1])
        found: Tensor = emissions.masked_scatter(batch.mask[..., None], scores)
        return found


class TaggerNetwork(nn.Module):
    """Emissions, and a chain of words or of segments over them, where they are.

    Parameters
    ----------
    vocabulary
        What the tables are indexed by.
    labels
        In BIOES: ``O``, and four for each type.
    sizes
        Of the parts.
    encoder
        Gives each word a vector in its context, besides all else.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: list[str],
        sizes: TaggerSizes | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes or TaggerSizes()
        context = encoder.size if encoder else 0
        self.emissions = Emissions(vocabulary, self.sizes, len(labels), context)
        self.encoder = encoder
        self.head: LinearChain | SegmentHead
        if self.sizes.longest is not None:
            self.head = SegmentHead(labels, self.sizes.longest)
        elif self.sizes.softmax:
            # A chain that scores no neighbours is a softmax at each position.
            self.head = LinearChain(len(labels)).requires_grad_(False)
            for scores in self.head.parameters():
                nn.init.zeros_(scores)
        else:
            self.head = LinearChain(len(labels), bio(labels, "BIOES"))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.head.transitions.device

    def forward(self, batch: Batch) -> Tensor:
        """Emissions ``(batch, time, label)``."""
        batch = batch.to(self.device)
        if self.encoder is None or batch.pieces is None:
            return self.emissions(batch)  # type: ignore[no-any-return]
        return self.emissions(batch, self.encoder(batch.pieces))  # type: ignore[no-any-return]

    def dense_parameters(self) -> list[nn.Parameter]:
        """All that learns but the table of window features and the transformer."""
        other = {id(self.emissions.window.weight)}
        other |= {id(p) for p in self.encoder_parameters()}
        return [p for p in self.parameters() if id(p) not in other and p.requires_grad]

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Parameters of the transformer, if there is one."""
        return list(self.encoder.model.parameters()) if self.encoder else []


def _embedding(known: list[str], size: int, spread: float) -> nn.Embedding:
    table = nn.Embedding(UNKNOWN + 1 + len(known), size, padding_idx=PADDING)
    with torch.no_grad():
        table.weight.normal_(0, spread)[PADDING] = 0
    return table
