r"""Smoothness of a loss, estimated by line search and power iteration.

The gradient of an L-smooth function guarantees a decrease,

.. math:: f(w - \nabla f(w) / L) \le f(w) - \|\nabla f(w)\|^2 / (2 L),

so a smaller decrease proves a larger L. A line search tests gradient directions only.
Power iteration finds the direction of largest curvature,

.. math:: L \ge \max_{\|v\| = 1} \|\nabla f(w + h v) - \nabla f(w)\| / h.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from smoothsp.optim import _checks, _ranks
from smoothsp.optim._evaluation import (
    Closure,
    RandomState,
    evaluate,
    joint_norm,
    loss_as_float64,
    require_gradient,
)
from smoothsp.optim._inspection import BufferGuard

_NAME = "estimate_smoothness"
# Line searches, and the factor of L after a sufficient decrease: eight of these undo a
# doubling, so that L settles where one search in nine fails.
_MIN_LINE_SEARCHES, _MAX_LINE_SEARCHES, _L_DECAY = 32, 256, 2 ** (-1 / 8)
# Power iterations per batch; they end when the estimate grows by less than 1 %. The
# safety factor covers the largest eigenvalue. Differences are taken over 1/64 of a step
# of length 1/L.
_MAX_POWER_ITERATIONS, _MIN_GROWTH, _SAFETY_FACTOR, _STEP_DIVISOR = 16, 1.01, 1.1, 64


@torch.no_grad()
def estimate_smoothness(
    params: Iterable[Tensor], closure: Closure, batches: Iterable[Any]
) -> float:
    r"""Estimate the ``smoothness`` of a loss for ``CasimirSVRG`` and ``ProxLinear``.

    The function takes SGD steps of length 1/L, one per batch. If a step decreases the
    loss of its batch by less than :math:`\|\nabla f\|^2 / (2 L)`, L doubles; otherwise
    it falls by 8 %. The first L is :math:`\|\nabla f\|^2 / (2 f)`, a lower bound for
    nonnegative losses. At the end the parameters are restored.

    Then power iterations find the direction of largest curvature at the parameters, for
    up to 256 batches. They use differences of gradients over a distance of :math:`h =
    \|\nabla f\| / (64 L)`.

    Parameters
    ----------
    params
        Parameters of the loss; parameters that do not require gradients are skipped.
    closure
        ``closure(batch)``: ``backward()`` on the mean loss of a batch, as for
        ``SVRG.epoch``; without the regulariser, whose smoothness is known.
    batches
        Mini-batches, preferably at least 32; fewer are read several times. A hundred
        suffice: ``batches[:100]`` of a shuffled list.

    Returns
    -------
    float
        The maximum of two estimates: the largest L of the second half of the steps, and
        1.1 times the largest curvature of a batch around the parameters. It holds for
        the current mu of the loss. It is at most twice the Lipschitz constant of the
        mini-batches' gradients, which may be far larger elsewhere. 0 if no batch has a
        gradient.

    Raises
    ------
    TypeError, ValueError
        If there are no parameters or no batches.
    RuntimeError
        If a gradient is sparse or missing, or the first loss is not finite.

    Notes
    -----
    The closure is evaluated twice per batch, then up to 18 times, usually 7, with equal
    random numbers. Buffers, such as those of BatchNorm, are restored. Batches of an
    iterator are kept in memory. Memory: five times the parameters. With
    ``torch.distributed`` losses and gradients are averaged over the processes, which
    need equal numbers of batches.

    The estimate is also useful for losses with kinks, such as a small k in
    ``L2(mu, k)`` or no smoothing. A difference quotient that doubles when h is halved
    is a jump at a kink and is ignored. For networks trained by ``ProxLinear``, pass the
    variables of ``Linearised`` and a closure that calls it. The relevant curvature is
    then that of Gauss-Newton, :math:`J^T \nabla^2 h \, J`.

    Source: similar to Schmidt, Le Roux and Bach, "Minimizing finite sums with the
    stochastic average gradient", but with at most one doubling per step. Where outputs
    tie, no L may suffice.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.optim import estimate_smoothness
    >>> w = torch.nn.Parameter(torch.zeros(3))
    >>> x = torch.nn.functional.normalize(torch.rand(50, 3)) * 5
    >>> def closure(row):
    ...     loss = (row @ w - 1).square() / 2
    ...     loss.backward()
    ...     return loss
    >>> 25 <= estimate_smoothness([w], closure, x) <= 50  # |x|^2 = 25
    True
    """
    moving = [p for p in params if p.requires_grad]
    if not moving:
        raise ValueError("params: expected parameters that require grad, got none")
    _checks.function("closure", closure)
    start = [p.detach().clone() for p in moving]
    search = _LineSearch(moving, closure)
    batches_read: list[Any] = []
    try:
        with BufferGuard().restored(detect=True):
            for batch in _batches_until_settled(batches, search):
                if isinstance(batches, Iterator):
                    batches_read.append(batch)
                search.step(batch)
            torch._foreach_copy_(moving, start)
            L = max(search.L_history[len(search.L_history) // 2 :], default=0.0)
            estimator = _CurvatureEstimator(moving, closure, L)
            curvatures = [
                estimator.estimate_curvature(batch)
                for batch in islice(batches_read or batches, _MAX_LINE_SEARCHES)
                if L
            ]
    finally:
        torch._foreach_copy_(moving, start)
        for p in moving:
            p.grad = None
    return max([L, *(_SAFETY_FACTOR * curvature for curvature in curvatures)])


def _batches_until_settled(
    batches: Iterable[Any], search: "_LineSearch"
) -> Iterator[Any]:
    """Yield batches until L has settled; an iterator is read only once."""
    while True:
        num_estimates, num_batches = len(search.L_history), 0
        for batch in batches:
            if search.has_settled():
                return
            yield batch
            num_batches += 1
        if not num_batches:
            raise ValueError(f"batches: {_NAME} expected at least one, got none")
        if isinstance(batches, Iterator) or len(search.L_history) == num_estimates:
            return


def _evaluate(
    params: list[Tensor], closure: Closure, batch: Any
) -> tuple[float, list[Tensor]]:
    """Loss of a batch and its gradient; 0 for parameters that it does not reach."""
    loss = evaluate(_NAME, lambda: closure(batch), params)
    require_gradient(_NAME, params, loss)
    _ranks.average_gradients(params)
    value = _ranks.mean_over_ranks(loss_as_float64(_NAME, loss).to(params[0].device))
    return value, [torch.zeros_like(p) if p.grad is None else p.grad for p in params]


def _evaluate_first(
    params: list[Tensor], closure: Closure, batch: Any
) -> tuple[float, list[Tensor]]:
    value, gradient = _evaluate(params, closure, batch)
    if not math.isfinite(value):
        raise RuntimeError(
            f"{_NAME}: expected a finite loss, got {value}; start at parameters "
            "where it is"
        )
    return value, gradient


class _LineSearch:
    """SGD steps of length 1/L; L doubles if a step decreases the loss too little."""

    def __init__(self, params: list[Tensor], closure: Closure) -> None:
        self.params, self.closure = params, closure
        self.L_history: list[float] = []
        self.decrease_ok: list[bool] = []
        self.L = 0.0

    def has_settled(self) -> bool:
        """Whether at least half of the last 16 steps decreased the loss enough."""
        num_searches = len(self.decrease_ok)
        return num_searches >= _MAX_LINE_SEARCHES or (
            num_searches >= _MIN_LINE_SEARCHES and sum(self.decrease_ok[-16:]) >= 8
        )

    def step(self, batch: Any) -> None:
        """Try a step on a batch; undo it if it increases the loss."""
        start = [p.detach().clone() for p in self.params]
        random = RandomState(self.params)
        value, gradient = _evaluate_first(self.params, self.closure, batch)
        square = joint_norm(gradient) ** 2
        if not square:
            return
        # f >= 0 implies |grad f|^2 <= 2 L f for every L-smooth f.
        self.L = self.L or (square / (2 * value) if value > 0 else square)
        torch._foreach_add_(self.params, gradient, alpha=-1 / self.L)
        random.restore()
        new_value, _ = _evaluate(self.params, self.closure, batch)
        expected_decrease = square / (2 * self.L)
        # A decrease below rounding error tests nothing.
        eps = max(torch.finfo(p.dtype).eps for p in self.params)
        rounding = 8 * eps * (abs(value) + abs(new_value))
        if expected_decrease <= rounding:
            return
        has_decreased = value - new_value >= expected_decrease - rounding
        # Negated, so that a NaN is undone, too.
        if not new_value <= value:
            torch._foreach_copy_(self.params, start)
        if not has_decreased:
            self.L *= 2
        self.L_history.append(self.L)
        self.decrease_ok.append(has_decreased)
        if has_decreased:
            self.L *= _L_DECAY


class _CurvatureEstimator:
    r"""Largest curvature of a loss, by power iteration on differences of gradients.

    For a unit vector v, :math:`(\nabla f(w + h v) - \nabla f(w)) / h` is the product of
    the Hessian and v, up to terms of order h.
    """

    def __init__(self, params: list[Tensor], closure: Closure, L: float) -> None:
        self.params, self.closure, self.L = params, closure, L
        generator = torch.Generator().manual_seed(0)
        # Batches have similar curvature: the last direction of a batch starts the next.
        self.v = [torch.randn(p.shape, generator=generator).to(p) for p in params]

    def estimate_curvature(self, batch: Any) -> float:
        """Curvature of a batch within 1/64 of a step of length 1/L."""
        start = [p.detach().clone() for p in self.params]
        random = RandomState(self.params)
        _, gradient = _evaluate_first(self.params, self.closure, batch)
        start_gradient = [tensor.clone() for tensor in gradient]

        def gradient_difference(h: float) -> list[Tensor]:
            torch._foreach_add_(self.params, self.v, alpha=h / joint_norm(self.v))
            random.restore()
            _, difference = _evaluate(self.params, self.closure, batch)
            torch._foreach_copy_(self.params, start)
            torch._foreach_sub_(difference, start_gradient)
            torch._foreach_div_(difference, h)
            return difference

        gradient_norm, eps = (
            joint_norm(start_gradient),
            max(torch.finfo(p.dtype).eps for p in self.params),
        )
        # A step of at least 100 ulps of w: below it differences are rounding error.
        h = max(gradient_norm / (_STEP_DIVISOR * self.L), 100 * eps * joint_norm(start))
        if not h:
            return 0.0
        # Include the gradient's own direction, along which SGD moves.
        if gradient_norm:
            torch._foreach_add_(
                self.v, start_gradient, alpha=joint_norm(self.v) / gradient_norm
            )
        curvature = 0.0
        for _ in range(_MAX_POWER_ITERATIONS):
            v = gradient_difference(h)
            previous, curvature = curvature, joint_norm(v)
            if not 0 < curvature < math.inf:
                return previous
            if curvature <= _MIN_GROWTH * previous:
                break
            self.v = v
        # At a kink the quotient is c + jump / h. With q(h) and q(h / 2),
        # 2 q(h) - q(h / 2) = c removes the jump.
        return min(
            curvature, max(0.0, 2 * curvature - joint_norm(gradient_difference(h / 2)))
        )
