"""One epoch of SVRG as a function of arrays."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import svrg as kernel
from smoothsp.linear.engines.callback_loops import dense_svrg_epoch
from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import ChainObjective
from smoothsp.linear.engines.objective_factory import AnyObjective
from smoothsp.linear.engines.sparse_loops import sparse_svrg_epoch

Flat = NDArray[np.float64]


class Snapshot(NamedTuple):
    """Point x with objective, mean gradient of the loss, and marginals of examples.

    The value includes the regulariser. The epoch overwrites ``mean_gradient``.
    """

    x: Flat
    value: float
    mean_gradient: Flat
    node_marginals: Any
    edge_marginals: Flat


def compute_snapshot(objective: AnyObjective, x: Flat, mu: float) -> Snapshot:
    """Compute objective and gradients at x by n oracle calls."""
    mean_gradient = objective.zero_buffer()
    value, node_marginals, edge_marginals = objective.gradient(
        x, mu, mean_gradient, per_example=True
    )
    value += objective.lam / 2 * float(np.dot(x, x))
    return Snapshot(x, value, mean_gradient, node_marginals, edge_marginals)


def run_svrg_epoch(
    objective: AnyObjective,
    start: Snapshot,
    order: NDArray[np.int64],
    rate: float,
    mu: float,
    kappa: float = 0.0,
    z: Flat | None = None,
) -> Flat:
    r"""Run one SVRG epoch on the objective plus ``kappa / 2 |x - z|^2``.

    Starts at the snapshot, makes one oracle call a step, and returns the mean of the
    iterates.
    """
    # c = kappa z - gbar
    c = start.mean_gradient
    # In place: a vector of all weights is large.
    np.negative(c, out=c)
    if z is not None:
        c += kappa * z
    if isinstance(objective, CallbackObjective):
        svrg_epoch = sparse_svrg_epoch if objective.sparse else dense_svrg_epoch
        return svrg_epoch(
            objective, start.x, start.node_marginals, c, order, rate, mu, kappa
        )
    loss = objective.loss.kernel_arguments(mu)
    node_marginals, edge_marginals = start.node_marginals, start.edge_marginals
    x = objective.zero_buffer()
    x[:] = start.x
    sums = objective.zero_buffer()
    scales = np.array([1.0, 0.0, 0.0, 0.0])
    is_finite = np.isfinite(c).all() and kernel.svrg_epoch(
        order,
        rate,
        objective.lam + kappa,
        objective.sequences,
        *loss,
        node_marginals,
        edge_marginals,
        *objective.split_weights(c),
        *_kernel_arrays(objective, x, sums),
        scales,
    )
    if not is_finite:
        raise FloatingPointError(
            "the weights overflowed; choose a smaller rate or a larger smoothness"
        )
    _, _, C, B = scales
    W, Q = objective.split_weights(x)[0], objective.split_weights(sums)[0]
    # C V - Q + B c
    np.multiply(W, C, out=W)
    np.subtract(W, Q, out=Q)
    Q += B * objective.split_weights(c)[0]
    sums /= len(order)
    return sums


def _kernel_arrays(
    objective: ChainObjective, x: Flat, sums: Flat
) -> tuple[Flat, Flat, Flat, Flat]:
    (W, tail), (Q, tail_sum) = objective.split_weights(x), objective.split_weights(sums)
    return W, Q, tail, tail_sum


def sample_order(seed: int, epoch_index: int, n: int) -> NDArray[np.int64]:
    """Examples ``(n,)`` of an epoch, sampled uniformly with replacement."""
    # A seed per epoch: a resumed run needs no generator state.
    return np.random.Generator(np.random.PCG64([seed, epoch_index])).integers(n, size=n)
