"""Steps of Pragam on sparse samples of two classes without a bias.

A step mixes dual variables, and climbs from there; each reads the samples once, and a
step that knows the next one's settings does both at one reading.
"""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.multiclass.csr_rows import add_row, any_product
from smoothsp._kernels.vectors.simd import span


@kernel
def mix(
    first, last, indptr, indices, data, signs, bounds, alpha, scores, mu, tau, beta, out
):
    """Fill ``beta = (1 - tau) alpha + tau alpha_mu``, and ``sum_i beta_i y_i x_i``.

    ``alpha_mu`` are the dual variables of the smoothed objective at the scores.
    """
    columns, values, total = span(indices), span(data), span(out)
    out[:] = 0
    for i in range(first, last):
        b = _mixed(alpha[i], signs[i], scores[i], mu, tau, bounds[i])
        beta[i] = b
        if b != 0:
            add_row(indptr[i], indptr[i + 1], b * signs[i], columns, values, total)


@kernel
def climb(
    first, last, indptr, indices, data, signs, bounds, weights, beta, scores, tau, L,
    alpha, mixed,
):  # fmt: skip
    """Fill a projected step of the dual from beta, and the mixed scores.

    Those are ``(1 - tau) scores + tau X w``.
    """
    columns, values, w = span(indices), span(data), span(weights)
    for i in range(first, last):
        score = any_product(indptr[i], indptr[i + 1], columns, values, w, 0.0)
        alpha[i] = _climbed(beta[i], signs[i], score, L, bounds[i])
        mixed[i] = (1 - tau) * scores[i] + tau * score


@kernel
def climb_and_mix(
    first, last, indptr, indices, data, signs, bounds, weights, beta, scores, tau, L,
    next_mu, next_tau, alpha, mixed, next_beta, out,
):  # fmt: skip
    """``climb``, then ``mix`` with what it filled."""
    columns, values, w = span(indices), span(data), span(weights)
    total = span(out)
    out[:] = 0
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        score = any_product(low, high, columns, values, w, 0.0)
        alpha[i] = _climbed(beta[i], signs[i], score, L, bounds[i])
        mixed[i] = (1 - tau) * scores[i] + tau * score
        b = _mixed(alpha[i], signs[i], mixed[i], next_mu, next_tau, bounds[i])
        next_beta[i] = b
        if b != 0:
            add_row(low, high, b * signs[i], columns, values, total)


@subroutine(forceinline=True)
def _climbed(beta, sign, score, L, bound):
    moved = beta + (1 - sign * score) / L
    return min(max(moved, 0.0), bound)


@subroutine(forceinline=True)
def _mixed(alpha, sign, score, mu, tau, bound):
    smoothed = min(max((1 - sign * score) / mu, 0.0), bound)
    return (1 - tau) * alpha + tau * smoothed
