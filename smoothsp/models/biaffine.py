"""Biaffine network of a dependency parser: scores of arcs, siblings and labels."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Batch, Vocabulary
from smoothsp.models.word_vectors import ParserSizes, WordVectors, make_view
from smoothsp.oracles import (
    ProjectiveDependencies,
    SiblingDependencies,
    SpanningTree,
)

__all__ = ["ROOT", "SIBLING", "STRUCTURES", "Biaffine", "Trees"]

ROOT = "root"
SIBLING = "sibling"
STRUCTURES = ("spanning-tree", "projective", SIBLING)
Trees = ProjectiveDependencies | SiblingDependencies | SpanningTree


class Biaffine(nn.Module):
    """Structures over dependency trees, and label scores of given arcs.

    An arc from head i to modifier j has the score ``h_i W m_j + u h_i``, where h and m
    are two views of the word vectors. The root has a learned vector. Siblings r and m,
    adjacent modifiers of a head h on one side, add ``sum_d a_hd b_rd c_md``, with three
    more views a, b and c.

    Source: Dozat and Manning, "Deep Biaffine Attention for Neural Dependency Parsing"
    (2017), equations 4 to 9. Scores of siblings: Wang, Huang and Tu, "Second-Order
    Semantic Dependency Parsing with End-to-End Neural Networks" (2019).

    Parameters
    ----------
    vocabulary
        Vocabulary of the embedding tables.
    labels
        Labels of arcs. Exactly the arc from the root has a label that begins with
        ``root``.
    sizes
        Sizes of the layers.
    structure
        Type of trees: ``"spanning-tree"``, ``"projective"`` or ``"sibling"``.
    encoder
        Pretrained encoder, whose vectors are appended to the embeddings.
    """

    at_root: Tensor

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        sizes: ParserSizes | None = None,
        structure: str = STRUCTURES[0],
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes = sizes or ParserSizes()
        self.structure = structure
        self.words = WordVectors(vocabulary, sizes, encoder)
        size, drop, L = self.words.size, sizes.dropout, len(labels)
        self.root = nn.Parameter(torch.randn(size) * 0.1)
        self.head = make_view(size, sizes.arc, drop)
        self.modifier = make_view(size, sizes.arc, drop)
        self.label_head = make_view(size, sizes.label, drop)
        self.label_modifier = make_view(size, sizes.label, drop)
        self.arc = nn.Linear(sizes.arc, sizes.arc)
        self.label = nn.Parameter(torch.zeros(L, sizes.label + 1, sizes.label + 1))
        nn.init.zeros_(self.arc.weight)
        nn.init.zeros_(self.arc.bias)
        self.siblings: nn.ModuleList | None = None
        if structure == SIBLING:
            views = [make_view(size, sizes.sibling, drop) for _ in range(3)]
            self.siblings = nn.ModuleList(views)
        at_root = torch.tensor([label.split(":")[0] == ROOT for label in labels])
        self.register_buffer("at_root", at_root, persistent=False)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.root.device

    @property
    def encoder(self) -> Encoder | None:
        """The pretrained encoder, or None."""
        return self.words.encoder

    def forward(self, batch: Batch) -> Tensor:
        """Return vectors ``(batch, 1 + n, size)`` of the root and the words."""
        vectors = self.words(batch.to(self.device))
        return torch.cat([self.root.expand(len(vectors), 1, -1), vectors], 1)

    def trees(
        self, vectors: Tensor, lengths: Tensor, structure: str | None = None
    ) -> Trees:
        """Build the structure over trees with a single root, from word vectors.

        ``structure`` overrides that of the network; ``"sibling"`` needs a network that
        was built with it.
        """
        # h_i (W m_j + u): the bias u of the linear map gives the score u h_i of a head.
        arcs = self.head(vectors) @ self.arc(self.modifier(vectors)).mT
        lengths = lengths.to(arcs.device)
        structure = structure or self.structure
        if structure == "projective":
            return ProjectiveDependencies(arcs, lengths=lengths, single_root=True)
        if structure == "spanning-tree":
            return SpanningTree(arcs, lengths=lengths, single_root=True)
        assert self.siblings is not None
        views = (view(vectors) for view in self.siblings)
        siblings = torch.einsum("bhd,brd,bmd->bhrm", *views)
        return SiblingDependencies(arcs, siblings, lengths=lengths, single_root=True)

    def labels(self, vectors: Tensor, heads: Tensor) -> Tensor:
        """Return label scores ``(N, L)`` of the arcs to all words whose head is not -1.

        Biaffine: a constant 1 is appended to both views, for linear terms and a bias.
        """
        row, word = (heads >= 0).nonzero(as_tuple=True)
        head = F.pad(self.label_head(vectors)[row, heads[row, word]], (0, 1), value=1.0)
        modifier = F.pad(self.label_modifier(vectors)[row, word + 1], (0, 1), value=1.0)
        scores = torch.einsum("ni,lij,nj->nl", head, self.label, modifier)
        from_root = (heads[row, word] == 0)[:, None]
        return scores.masked_fill(from_root != self.at_root, -torch.inf)
