"""One epoch of variance-reduced steps, from arrays to arrays."""

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import svrg as kernel
from smoothsp.linear.engines.callback_loops import plain_epoch
from smoothsp.linear.engines.callback_objective import CallbackSurface
from smoothsp.linear.engines.compiled_objective import Surface
from smoothsp.linear.engines.which_objective import AnySurface

Flat = NDArray[np.float64]


def epoch(
    surface: AnySurface,
    begin: Flat,
    order: NDArray[np.int64],
    rate: float,
    mu: float,
    kappa: float = 0.0,
    z: Flat | None = None,
) -> Flat:
    r"""The mean of the iterates of one epoch on the loss plus ``kappa / 2 |x - z|^2``.

    ``begin`` is the snapshot and the first iterate. Costs one oracle call a sentence
    for the gradient at the snapshot, and one a step.
    """
    if isinstance(surface, CallbackSurface):
        return plain_epoch(surface, begin, order, rate, mu, kappa, z)
    loss = surface.loss.arguments(mu)
    # c = kappa z - gbar
    c = surface.room()
    _, nodes, edges = surface.gradient(begin, mu, c, keep=True)
    np.negative(c, out=c)
    if z is not None:
        c += kappa * z
    x = surface.room()
    x[:] = begin
    sums = surface.room()
    scales = np.array([1.0, 0.0, 0.0, 0.0])
    finite = np.isfinite(c).all() and kernel.epoch(
        order,
        rate,
        surface.lam + kappa,
        surface.sentences,
        *loss,
        nodes,
        edges,
        *surface.parts(c),
        *_woven(surface, x, sums),
        scales,
    )
    if not finite:
        raise FloatingPointError(
            "the weights overflowed; choose a smaller rate or a larger smoothness"
        )
    _, _, C, B = scales
    W, Q = surface.parts(x)[0], surface.parts(sums)[0]
    # C V - Q + B c
    np.multiply(W, C, out=W)
    np.subtract(W, Q, out=Q)
    Q += B * surface.parts(c)[0]
    sums /= len(order)
    return sums


def _woven(surface: Surface, x: Flat, sums: Flat) -> tuple[Flat, Flat, Flat, Flat]:
    (W, tail), (Q, tail_sum) = surface.parts(x), surface.parts(sums)
    return W, Q, tail, tail_sum


def order_of(seed: int, number: int, n: int) -> NDArray[np.int64]:
    """The sentences of epoch ``number``, drawn uniformly."""
    return np.random.Generator(np.random.PCG64([seed, number])).integers(n, size=n)
