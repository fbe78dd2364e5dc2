"""Warm-started SparseMAP of chains: searches continue from their last mixtures."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.combinatorial import sparsemap_chains
from smoothsp._kernels.threads.ranges import run_rows

# Initial number of slots for active outputs.
_SLOTS = 16
# A gap below this multiple of eps times the largest score is rounding error.
_ROUNDINGS = 16


class ChainMixtures:
    """``Mixtures`` of a chain, with the searches of all rows in one compiled call.

    Parameters
    ----------
    chain
        Chain of all rows, float64 on the CPU.
    strength
        ``(batch,)`` float64, > 0.
    y
        Initial outputs ``(batch, time)``.
    """

    def __init__(self, chain: Any, strength: Tensor, y: Tensor) -> None:
        self.chain, self.strength = chain, strength.numpy()
        self._arrays = chain._buffers.arrays
        B, T, self._states = chain.emissions.shape
        # emissions plus costs, as the kernel takes them
        self._emissions = self._arrays[0].copy()
        self.rows = torch.arange(B, device="cpu")
        self._outputs = np.full((B, _SLOTS, T), -1)
        self._outputs[:, 0] = y.numpy()
        self._weights = np.zeros((B, _SLOTS))
        self._weights[:, 0] = 1.0
        self._gap, self._counts = np.zeros(B), np.ones(B, np.int64)
        self._decodes = np.zeros(B, np.int64)
        self._scores: Any = None

    @property
    def decodes(self) -> Tensor:
        """``(batch,)``: number of decodes so far."""
        return torch.from_numpy(self._decodes)

    def restart(self, _: Any, rows: Tensor, cost: Tensor, strength: Tensor) -> None:
        """Set costs ``(n, size)`` and strengths ``(n,)`` of rows to search again."""
        self.rows, row_index = rows, rows.numpy()
        cost_table = cost.numpy().reshape(len(row_index), *self._emissions.shape[1:])
        self._emissions[row_index] = self._arrays[0][row_index] + cost_table
        self.strength[row_index] = strength.numpy()

    def run(self, max_decodes: int, add_last: bool = False) -> None:
        """Search ``rows``; rows that used all ``max_decodes`` remain in ``rows``."""
        row_index, C = self.rows.numpy(), self._weights.shape[1]
        if self._counts.max(initial=0) + max_decodes >= C:
            self._outputs = np.pad(self._outputs, ((0, 0), (0, C), (0, 0)))
            self._weights, C = np.pad(self._weights, ((0, 0), (0, C))), 2 * C
        before = self._decodes[row_index]
        order = row_index[np.argsort(-self._arrays[5][row_index], kind="stable")]
        rounding = _ROUNDINGS * np.finfo(np.float64).eps
        args = (self._emissions, *self._arrays[1:]), order, self.strength
        out = self._outputs, self._weights, self._gap, self._counts, self._decodes
        work = len(row_index) * (
            self.chain._buffers.inner_steps // len(self._gap) + C * C
        )
        arrays = *args, max_decodes, add_last, rounding, out
        run_rows(sparsemap_chains.sparsemap, len(row_index), 2 * work, *arrays)
        self.rows = self.rows[
            torch.from_numpy(self._decodes[row_index] - before == max_decodes)
        ]
        self._scores = None

    def marginals(self, rows: Tensor) -> Tensor:
        """Marginals ``(n, size)`` of the mixtures: total weight of each label."""
        row_index = rows.numpy()
        outputs, weights = self._outputs[row_index], self._weights[row_index][..., None]
        n, _, T = outputs.shape
        used = np.arange(T) * self._states + np.maximum(outputs, 0)
        slot_weights = np.where(outputs >= 0, weights, 0.0)
        result = torch.zeros(n, T * self._states, dtype=torch.float64, device="cpu")
        flat = [torch.from_numpy(x.reshape(n, -1)) for x in (used, slot_weights)]
        return result.scatter_add_(1, *flat)

    def active_outputs(self, row: int) -> tuple[Any, Any, Any, Any]:
        """Slots, weights, scores without cost, and parts of a row's active outputs."""
        if self._scores is None:
            is_active = self._weights > 0
            best = self._outputs[np.arange(len(is_active)), self._weights.argmax(1)]
            shown = np.where(is_active[..., None], self._outputs, best[:, None])
            self._scores = self.chain.score(torch.from_numpy(shown)).numpy()
        slots = np.flatnonzero(self._weights[row])
        labels = self._outputs[row, slots][..., None] == np.arange(self._states)
        parts = labels.reshape(len(slots), -1).astype(np.float64)
        return slots, self._weights[row, slots], self._scores[row, slots], parts

    def set_weights(self, row: int, slots: Any, weights: Any) -> None:
        """Replace the weights of a row."""
        self._weights[row] = 0.0
        self._weights[row, slots] = weights
        self._counts[row] = (weights > 0).sum()

    def result(self) -> tuple[Tensor, Tensor, Tensor, None]:
        """Outputs, weights and parts, heaviest first, as ``Mixtures`` returns them."""
        k = int(self._counts.max(initial=1))
        order = np.argsort(-self._weights, axis=1, kind="stable")[:, :k]
        rows = np.arange(len(order))[:, None]
        weights = self._weights[rows, order]
        shown = np.where(weights > 0, order, order[:, :1])
        outputs = torch.from_numpy(self._outputs[rows, shown])
        labels = torch.arange(self._states, device="cpu")
        parts = (outputs.unsqueeze(3) == labels).to(torch.float64)
        return outputs, torch.from_numpy(weights), parts, None
