"""The network of the dependency parser: scores of arcs and of their labels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsing import conllu
from parsing.conllu import Sentence
from parsing.words import Sizes, WordVectors, layer
from smoothsp.models.features import Batch, Corpus, Vocabulary
from smoothsp.oracles import ProjectiveDependencies, SpanningTree

STRUCTURES: dict[str, Callable] = {
    "projective": ProjectiveDependencies,
    "spanning-tree": SpanningTree,
}


class Biaffine(nn.Module):
    """A score of each arc and, for given arcs, of each label.

    An arc from head i to modifier j has the score ``h_i W m_j + u h_i``, with h and m
    two views of the same vectors of words; the root has a vector of its own.

    Source: Dozat and Manning, "Deep Biaffine Attention for Neural Dependency Parsing"
    (2017), equations 4 to 9.
    """

    at_root: Tensor

    def __init__(
        self, vocabulary: Vocabulary, labels: Sequence[str], sizes: Sizes
    ) -> None:
        super().__init__()
        self.words = WordVectors(vocabulary, sizes)
        size, drop, L = self.words.size, sizes.dropout, len(labels)
        self.root = nn.Parameter(torch.randn(size) * 0.1)
        self.head = layer(size, sizes.arc, drop)
        self.modifier = layer(size, sizes.arc, drop)
        self.label_head = layer(size, sizes.label, drop)
        self.label_modifier = layer(size, sizes.label, drop)
        self.arc = nn.Linear(sizes.arc, sizes.arc)
        self.label = nn.Parameter(torch.zeros(L, sizes.label + 1, sizes.label + 1))
        nn.init.zeros_(self.arc.weight)
        nn.init.zeros_(self.arc.bias)
        at_root = torch.tensor([label.split(":")[0] == conllu.ROOT for label in labels])
        self.register_buffer("at_root", at_root, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.root.device

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of arcs ``[B, n + 1, n + 1]``, and the vectors of root and words."""
        found = self.words(batch.to(self.device))
        root = self.root.expand(len(found), 1, -1)
        vectors = torch.cat([root, found], 1)
        # the bias of a linear map of modifiers is what a head scores by itself
        return self.head(vectors) @ self.arc(self.modifier(vectors)).mT, vectors

    def labels(self, vectors: Tensor, heads: Tensor) -> Tensor:
        """Scores ``[N, L]`` of the labels of arcs to all words whose head is not -1."""
        row, word = (heads >= 0).nonzero(as_tuple=True)
        head = F.pad(self.label_head(vectors)[row, heads[row, word]], (0, 1), value=1.0)
        modifier = F.pad(self.label_modifier(vectors)[row, word + 1], (0, 1), value=1.0)
        scores = torch.einsum("ni,lij,nj->nl", head, self.label, modifier)
        from_root = (heads[row, word] == 0)[:, None]
        return scores.masked_fill(from_root != self.at_root, -torch.inf)


def parse(
    model: Biaffine,
    vocabulary: Vocabulary,
    labels: Sequence[str],
    structure: Callable[..., Any],
    sentences: Sequence[Sentence],
) -> list[Sentence]:
    """The best tree of each sentence."""
    model.eval()
    corpus = Corpus(vocabulary, [s.words for s in sentences])
    found = list(sentences)
    with torch.no_grad():
        for numbers in corpus.in_order_of_length(32):
            batch = corpus.batch(numbers)
            arcs, vectors = model(batch)
            lengths = batch.mask.sum(1).to(arcs.device)
            trees = structure(arcs, lengths=lengths, single_root=True)
            heads = trees.decode()[1]
            names = iter(model.labels(vectors, heads).argmax(1).tolist())
            for number, row in zip(numbers.tolist(), heads.tolist(), strict=True):
                tree = [head for head in row if head >= 0]
                called = [labels[next(names)] for _ in tree]
                found[number] = conllu.with_tree(sentences[number], tree, called)
    return found
