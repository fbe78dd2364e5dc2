"""Word vectors in context: embeddings, an encoder, bidirectional LSTMs."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Batch, Vocabulary
from smoothsp.models.network import WordEmbeddings, run_bidirectional

__all__ = ["ParserSizes", "WordVectors", "make_view"]


@dataclass(frozen=True)
class ParserSizes:
    """Layer sizes and dropout of a parser."""

    word: int = 100
    """Dimension of word vectors."""
    hidden: int = 200
    """Units of an LSTM in each direction."""
    layers: int = 2
    """Number of stacked bidirectional LSTMs."""
    arc: int = 200
    """Dimension of views of words for scores of arcs or spans."""
    label: int = 64
    """Dimension of views for labels of arcs."""
    sibling: int = 64
    """Dimension of views for pairs of siblings."""
    dropout: float = 0.3
    """Dropout rate."""


class WordVectors(WordEmbeddings):
    """Embeddings with encoder vectors if present, then bidirectional LSTMs."""

    def __init__(
        self, vocabulary: Vocabulary, sizes: ParserSizes, encoder: Encoder | None = None
    ) -> None:
        super().__init__(vocabulary, sizes.word, 0.3)
        self.dropout = sizes.dropout
        self.encoder = encoder
        size = self.columns + (encoder.size if encoder else 0)
        self.layers = nn.ModuleList()
        for _ in range(sizes.layers):
            lstms = [nn.LSTM(size, sizes.hidden, batch_first=True) for _ in range(2)]
            self.layers.append(nn.ModuleList(lstms))
            size = 2 * sizes.hidden
        self.size = size

    def forward(self, batch: Batch) -> Tensor:
        """Return vectors ``(batch, time, size)``; arbitrary beyond a sentence."""
        context = None
        if self.encoder is not None and batch.subwords is not None:
            context = self.encoder(batch.subwords)
        vectors = self.embed(batch, context)
        for lstms in self.layers:
            vectors = F.dropout(vectors, self.dropout, self.training)
            vectors = run_bidirectional(lstms[0], lstms[1], vectors, batch.mask)  # type: ignore[index]
        return F.dropout(vectors, self.dropout, self.training)


def make_view(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    """Build a layer that maps word vectors to a view for one type of scores."""
    return nn.Sequential(
        nn.Linear(inputs, outputs), nn.LeakyReLU(0.1), nn.Dropout(dropout)
    )
