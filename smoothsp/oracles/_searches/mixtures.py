"""The active-set search for sparse mixtures of the outputs of any structure."""

from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.combinatorial import sparsemap_qp
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference.parts import part_counts

# Slots for outputs at first; there are twice as many when all are full.
_SLOTS = 8
# Roundings of the largest score that a gap may consist of.
ROUNDINGS = 16


class Mixtures:
    """Outputs found so far, in slots, and the rows whose mixture is not the best yet.

    A search maximises ``<s + cost, p> - strength / 2 |A p|^2`` for each row, with a
    cost of each part. ``restart`` changes the cost and the strength, and keeps the
    outputs that have weight. Scores, and so gaps, are in units of the strength.

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
        self.live, self.strength = structure, strength
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
        self.plain = torch.zeros(B, _SLOTS, dtype=torch.float64, device=device)
        # what the kernel reads and writes is on the CPU
        self.products = torch.zeros(
            B, _SLOTS, _SLOTS, dtype=torch.float64, device="cpu"
        )
        self.scores = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.weights = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.active = torch.zeros(B, _SLOTS, dtype=torch.bool, device="cpu")
        self._add(y, *self._score(y, parts))

    def restart(
        self, structure: Any, rows: Tensor, cost: Tensor, strength: Tensor
    ) -> None:
        """Search these rows again, with costs ``(n, size)`` and strengths ``(n,)``."""
        self.live, self.rows = structure, rows
        self.cost[rows], self.strength[rows] = cost, strength
        paid = (self._parts() @ cost.unsqueeze(2)).squeeze(2)
        scores = (self.plain[rows] + paid) / strength[:, None]
        self.scores[rows.cpu()] = scores.cpu()
        self._solve(torch.full((len(rows),), -1, device="cpu"))

    def run(self, max_decodes: int, add_last: bool = False) -> None:
        """Decode until no output is better than the mixture, at most ``most`` times.

        The output of the last call is added if ``last``, and otherwise used for the
        gap alone. Rows that are not at their maximum stay in ``rows``.
        """
        for asked in range(1, max_decodes + 1):
            if len(self.rows) == 0:
                return
            strength = self.strength[self.rows]
            weights = self.weights[self.rows.cpu()].to(self.rows.device)
            scores = self.scores[self.rows.cpu()].to(self.rows.device)
            mixture = (weights.unsqueeze(1) @ self._parts()).squeeze(1)
            cost = (self.cost[self.rows] - strength[:, None] * mixture).to(self.dtype)
            cost = cost.reshape(len(cost), *self.shape)
            found, y = self.live.augment(cost).decode()
            self.decodes[self.rows] += 1
            plain, score, parts = self._score(y, part_counts(self.live, y), found, cost)
            value = score - (mixture * parts).sum(1)
            now = (weights * scores).sum(1) - mixture.square().sum(1)
            gap = (value - now).clamp(min=0)
            self.gap[self.rows] = strength * gap
            size = 1 + scores.abs().amax(1)
            rounding = ROUNDINGS * torch.finfo(self.dtype).eps
            # an output that has weight already is no better: what is left is rounding
            better = (gap > rounding * size) & ~self._has_weight(y)
            if asked == max_decodes and not add_last:
                return
            if not bool(better.all()):
                self.rows, self.live = self.rows[better], self.live.select(better)
                y, plain = y[better], plain[better]
                score, parts = score[better], parts[better]
            if len(y):
                self._add(y, plain, score, parts)

    def active_outputs(self, row: int) -> tuple[Any, Any, Any, Any]:
        """Slots, weights, scores without cost and parts of a row, as arrays."""
        slots = self.active[row].nonzero().squeeze(1)
        there = slots.to(self.parts.device)
        found = self.plain[row, there], self.parts[row, there]
        plain, parts = (x.cpu().numpy() for x in found)
        return slots.numpy(), self.weights[row, slots].numpy(), plain, parts

    def set_weights(self, row: int, slots: Any, weights: Any) -> None:
        """Change the weights of a row."""
        self.active[row], self.weights[row] = False, 0.0
        self.active[row, slots] = True
        self.weights[row, slots] = torch.from_numpy(weights)

    def marginals(self, rows: Tensor) -> Tensor:
        """Share ``(n, size)`` of the mixture that uses each part."""
        weights = self.weights[rows.cpu()].to(rows.device)
        whole = len(rows) == len(self.parts)
        parts = self.parts if whole else self.parts[rows]
        return (weights.unsqueeze(1) @ parts).squeeze(1)

    def result(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs, weights, parts and products, heaviest first.

        ``(batch, k, ...)``, float64 ``(batch, k)``, ``(batch, k, *shape)`` and float64
        ``(batch, k, k)`` on the CPU. Rows with fewer outputs repeat the first.
        """
        order = self.weights.argsort(dim=1, descending=True, stable=True)
        k = max(int(self.active.sum(1).amax()), 1) if len(order) else 1
        order = order[:, :k]
        at = torch.arange(len(order), device="cpu")[:, None]
        active = self.active[at, order]
        products = self.products[at[:, :, None], order[:, :, None], order[:, None, :]]
        # rows with fewer outputs show their first again
        shown = torch.where(active, order, order[:, :1]).to(self.outputs.device)
        rows = at.to(shown.device)
        outputs, parts = self.outputs[rows, shown], self.parts[rows, shown]
        parts = parts.to(self.dtype).reshape(*shown.shape, *self.shape)
        return outputs, self.weights[at, order].to(shown.device), parts, products

    def _parts(self) -> Tensor:
        """Parts of the outputs of the rows, without a copy while all are searched."""
        whole = len(self.rows) == len(self.parts)
        return self.parts if whole else self.parts[self.rows]

    def _score(
        self,
        y: Tensor,
        parts: Tensor,
        found: Tensor | None = None,
        paid: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores without the cost, those with it in units of the strength, parts.

        In float64 the first are what was found, with a cost, less what was paid.
        """
        used = parts.flatten(1).double()
        if found is None or paid is None or found.dtype != torch.float64:
            plain = self.live.score(y).detach().double()
        else:
            plain = found.detach() - (used * paid.flatten(1)).sum(1)
        cost = (used * self.cost[self.rows]).sum(1)
        scores = (plain + cost) / self.strength[self.rows]
        if not bool(scores.isfinite().all()):
            least = self.strength.min().item()
            raise ValueError(
                "strength: expected scores / strength that fit float64, got strength "
                f"= {least:.3g}; use a larger one or smaller scores"
            )
        return plain, scores, used

    def _has_weight(self, y: Tensor) -> Tensor:
        """Whether y is among the outputs of its row that have weight."""
        same = self.outputs[self.rows] == y.unsqueeze(1)
        same = same.reshape(*same.shape[:2], -1).all(2)
        return (same & self.active[self.rows.cpu()].to(y.device)).any(1)

    def _add(self, y: Tensor, plain: Tensor, score: Tensor, used: Tensor) -> None:
        """Put an output of each row into a free slot, and find the weights anew."""
        rows = self.rows.cpu()
        if bool(self.active[rows].all(1).any()):
            self._grow()
        slot = (~self.active[rows]).to(torch.int8).argmax(1)
        there = slot.to(y.device)
        self.outputs[self.rows, there], self.parts[self.rows, there] = y, used
        self.plain[self.rows, there] = plain
        self.scores[rows, slot] = score.cpu()
        products = (self._parts() @ used.unsqueeze(2)).squeeze(2).cpu()
        self.products[rows, slot], self.products[rows, :, slot] = products, products
        self._solve(slot)

    def _solve(self, slot: Tensor) -> None:
        """Find the weights of the rows, with an output added in ``slot``; -1: none."""
        new = torch.full((len(self.active),), -2, device="cpu")
        new[self.rows.cpu()] = slot
        arrays = (self.products, self.scores, new, self.weights, self.active)
        work = len(slot) * self.active.shape[1] ** 3
        numbers = [x.numpy() for x in arrays]
        run_rows(sparsemap_qp.add_output, len(new), work, *numbers)

    def _grow(self) -> None:
        """Make twice the slots."""
        for name in ("outputs", "parts", "plain", "scores", "weights", "active"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, torch.zeros_like(old)], 1))
        more = self.products.shape[1]
        pad = torch.nn.functional.pad(self.products, (0, more, 0, more))
        self.products = pad.contiguous()
