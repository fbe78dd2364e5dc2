"""Vectors of words in their sentence: embeddings, an encoder, bidirectional LSTMs."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Batch, Vocabulary
from smoothsp.models.network import WordEmbeddings, run_bidirectional

__all__ = ["ParserSizes", "WordVectors", "make_view"]


@dataclass(frozen=True)
class ParserSizes:
    """Sizes of the network of a parser, and its dropout."""

    word: int = 100
    """Columns of a word's vector."""
    hidden: int = 200
    """Units of an LSTM, each way."""
    layers: int = 2
    """LSTMs each way, one above the other."""
    arc: int = 200
    """Columns of a view of a word for scores of arcs or spans."""
    label: int = 64
    """The same for labels of arcs."""
    sibling: int = 64
    """The same for pairs of siblings."""
    dropout: float = 0.3
    """Share of units that a step leaves out."""


class WordVectors(WordEmbeddings):
    """Embeddings and vectors of an encoder, if there is one; then the LSTMs."""

    def __init__(
        self, vocabulary: Vocabulary, sizes: ParserSizes, encoder: Encoder | None = None
    ) -> None:
        super().__init__(vocabulary, sizes.word, 0.3)
        self.dropout = sizes.dropout
        self.encoder = encoder
        size = self.columns + (encoder.size if encoder else 0)
        self.layers = nn.ModuleList()
        for _ in range(sizes.layers):
            ways = [nn.LSTM(size, sizes.hidden, batch_first=True) for _ in range(2)]
            self.layers.append(nn.ModuleList(ways))
            size = 2 * sizes.hidden
        self.size = size

    def forward(self, batch: Batch) -> Tensor:
        """``(batch, time, size)``; vectors beyond a sentence are arbitrary."""
        context = None
        if self.encoder is not None and batch.pieces is not None:
            context = self.encoder(batch.pieces)
        found = self.embed(batch, context)
        for ways in self.layers:
            found = F.dropout(found, self.dropout, self.training)
            found = run_bidirectional(ways[0], ways[1], found, batch.mask)  # type: ignore[index]
        return F.dropout(found, self.dropout, self.training)


def make_view(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    """Return a small network that gives each word a view of its own for one purpose."""
    return nn.Sequential(
        nn.Linear(inputs, outputs), nn.LeakyReLU(0.1), nn.Dropout(dropout)
    )
