"""Small ragged batches of structures that are circuits, for slow ways to answer."""

from collections.abc import Callable

import torch
from torch import Tensor

from smoothsp.oracles import CTC, ProjectiveDependencies, SemiMarkov, SpanTree

Draw = Callable[..., Tensor]


def projective(draw: Draw) -> ProjectiveDependencies:
    return ProjectiveDependencies(draw(4, 4, 4), lengths=torch.tensor([2, 0, 3, 1]))


def span_tree(draw: Draw) -> SpanTree:
    return SpanTree(draw(3, 3, 3, 2), lengths=torch.tensor([3, 1, 2]))


def semi_markov(draw: Draw) -> SemiMarkov:
    potentials = draw(3, 4, 2, 2), draw(2, 2), draw(2)
    return SemiMarkov(*potentials, lengths=torch.tensor([1, 4, 0]))


def ctc(draw: Draw) -> CTC:
    targets = torch.tensor([[1, 2], [1, 1], [2, 0], [0, 0]])
    sizes, lengths = torch.tensor([2, 2, 1, 0]), torch.tensor([4, 3, 2, 1])
    return CTC(draw(4, 4, 3), targets, lengths=lengths, target_lengths=sizes)


BUILDERS = (projective, span_tree, semi_markov, ctc)


def small(build: Callable[[Draw], object], dtype: torch.dtype, spread: float = 1.0):
    """Leaves of such a batch, and what is asked."""
    generator = torch.Generator().manual_seed(0)
    structure = build(
        lambda *shape: (spread * torch.randn(shape, generator=generator)).to(dtype)
    )
    return structure._leaves(), structure._circuit_batch
