"""Hinges and negative log-likelihoods of rows with gradients, without autograd.

    hinge  max_u <u, s> - mu / 2 (|u|^2 - 1) - s(y), with s the k best scores
    nll    log Z - s(y)

Gradients with respect to the potentials, with phi(y) the part counts of y:

    hinge  sum_k u_k phi(y_k) - phi(y)
    nll    E[phi] - phi(y)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from smoothsp._kernels.circuits.cpu import scores
from smoothsp.oracles._inference.double_double import as_hi_lo
from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.to_numpy import PointerTable

# Zeros whose dtype selects the compiled kernel, and allocators: a bound new_empty is
# faster than torch.empty with a dtype and a device.
_VECTORS = {
    dtype: torch.zeros(64 // dtype.itemsize, dtype=dtype, device="cpu").numpy()
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64)
}
_NEW_EMPTY = {
    dtype: torch.empty(0, dtype=dtype, device="cpu").new_empty
    for dtype in (torch.float32, torch.float64, torch.bool)
}


class RowLosses:
    """Losses of the rows of a batch with true outputs y.

    Parameters
    ----------
    engine
        Engine of the potentials that score y.
    used
        Indices ``[B, 1, U]`` of the potentials that y uses.
    maxima
        The M best scores as double-doubles ``[B, M, 2]``; if k is 0 the best score or
        the log-partition ``[B, 2]``.
    never_negative
        Whether losses are mathematically at least 0, and rounding below is clipped.
    weight
        Weight of the rows in the total: a number, or ``[B]``.
    mu, k
        Smoothing strength, and number of outputs smoothed over; 0 for none.

    Attributes
    ----------
    value, total
        Losses ``[B]``, and their weighted sum ``[]``.
    exact
        ``[B]``: whether smoothing over the k best equals smoothing over all.
    highest
        ``[B]`` each: the first of ``maxima``, and the score of y.
    """

    # Leaves ``[B, M, U]`` or ``[B, U]`` of the best outputs, for hinges, or the engine
    # whose marginals are the gradient, for log-likelihoods.
    best: Tensor | None = None
    summing_engine: Engine | None = None

    def __init__(
        self,
        engine: Engine,
        used: Tensor,
        maxima: Tensor,
        never_negative: bool,
        weight: Tensor | float,
        mu: float = 0.0,
        k: int = 0,
    ) -> None:
        B, M = len(used), maxima.shape[-2] if k else 1
        self.engine, self.y = engine, used.contiguous()
        dtype = engine.potentials[0].dtype
        new, new_float64 = _NEW_EMPTY[dtype], _NEW_EMPTY[torch.float64]
        self.value, self.total, self.u = new(B), new(()), new_float64(B, M)
        self.exact, self.highest = (
            _NEW_EMPTY[torch.bool](B),
            (new_float64(B), new_float64(B)),
        )
        number, weights = _split_weight(weight)
        table = PointerTable(
            engine.potentials[: engine.num_row_potentials],
            engine.potentials[engine.num_row_potentials :],
        )
        addresses = maxima.contiguous(), self.y, weights
        out = self.value, self.total, self.u, self.exact, *self.highest
        scores.row_smoothed_hinges(
            table.address_and_size,
            _VECTORS[dtype],
            (B, M, self.y.shape[2]),
            _addresses(addresses),
            (float(mu), max(k, 1), never_negative),
            number,
            _addresses(out),
        )

    def gradient(
        self, weight: Tensor | float, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        """Gradient of the weighted total with respect to the potentials."""
        engine, y, best = self.engine, self.y, self.best
        num_row_potentials, dtype = (
            engine.num_row_potentials,
            engine.potentials[0].dtype,
        )
        number, weights = _split_weight(weight)
        means: Sequence[Tensor | None] = [None] * len(needs_grad)
        if self.summing_engine is not None:
            rows = weights
            if rows is None:
                rows = _NEW_EMPTY[dtype](len(y)).fill_(number)
            # pop is atomic: of two threads, only one may overwrite the buffer
            marginals = vars(self).pop("marginals", None)
            if marginals is None:
                marginals = self.summing_engine.log_partition(needs_grad, dtype, True)[
                    2
                ]
            means = self.summing_engine.vjp(rows, marginals, needs_grad)
        targets: list[Tensor | None] = []
        for i, (x, is_needed) in enumerate(
            zip(engine.potentials, needs_grad, strict=True)
        ):
            mean = means[i]
            if not is_needed:
                targets.append(None)
            elif i < num_row_potentials and mean is not None and mean.is_contiguous():
                targets.append(mean)
            else:
                # shared potentials sum over many rows, which float32 rounds
                kind = dtype if i < num_row_potentials else torch.float64
                targets.append(_NEW_EMPTY[kind](x.shape).zero_())
        table = PointerTable(
            engine.potentials[:num_row_potentials],
            engine.potentials[num_row_potentials:],
            targets,
        )
        if best is None:
            best = y[:, :0]
        like = _VECTORS[dtype], _VECTORS[best.dtype]
        addresses = self.u, best, y, weights
        M = best.shape[1] if best.dim() == 3 else 1
        sizes = len(best), M, best.shape[-1], y.shape[2], self.u.shape[1]
        scores.row_smoothed_hinges_gradient(
            table.address_and_size, *like, sizes, _addresses(addresses), number
        )
        return [
            x if x is None or x is mean else x.to(dtype) if mean is None else x + mean
            for x, mean in zip(targets, means, strict=True)
        ]


def hinges(
    augmented: Engine,
    engine: Engine,
    used: Tensor,
    mu: float,
    k: int,
    never_negative: bool,
    weight: Tensor | float,
) -> RowLosses:
    """Structural hinges: maximum of ``augmented``, with costs, minus the score of y.

    Smoothed over the k best outputs unless k is 0.
    """
    best = augmented.best(k + 1 if k else None, augmented.potentials[0].dtype, True)
    if best.used is not None:
        best_parts = best.used
    else:
        labels = best.labels if k else best.labels.unsqueeze(1)
        best_parts = augmented.part_entries(labels)
    maxima = best.hi_lo
    if maxima is None:
        maxima = augmented.score_best(labels, best)
    losses = RowLosses(engine, used, maxima, never_negative, weight, mu, k)
    losses.best = best_parts.contiguous()
    return losses


def negative_log_likelihoods(
    summing_engine: Engine,
    engine: Engine,
    used: Tensor,
    needs_grad: Sequence[bool],
    never_negative: bool,
    weight: Tensor | float,
) -> RowLosses:
    """Negative log-likelihoods: log Z of ``summing_engine`` minus the score of y.

    The same pass computes the marginals where ``needs_grad``.
    """
    dtype = summing_engine.potentials[0].dtype
    total, maxima, marginals = summing_engine.log_partition(needs_grad, dtype, True)
    maxima = as_hi_lo(total) if maxima is None else maxima
    losses = RowLosses(engine, used, maxima, never_negative, weight)
    losses.summing_engine = summing_engine
    vars(losses)["marginals"] = marginals
    return losses


def add_hamming(
    first_potentials: Tensor, usable: Tensor | None, used: Tensor, scale: float
) -> Tensor:
    """Add ``scale`` to ``first_potentials`` ``[B, ...]`` at usable parts not in y.

    ``used`` are the indices ``[B, 1, U]`` of the parts of y; ``usable`` None means all.
    """
    first_potentials, used = first_potentials.detach().contiguous(), used.contiguous()
    usable = (
        None if usable is None else usable.expand(first_potentials.shape).contiguous()
    )
    result = first_potentials.new_empty(first_potentials.shape)
    sizes = len(first_potentials), first_potentials.shape[1:].numel(), used.shape[2]
    addresses = _addresses((first_potentials, usable, used, result))
    scores.add_hamming_costs(
        sizes, addresses, _VECTORS[first_potentials.dtype], float(scale)
    )
    return result


def _addresses(tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
    # a generator takes a microsecond
    return tuple([0 if x is None else x.data_ptr() for x in tensors])


def _split_weight(weight: Tensor | float) -> tuple[float, Tensor | None]:
    """Split a weight into a factor of all rows and float64 weights ``[B]`` or None."""
    if not isinstance(weight, Tensor):
        return float(weight), None
    if not weight.dim():
        return weight.item(), None
    return 1.0, weight.double().contiguous()
