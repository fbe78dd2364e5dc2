"""Active-set method for SparseMAP: sparse mixtures of outputs of any structure.

Source: Niculae et al., "SparseMAP: Differentiable Sparse Structured Inference" (2018),
the active-set method.
"""

from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.combinatorial import sparsemap_qp
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference.parts import part_counts

# Initial number of slots for outputs; it doubles when all are full.
_SLOTS = 8
# A gap up to this number of roundings of the largest score counts as 0.
ROUNDINGS = 16


class Mixtures:
    """Active outputs of each row in slots, their weights, and the unfinished rows.

    Maximises ``<s + A' cost, p> - strength / 2 |A p|^2`` over the simplex for each row;
    A holds the parts of the outputs. ``restart`` changes cost and strength and keeps
    the active outputs. Scores are in units of the strength, which makes the quadratic
    term 1/2.

    Parameters
    ----------
    structure
        Structure of all rows.
    strength
        ``(batch,)`` float64, > 0.
    y
        Outputs ``(batch, ...)`` to start from.

    Attributes
    ----------
    decodes
        ``(batch,)`` int64: number of ``decode`` calls of the search for each row.
    """

    def __init__(self, structure: Any, strength: Tensor, y: Tensor) -> None:
        self.structure, self.strength = structure, strength
        parts = part_counts(structure, y)
        B, device = len(y), y.device
        self.rows = torch.arange(B, device=device)
        self.decodes = torch.zeros(B, dtype=torch.int64, device=device)
        self.outputs = y.new_zeros((B, _SLOTS, *y.shape[1:]))
        self.shape, self.dtype = parts.shape[1:], parts.dtype
        size = self.shape.numel()
        self.cost = torch.zeros(B, size, dtype=torch.float64, device=device)
        self.parts = torch.zeros(B, _SLOTS, size, dtype=torch.float64, device=device)
        self.gap = torch.full((B,), torch.inf, dtype=torch.float64, device=device)
        # scores without the cost
        self.base_scores = torch.zeros(B, _SLOTS, dtype=torch.float64, device=device)
        # state of the quadratic programme on the CPU, where its kernel runs
        self.gram = torch.zeros(B, _SLOTS, _SLOTS, dtype=torch.float64, device="cpu")
        self.scores = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.weights = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.active = torch.zeros(B, _SLOTS, dtype=torch.bool, device="cpu")
        self._add_outputs(y, *self._score_outputs(y, parts))

    def restart(
        self, structure: Any, rows: Tensor, cost: Tensor, strength: Tensor
    ) -> None:
        """Restart these rows with costs ``(n, size)`` and strengths ``(n,)``."""
        self.structure, self.rows = structure, rows
        self.cost[rows], self.strength[rows] = cost, strength
        costs = (self._row_parts() @ cost.unsqueeze(2)).squeeze(2)
        scores = (self.base_scores[rows] + costs) / strength[:, None]
        self.scores[rows.cpu()] = scores.cpu()
        self._solve_weights(torch.full((len(rows),), -1, device="cpu"))

    def run(self, max_decodes: int, add_last: bool = False) -> None:
        """Add best outputs of the gradient until the gap is 0 or decodes run out.

        The output of the last decode is added if ``add_last``; otherwise it only
        updates the gap. Rows that are not at their maximum stay in ``rows``.
        """
        for count in range(1, max_decodes + 1):
            if len(self.rows) == 0:
                return
            strength = self.strength[self.rows]
            weights = self.weights[self.rows.cpu()].to(self.rows.device)
            scores = self.scores[self.rows.cpu()].to(self.rows.device)
            mixture = (weights.unsqueeze(1) @ self._row_parts()).squeeze(1)
            cost = (self.cost[self.rows] - strength[:, None] * mixture).to(self.dtype)
            # the gradient of the objective is s + cost - strength A p
            cost = cost.reshape(len(cost), *self.shape)
            augmented, y = self.structure.augment(cost).decode()
            self.decodes[self.rows] += 1
            base_scores, score, parts = self._score_outputs(
                y, part_counts(self.structure, y), augmented, cost
            )
            output_value = score - (mixture * parts).sum(1)
            mixture_value = (weights * scores).sum(1) - mixture.square().sum(1)
            gap = (output_value - mixture_value).clamp(min=0)
            self.gap[self.rows] = strength * gap
            magnitude = 1 + scores.abs().amax(1)
            rounding = ROUNDINGS * torch.finfo(self.dtype).eps
            # if the best output is active already, the gap is rounding error
            better = (gap > rounding * magnitude) & ~self._is_active_output(y)
            if count == max_decodes and not add_last:
                return
            if not bool(better.all()):
                self.rows, self.structure = (
                    self.rows[better],
                    self.structure.select(better),
                )
                y, base_scores = y[better], base_scores[better]
                score, parts = score[better], parts[better]
            if len(y):
                self._add_outputs(y, base_scores, score, parts)

    def active_outputs(self, row: int) -> tuple[Any, Any, Any, Any]:
        """Slots, weights, scores without cost and parts of a row, as arrays."""
        slots = self.active[row].nonzero().squeeze(1)
        device_slots = slots.to(self.parts.device)
        tensors = self.base_scores[row, device_slots], self.parts[row, device_slots]
        base_scores, parts = (x.cpu().numpy() for x in tensors)
        return slots.numpy(), self.weights[row, slots].numpy(), base_scores, parts

    def set_weights(self, row: int, slots: Any, weights: Any) -> None:
        """Set the weights of a row; other slots become inactive."""
        self.active[row], self.weights[row] = False, 0.0
        self.active[row, slots] = True
        self.weights[row, slots] = torch.from_numpy(weights)

    def marginals(self, rows: Tensor) -> Tensor:
        """Marginals ``A p`` of the mixtures of these rows, ``(n, size)``."""
        weights = self.weights[rows.cpu()].to(rows.device)
        is_all_rows = len(rows) == len(self.parts)
        parts = self.parts if is_all_rows else self.parts[rows]
        return (weights.unsqueeze(1) @ parts).squeeze(1)

    def result(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs, weights, parts and Gram matrix, by decreasing weight.

        Shapes are ``(batch, k, ...)``, ``(batch, k)`` float64, ``(batch, k, *shape)``,
        and ``(batch, k, k)`` float64 on the CPU. Rows with fewer than k active outputs
        repeat the first one, with weight 0.
        """
        order = self.weights.argsort(dim=1, descending=True, stable=True)
        k = max(int(self.active.sum(1).amax()), 1) if len(order) else 1
        order = order[:, :k]
        row_index = torch.arange(len(order), device="cpu")[:, None]
        active = self.active[row_index, order]
        gram = self.gram[row_index[:, :, None], order[:, :, None], order[:, None, :]]
        # a valid output in each slot, so that later scores need no mask
        slots = torch.where(active, order, order[:, :1]).to(self.outputs.device)
        rows = row_index.to(slots.device)
        outputs, parts = self.outputs[rows, slots], self.parts[rows, slots]
        parts = parts.to(self.dtype).reshape(*slots.shape, *self.shape)
        return outputs, self.weights[row_index, order].to(slots.device), parts, gram

    def _row_parts(self) -> Tensor:
        """Parts of the outputs of ``rows``; a view as long as no row has finished."""
        is_all_rows = len(self.rows) == len(self.parts)
        return self.parts if is_all_rows else self.parts[self.rows]

    def _score_outputs(
        self,
        y: Tensor,
        parts: Tensor,
        augmented: Tensor | None = None,
        cost: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores without cost, scores with cost over the strength, and parts.

        In float64 the score without cost is the augmented score less the cost, which
        saves a call of ``score``.
        """
        used = parts.flatten(1).double()
        if augmented is None or cost is None or augmented.dtype != torch.float64:
            base_scores = self.structure.score(y).detach().double()
        else:
            base_scores = augmented.detach() - (used * cost.flatten(1)).sum(1)
        costs = (used * self.cost[self.rows]).sum(1)
        scores = (base_scores + costs) / self.strength[self.rows]
        if not bool(scores.isfinite().all()):
            min_strength = self.strength.min().item()
            raise ValueError(
                "strength: expected scores / strength that fit float64, got strength "
                f"= {min_strength:.3g}; use a larger one or smaller scores"
            )
        return base_scores, scores, used

    def _is_active_output(self, y: Tensor) -> Tensor:
        """Return True where y is an active output of its row, ``(n,)``."""
        same = self.outputs[self.rows] == y.unsqueeze(1)
        same = same.reshape(*same.shape[:2], -1).all(2)
        return (same & self.active[self.rows.cpu()].to(y.device)).any(1)

    def _add_outputs(
        self, y: Tensor, base_score: Tensor, score: Tensor, parts: Tensor
    ) -> None:
        """Put an output of each row into a free slot, and solve for the weights."""
        rows = self.rows.cpu()
        if bool(self.active[rows].all(1).any()):
            self._double_slots()
        slot = (~self.active[rows]).to(torch.int8).argmax(1)
        device_slot = slot.to(y.device)
        self.outputs[self.rows, device_slot], self.parts[self.rows, device_slot] = (
            y,
            parts,
        )
        self.base_scores[self.rows, device_slot] = base_score
        self.scores[rows, slot] = score.cpu()
        inner_products = (self._row_parts() @ parts.unsqueeze(2)).squeeze(2).cpu()
        self.gram[rows, slot], self.gram[rows, :, slot] = inner_products, inner_products
        self._solve_weights(slot)

    def _solve_weights(self, slot: Tensor) -> None:
        """Solve the quadratic programme of ``rows``, with the output in ``slot`` new.

        -1: no new output. The kernel skips rows with -2, those not in ``rows``.
        """
        new_slots = torch.full((len(self.active),), -2, device="cpu")
        new_slots[self.rows.cpu()] = slot
        arrays = (self.gram, self.scores, new_slots, self.weights, self.active)
        work = len(slot) * self.active.shape[1] ** 3
        numbers = [x.numpy() for x in arrays]
        run_rows(sparsemap_qp.add_output, len(new_slots), work, *numbers)

    def _double_slots(self) -> None:
        """Double the number of slots."""
        for name in ("outputs", "parts", "base_scores", "scores", "weights", "active"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, torch.zeros_like(old)], 1))
        num_slots = self.gram.shape[1]
        pad = torch.nn.functional.pad(self.gram, (0, num_slots, 0, num_slots))
        self.gram = pad.contiguous()
