"""Structures whose outputs are subsets of edges: 1 if chosen, 0 if not, -1 padding."""

import torch
from jaxtyping import Int
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles._searches.structure import SearchStructure


class EdgeSubset(SearchStructure):
    """A search over sets of edges with scores ``(batch, E)``, its only potentials.

    Attributes
    ----------
    index
        ``(batch, E, 2)``: the nodes of each edge, -1 for edges that a row lacks.
    """

    index: Tensor
    _label_counts_width = 2
    # True if no row has padding: masks need not be computed
    _all_edges_real = False

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of edges of each row."""
        return self._real_mask.sum(1)

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: index of the last edge of each row plus one."""
        E = self.shape[0]
        count = torch.arange(1, E + 1, device=self._first_potentials.device)
        # edges may be missing in the middle of a row: the last real one counts
        num_entries = torch.where(self._real_mask, count, 0)
        return (
            num_entries.amax(1, keepdim=True) if E else num_entries.sum(1, keepdim=True)
        )

    @property
    def _real_mask(self) -> Tensor:
        return self.index[..., 0] >= 0

    def _usable_parts(self, name: str) -> Tensor | None:
        return None if self._all_edges_real else self._real_mask

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        return (
            y if self._all_edges_real else y.masked_fill(~self._real_mask[:, None], -1)
        )

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        chosen = y == 1
        if not self._all_edges_real:
            chosen = chosen & self._real_mask[:, None]
        return torch.where(chosen, torch.arange(self.shape[0], device=y.device), -1)

    def _gather_entries(self, used: Tensor) -> Tensor:
        # entry e is used by edge e alone: a mask does, without a gather
        return torch.where(used >= 0, self._first_potentials[:, None], 0).double()


def as_edges_and_index(
    name: str, edges: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Validate scores ``(batch, E)`` and nodes ``(E, 2)`` or ``(batch, E, 2)``."""
    edges = checks.as_potentials(name, edges)
    if edges.dim() != 2:
        raise ValueError(f"{name}: expected (batch, E), got {tuple(edges.shape)}")
    B, E = edges.shape
    index = checks.as_int64("index", index, edges.device)
    if tuple(index.shape) not in ((E, 2), (B, E, 2)):
        raise ValueError(
            f"index: expected (E, 2) = ({E}, 2) or (batch, E, 2) = ({B}, {E}, 2), "
            f"got {tuple(index.shape)}"
        )
    return edges, index
