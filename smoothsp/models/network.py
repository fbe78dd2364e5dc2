"""Network of a tagger: word, character, window and encoder features to emissions."""

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
UNKNOWN_RATE = 0.5


@dataclass(frozen=True)
class TaggerSizes:
    """Layer sizes, dropout and output structure of a tagger."""

    word: int = 100
    """Dimension of word vectors."""
    hidden: int = 128
    """Units of the LSTM in each direction."""
    dropout: float = 0.5
    """Dropout above the LSTM and of window features; below the LSTM it is 0.6 times."""
    softmax: bool = False
    """If True, labels of words are independent; else they form a chain."""
    longest: int | None = None
    """Maximum number of words of a segment; None for a chain over words."""


class WordEmbeddings(nn.Module):
    """Word representations: embeddings of word, characters (CNN), shape, affixes.

    Parameters
    ----------
    vocabulary
        Vocabulary of the embedding tables.
    size
        Dimension of the embedding of the word itself.
    spread
        Standard deviation of its initial values.
    """

    rare: Tensor

    def __init__(self, vocabulary: Vocabulary, size: int, std: float) -> None:
        super().__init__()
        self.word = _build_embedding(vocabulary.words, size, std)
        self.character = _build_embedding(vocabulary.characters, CHARACTER_SIZE, 0.3)
        self.convolution = nn.Conv1d(CHARACTER_SIZE, CHARACTER_FILTERS, 3, padding=1)
        self.shape = _build_embedding(vocabulary.shapes, SHAPE_SIZE, 0.3)
        self.affix = nn.ModuleList(
            _build_embedding(affixes, AFFIX_SIZE, 0.3) for affixes in vocabulary.affixes
        )
        self.columns = size + CHARACTER_FILTERS + SHAPE_SIZE
        self.columns += AFFIX_SIZE * len(AFFIXES) + len(FLAGS)
        rare = torch.tensor([False, False, *vocabulary.rare])
        self.register_buffer("rare", rare, persistent=False)

    def embed(self, batch: Batch, context: Tensor | None = None) -> Tensor:
        """Return vectors ``(batch, time, columns)``, with ``context`` appended.

        ``context`` are encoder vectors ``(N, size)`` of the N real words.
        """
        words = F.embedding(batch.rows, self._embed_distinct(batch))
        if context is None:
            return words
        seen = words.new_zeros(*batch.mask.shape, context.shape[1])
        seen = seen.masked_scatter(batch.mask[..., None], context.to(seen.dtype))
        return torch.cat([words, seen], 2)

    def _embed_distinct(self, batch: Batch) -> Tensor:
        """Return one vector for each distinct word of the batch."""
        table = batch.table
        word = table.word
        if self.training:
            # Word dropout: rare words become unknown, which trains the unknown word.
            hidden = torch.rand(word.shape, device=word.device) < UNKNOWN_RATE
            word = word.masked_fill(hidden & self.rare[word], UNKNOWN)
        characters = self.character(table.characters).transpose(1, 2)  # [U, E, C]
        filters = F.relu(self.convolution(characters))
        real = (table.characters != PADDING)[:, None]
        affixes = [embed(table.affixes[:, i]) for i, embed in enumerate(self.affix)]
        parts = [self.word(word), (filters * real).amax(2), self.shape(table.shape)]
        return torch.cat([*parts, *affixes, table.flags], 1)


def run_bidirectional(
    forward_lstm: nn.LSTM, backward_lstm: nn.LSTM, words: Tensor, mask: Tensor
) -> Tensor:
    """Run a forward and a backward LSTM, and concatenate their states.

    Same as ``nn.LSTM(bidirectional=True)`` on packed sequences.
    """
    # Reversed by position, so that the backward LSTM starts at the last real word.
    step = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - step
    mirrored = torch.where(mask, mirrored, step)[..., None]
    # Trainers may enable half precision, in which some CPUs have no LSTM.
    with torch.autocast(words.device.type, enabled=False):
        words = words.to(next(forward_lstm.parameters()).dtype)
        right, _ = forward_lstm(words)
        left, _ = backward_lstm(words.gather(1, mirrored.expand_as(words)))
    return torch.cat([right, left.gather(1, mirrored.expand_as(left))], 2)


class Emissions(WordEmbeddings):
    """Emissions: bidirectional LSTM over embeddings, plus linear window features.

    Both parts are trained jointly.
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
        # Sparse gradients, since a batch uses few of the buckets.
        self.window = nn.EmbeddingBag(
            vocabulary.buckets, num_tags, mode="sum", sparse=True
        )
        nn.init.zeros_(self.window.weight)

    def set_vectors(
        self, vocabulary: Vocabulary, vectors: Mapping[str, NDArray[Any]]
    ) -> None:
        """Initialise embeddings by pretrained word vectors."""
        with torch.no_grad():
            for row, word in enumerate(vocabulary.words, start=UNKNOWN + 1):
                if word in vectors:
                    self.word.weight[row] = torch.from_numpy(vectors[word])

    def forward(self, batch: Batch, context: Tensor | None = None) -> Tensor:
        """Return emissions ``(batch, time, num_tags)``.

        ``context`` are encoder vectors of the real words.
        """
        words = self.embed(batch, context)
        words = F.dropout(words, 0.6 * self.dropout, self.training)
        hidden = run_bidirectional(self.ahead, self.back, words, batch.mask)[batch.mask]
        nonlinear = self.output(F.dropout(hidden, self.dropout, self.training))
        feature_weights = torch.ones(batch.window.shape, device=nonlinear.device)
        feature_weights = F.dropout(feature_weights, self.dropout, self.training)
        linear = self.window(batch.window, per_sample_weights=feature_weights)
        scores = nonlinear + linear
        emissions = scores.new_zeros(*batch.mask.shape, scores.shape[1])
        emissions_of_batch: Tensor = emissions.masked_scatter(
            batch.mask[..., None], scores
        )
        return emissions_of_batch


class TaggerNetwork(nn.Module):
    """Emissions with an output layer: a chain over words or over segments.

    Parameters
    ----------
    vocabulary
        Vocabulary of the embedding tables.
    labels
        Labels in BIOES: ``O``, and four for each type.
    sizes
        Layer sizes and output structure.
    encoder
        Pretrained encoder, whose vectors are appended to the embeddings.
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
            # With zero transitions, a chain is an independent softmax at each word.
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
        """Return emissions ``(batch, time, label)``."""
        batch = batch.to(self.device)
        if self.encoder is None or batch.subwords is None:
            return self.emissions(batch)  # type: ignore[no-any-return]
        return self.emissions(batch, self.encoder(batch.subwords))  # type: ignore[no-any-return]

    def dense_parameters(self) -> list[nn.Parameter]:
        """Return trained parameters except window features and transformer."""
        excluded = {id(self.emissions.window.weight)}
        excluded |= {id(p) for p in self.encoder_parameters()}
        return [
            p for p in self.parameters() if id(p) not in excluded and p.requires_grad
        ]

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the transformer, or an empty list."""
        return list(self.encoder.model.parameters()) if self.encoder else []


def _build_embedding(entries: list[str], size: int, std: float) -> nn.Embedding:
    table = nn.Embedding(UNKNOWN + 1 + len(entries), size, padding_idx=PADDING)
    with torch.no_grad():
        table.weight.normal_(0, std)[PADDING] = 0
    return table
