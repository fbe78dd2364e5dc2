"""The truth by enumeration: all outputs of a row, their scores, and what follows.

Plain Python and torch; nothing of smoothsp is imported. A case holds the raw arguments
of a structure, so that the truth reads what the user passed and not what was stored.

B batch, T time, S states, M candidates, N outputs of one row.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """All outputs of one row: -1 where nothing is labelled, -inf where forbidden."""

    outputs: Tensor  # [N, T] or [N]
    scores: Tensor  # [N]
    nodes: Tensor  # [N, T, S] or [N, M], 1 where the output uses the part
    edges: Tensor | None = None  # [N, T - 1, S, S]

    @property
    def probabilities(self) -> Tensor:
        return torch.softmax(self.scores, 0)

    def maximum(self) -> Tensor:
        return self.scores.max()

    def count(self) -> int:
        return int((self.scores > -math.inf).sum())

    def topk(self, k: int) -> Tensor:
        """Return the k best scores, sorted, filled with -inf."""
        best = self.scores.sort(descending=True).values[:k]
        return torch.cat([best, best.new_full((k - len(best),), -math.inf)])

    def log_partition(self) -> Tensor:
        return torch.logsumexp(self.scores, 0)

    def marginals(self) -> Tensor:
        return torch.tensordot(self.probabilities, self.nodes, 1)

    def edge_marginals(self) -> Tensor:
        return torch.tensordot(self.probabilities, self.edges, 1)

    def entropy(self) -> Tensor:
        return torch.special.entr(self.probabilities).sum()

    def cost(self, cost: Tensor) -> Tensor:
        """Cost of each output, from the cost of each part: [T, S] or [M] to [N]."""
        return (self.nodes * torch.where(self.nodes > 0, cost, 0.0)).flatten(1).sum(1)

    def index(self, y: Tensor) -> int:
        """Return the place of ``y`` among the outputs; it has to be one, once."""
        same = (self.outputs == y).reshape(len(self.outputs), -1).all(1)
        (place,) = same.nonzero().flatten().tolist()
        return place


class Case:
    """What both cases share: rows one by one, and potentials as leaves of autograd."""

    def __iter__(self) -> Iterator[Row]:
        return (self.row(b) for b in range(len(self)))

    def potentials(self) -> dict[str, Tensor]:
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value
            for name, value in named.items()
            if value is not None and value.is_floating_point()
        }

    def replace(self, **changes: Tensor | None) -> "Case":
        return replace(self, **changes)

    def map(self, function: object) -> "Case":
        """Apply a function to every potential."""
        return self.replace(**{k: function(v) for k, v in self.potentials().items()})

    def leaves(self) -> "Case":
        """Return a copy whose potentials are leaves that ask for a gradient."""
        return self.map(lambda v: v.detach().clone().requires_grad_())

    def gradients(self) -> dict[str, Tensor]:
        """Return what backward left in each leaf, zero where it left nothing."""
        return {
            name: torch.zeros_like(v) if v.grad is None else v.grad
            for name, v in self.potentials().items()
        }


@dataclass(frozen=True)
class ChainCase(Case):
    """The arguments of a chain."""

    emissions: Tensor
    transitions: Tensor
    start: Tensor | None = None
    end: Tensor | None = None
    lengths: Tensor | None = None
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.emissions)

    @property
    def parts(self) -> Tensor:
        """What a cost is added to, [B, T, S]."""
        return self.emissions

    @property
    def real(self) -> Tensor:
        """True where there is a label, [B, T]."""
        B, T, _ = self.emissions.shape
        if self.mask is not None:
            return self.mask
        if self.lengths is not None:
            return torch.arange(T) < self.lengths[:, None]
        return torch.ones(B, T, dtype=torch.bool)

    def positions(self, b: int) -> list[int]:
        return self.real[b].nonzero().flatten().tolist()

    def into(self, b: int, t: int) -> Tensor:
        """Transitions into the position t, [S, S]."""
        shared = self.transitions.ndim == 2
        return self.transitions if shared else self.transitions[b, t - 1]

    def row(self, b: int) -> Row:
        _, T, S = self.emissions.shape
        positions = self.positions(b)
        product = list(itertools.product(range(S), repeat=len(positions)))
        N = len(product)
        y = torch.tensor(product, dtype=torch.int64).reshape(N, len(positions))
        every = torch.arange(N)
        outputs = torch.full((N, T), -1)
        scores = self.emissions.new_zeros(N)
        nodes = scores.new_zeros(N, T, S)
        edges = scores.new_zeros(N, T - 1, S, S)
        for i, t in enumerate(positions):
            outputs[:, t] = y[:, i]
            nodes[every, t, y[:, i]] = 1.0
            scores = scores + self.emissions[b, t][y[:, i]]
            if i > 0:
                scores = scores + self.into(b, t)[y[:, i - 1], y[:, i]]
                edges[every, t - 1, y[:, i - 1], y[:, i]] = 1.0
        if positions and self.start is not None:
            scores = scores + self.start[y[:, 0]]
        if positions and self.end is not None:
            scores = scores + self.end[y[:, -1]]
        return Row(outputs, scores, nodes, edges)


@dataclass(frozen=True)
class MulticlassCase(Case):
    """The arguments of a multiclass structure."""

    scores: Tensor
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def parts(self) -> Tensor:
        """What a cost is added to, [B, M]."""
        return self.scores

    @property
    def real(self) -> Tensor:
        if self.mask is not None:
            return self.mask
        return torch.ones(self.scores.shape, dtype=torch.bool)

    def row(self, b: int) -> Row:
        M = self.scores.shape[1]
        outputs = self.real[b].nonzero().flatten()
        if len(outputs) == 0:
            nothing = self.scores.new_zeros(1)
            return Row(torch.tensor([-1]), nothing, nothing.new_zeros(1, M))
        nodes = torch.nn.functional.one_hot(outputs, M).to(self.scores.dtype)
        return Row(outputs, self.scores[b][outputs], nodes)
