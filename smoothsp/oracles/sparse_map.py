"""SparseMAP: a sparse mixture of outputs from a regularised maximum."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp._kernels.searches import active_set
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain import sparse_mixtures
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.exact import Exact
from smoothsp.oracles._questions.numbers import LIMIT
from smoothsp.oracles._questions.parts import parts_of, require_parts, scores_of
from smoothsp.oracles._questions.read_only import ReadOnly
from smoothsp.oracles._questions.tracing import is_eager
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.protocols import Structure

# Slots for outputs at first; there are twice as many when all are full.
_SLOTS = 8
# Roundings of the largest score that a gap may consist of.
_ROUNDINGS = 16


class SparseMAP(ReadOnly):
    r"""A sparse mixture of outputs: the maximum regularised in the space of parts.

    .. math:: \max_{p \in \Delta} \sum_y p_y s(y)
        - \tfrac{\gamma}{2} \Big\| \sum_y p_y a(y) \Big\|^2

    ``a(y)`` is the indicator of the parts that y uses, among the first potentials. The
    best mixture ``sum_y p_y a(y)`` is unique, consists of few outputs, and is
    differentiable almost everywhere. It lies between the best output, which is not
    differentiable, and the marginals, which give weight to all outputs. The search only
    calls ``decode``, so any structure works.

    Parameters
    ----------
    structure
        Structure of a batch; all its potentials receive gradients.
    strength
        Regularisation gamma, > 0, in units of the score.
    max_outputs
        Maximum number of ``decode`` calls after the first, at least 1.

    Attributes
    ----------
    outputs
        ``(batch, k, ...)``: outputs with positive weight, largest first. A row with
        fewer than k repeats its first output.
    weights
        ``(batch, k)``, >= 0, of sum 1; 0 where there is no output. Differentiable.
    gap
        ``(batch,)`` float64: upper bound of the distance to the maximum. It is at
        rounding level unless ``max_outputs`` ended the search.

    Raises
    ------
    TypeError
        Under ``torch.compile`` or ``torch.func``: the search needs the values.

    Notes
    -----
    Active-set method. Each iteration decodes with the scores of parts reduced by gamma
    times their share of the mixture. It adds the output found, solves for the weights,
    and drops outputs of weight 0. The outputs with positive weight stay affinely
    independent. An iteration costs one ``decode`` of the unfinished rows and O(k^3) for
    the weights; k is at most the number of parts plus 1. Weights are piecewise linear
    in the scores, and derivatives of any order are those of the current piece. Where
    outputs tie exactly, several pieces meet, and one of them is used.

    For ``Multiclass`` the result is sparsemax, the projection onto the simplex.

    Source: Niculae, Martins, Blondel and Cardie, "SparseMAP: Differentiable Sparse
    Structured Inference" (2018), (4), sections 3.2 and 3.3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass, SparseMAP
    >>> sparse = SparseMAP(Multiclass(torch.tensor([[1.0, 0.5, -2.0]])))
    >>> sparse.marginals()
    tensor([[0.7500, 0.2500, 0.0000]])
    >>> sparse.outputs
    tensor([[0, 1]])
    """

    outputs: Tensor
    weights: Float[Tensor, "batch k"]
    gap: Float[Tensor, " batch"]

    def __init__(
        self, structure: Structure, *, strength: float = 1.0, max_outputs: int = 1000
    ) -> None:
        check_settings(strength, max_outputs)
        if not is_eager():
            raise TypeError(
                "structure: SparseMAP needs values, which torch.compile and "
                "torch.func do not provide; call it outside of them"
            )
        require_parts(structure)
        self.strength = float(strength)
        with torch.no_grad():
            self._piece = _search(structure, self.strength, max_outputs)
        self.outputs, self.gap = self._piece.outputs, self._piece.gap
        self._scores = scores_of(structure, self.outputs)
        scores = self._scores.value / self.strength
        # the values are the weights, derivatives those of the linear piece around them
        moved = _Moved.apply(scores - scores.detach(), self._piece)
        self.weights = self._piece.weights.to(scores) + moved

    def marginals(self) -> Float[Tensor, "batch ..."]:
        """Total weight of outputs that use each part, of the shape of a cost.

        Differentiable.
        """
        return self._piece.shares(self.weights)

    def maximum(self) -> Float[Tensor, " batch"]:
        """The regularised maximum, ``(batch,)``; its gradient is the mixture."""
        return self._mixed(self._scores.value)

    def _above(self, gold: Exact) -> Tensor:
        """``maximum()`` less the score of an output of each row."""
        return self._mixed(self._scores.less(gold.unsqueeze(1)))

    def _mixed(self, scores: Tensor) -> Tensor:
        products = self._piece.products().to(self.weights)
        # no matrix product, which autocast would compute in half precision
        squares = (products * self.weights.unsqueeze(1)).sum(2)
        return (self.weights * (scores - self.strength / 2 * squares)).sum(1)

    def __repr__(self) -> str:
        B, k = self.weights.shape
        return f"SparseMAP(batch={B}, outputs={k}, strength={self.strength})"


class _Piece:
    """Outputs with weight, around whose weights the solution is linear in the scores.

    Parameters
    ----------
    outputs, weights
        ``(batch, k, ...)`` and ``(batch, k)`` in float64, 0 where there is no output.
    gap
        ``(batch,)`` float64.
    """

    def __init__(self, outputs: Tensor, weights: Tensor, gap: Tensor) -> None:
        self.outputs, self.weights, self.gap = outputs, weights, gap

    def shares(self, weights: Tensor) -> Tensor:
        """Total weight of outputs that use each part."""
        raise NotImplementedError

    def products(self) -> Tensor:
        """Number of parts that two outputs share, ``(batch, k, k)`` float64."""
        raise NotImplementedError

    def moved(self, scores: Tensor) -> Tensor:
        """Tangents of the weights: a symmetric matrix times tangents of the scores."""
        if not bool(scores.any()):
            return torch.zeros_like(scores)
        given = scores.detach().cpu().double()
        found = torch.empty_like(given)
        B, k = given.shape
        active = (self.weights > 0).cpu()
        arrays = (self.products(), active, given, found)
        run_rows(active_set.move, B, B * k**3 // 6, *map(array, arrays))
        return found.to(scores)


class _PieceOfParts(_Piece):
    """Piece of the solution with the parts of each output, ``(batch, k, ...)``."""

    def __init__(
        self, found: tuple[Tensor, Tensor, Tensor], parts: Tensor, products: Tensor
    ) -> None:
        super().__init__(*found)
        self._parts, self._products = parts, products

    def shares(self, weights: Tensor) -> Tensor:
        shares = (weights.unsqueeze(2) * self._parts.flatten(2)).sum(1)
        return shares.reshape(len(shares), *self._parts.shape[2:])

    def products(self) -> Tensor:
        return self._products


class _PieceOfChains(_Piece):
    """Piece of the solution for chains, whose parts are their labels."""

    def __init__(self, found: tuple[Tensor, Tensor, Tensor], chain: Chain) -> None:
        super().__init__(*found)
        self._buffers = chain._buffers
        self._products: Tensor | None = None

    def shares(self, weights: Tensor) -> Tensor:
        return sparse_mixtures.shares_of(self._buffers, weights, self.outputs)

    def products(self) -> Tensor:
        if self._products is None:
            self._products = sparse_mixtures.products_of(self.outputs)
        return self._products


class _Moved(torch.autograd.Function):
    """The linear map of a piece, its own adjoint."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, piece: _Piece) -> Tensor:
        ctx.piece = piece
        return piece.moved(scores)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Moved.apply(grads[0], ctx.piece), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return _Moved.apply(tangents[0], ctx.piece)


def check_settings(strength: float, max_outputs: int) -> None:
    """Refuse arguments of ``SparseMAP`` that are none."""
    if isinstance(strength, bool) or not isinstance(strength, int | float):
        raise TypeError(f"strength: expected a number, got {type(strength).__name__}")
    if not 0 < strength < LIMIT:
        raise ValueError(
            f"strength: expected a positive number below 2^40 (1.1e12), got {strength}"
        )
    if isinstance(max_outputs, bool) or not isinstance(max_outputs, int):
        raise TypeError(f"max_outputs: expected an int, got {max_outputs!r}")
    if max_outputs < 1:
        raise ValueError(f"max_outputs: expected at least 1, got {max_outputs}")


def _search(structure: Structure, strength: float, most: int) -> _Piece:
    """The best mixture."""
    if isinstance(structure, Chain):
        rounding = _ROUNDINGS * torch.finfo(structure.emissions.dtype).eps
        given = structure._buffers, strength, most, rounding
        found = sparse_mixtures.mixtures_of(*given)
        if found is not None:
            return _PieceOfChains(found, structure)
    search = _Search(structure, strength)
    search.run(most)
    return search.result()


class _Search:
    """Outputs found so far, in slots, and the rows whose mixture is not the best yet.

    Scores, and so gaps, are in units of the strength.
    """

    def __init__(self, structure: Structure, strength: float) -> None:
        self.live, self.strength = structure, strength
        _, y = structure.decode()
        parts = parts_of(structure, y)
        B, device = len(y), y.device
        self.rows = torch.arange(B, device=device)
        self.outputs = y.new_zeros((B, _SLOTS, *y.shape[1:]))
        self.shape, self.dtype = parts.shape[1:], parts.dtype
        size = self.shape.numel()
        self.parts = torch.zeros(B, _SLOTS, size, dtype=torch.float64, device=device)
        self.gap = torch.full((B,), torch.inf, dtype=torch.float64, device=device)
        # what the kernel reads and writes is on the CPU
        self.products = torch.zeros(
            B, _SLOTS, _SLOTS, dtype=torch.float64, device="cpu"
        )
        self.scores = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.weights = torch.zeros(B, _SLOTS, dtype=torch.float64, device="cpu")
        self.active = torch.zeros(B, _SLOTS, dtype=torch.bool, device="cpu")
        self._add(y, self._score(y), parts)

    def run(self, most: int) -> None:
        """Ask for outputs until none is better than the mixture."""
        for asked in range(1, most + 1):
            if len(self.rows) == 0:
                return
            weights = self.weights[self.rows.cpu()].to(self.rows.device)
            scores = self.scores[self.rows.cpu()].to(self.rows.device)
            mixture = (weights.unsqueeze(1) @ self._parts()).squeeze(1)
            cost = (-self.strength * mixture).to(self.dtype)
            cost = cost.reshape(len(cost), *self.shape)
            _, y = self.live.augment(cost).decode()
            score, parts = self._score(y), parts_of(self.live, y)
            value = score - (mixture * parts.flatten(1)).sum(1)
            now = (weights * scores).sum(1) - mixture.square().sum(1)
            gap = (value - now).clamp(min=0)
            self.gap[self.rows] = self.strength * gap
            size = 1 + scores.abs().amax(1)
            rounding = _ROUNDINGS * torch.finfo(self.dtype).eps
            # an output that has weight already is no better: what is left is rounding
            better = (gap > rounding * size) & ~self._has_weight(y)
            if asked == most or not bool(better.any()):
                return
            if not bool(better.all()):
                self.rows, self.live = self.rows[better], self.live.select(better)
                y, score, parts = y[better], score[better], parts[better]
            self._add(y, score, parts)

    def result(self) -> _Piece:
        """The outputs with weight, heaviest first."""
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
        weights = self.weights[at, order].to(shown.device)
        return _PieceOfParts((outputs, weights, self.gap), parts, products)

    def _parts(self) -> Tensor:
        """Parts of the outputs of the rows, without a copy while all are searched."""
        whole = len(self.rows) == len(self.parts)
        return self.parts if whole else self.parts[self.rows]

    def _score(self, y: Tensor) -> Tensor:
        scores = self.live.score(y).detach().double() / self.strength
        if not bool(scores.isfinite().all()):
            raise ValueError(
                "strength: expected scores / strength that fit float64, got strength "
                f"= {self.strength:.3g}; use a larger one or smaller scores"
            )
        return scores

    def _has_weight(self, y: Tensor) -> Tensor:
        """Whether y is among the outputs of its row that have weight."""
        same = self.outputs[self.rows] == y.unsqueeze(1)
        same = same.reshape(*same.shape[:2], -1).all(2)
        return (same & self.active[self.rows.cpu()].to(y.device)).any(1)

    def _add(self, y: Tensor, score: Tensor, parts: Tensor) -> None:
        """Put an output of each row into a free slot, and find the weights anew."""
        rows = self.rows.cpu()
        if bool(self.active[rows].all(1).any()):
            self._grow()
        slot = (~self.active[rows]).to(torch.int8).argmax(1)
        there = slot.to(y.device)
        used = parts.flatten(1).double()
        self.outputs[self.rows, there], self.parts[self.rows, there] = y, used
        self.scores[rows, slot] = score.cpu()
        products = (self._parts() @ used.unsqueeze(2)).squeeze(2).cpu()
        self.products[rows, slot], self.products[rows, :, slot] = products, products
        new = torch.full((len(self.active),), -1, device="cpu")
        new[rows] = slot
        arrays = (self.products, self.scores, new, self.weights, self.active)
        work = len(rows) * self.active.shape[1] ** 3
        numbers = [x.numpy() for x in arrays]
        run_rows(active_set.add, len(new), work, *numbers)

    def _grow(self) -> None:
        """Make twice the slots."""
        for name in ("outputs", "parts", "scores", "weights", "active"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, torch.zeros_like(old)], 1))
        more = self.products.shape[1]
        pad = torch.nn.functional.pad(self.products, (0, more, 0, more))
        self.products = pad.contiguous()
