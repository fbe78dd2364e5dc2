"""Steps of the excessive-gap method (Pragam) for the binary SVM without bias.

An iteration averages the dual variables (mix), then takes a projected gradient step of
the dual (step). With averaged scores u and bounds c,

    mix      beta = (1 - tau) alpha + tau clip((1 - y u) / mu, 0, c)
             out = sum_i beta_i y_i x_i
    step     z = X w
             alpha = clip(beta + (1 - y z) / L, 0, c)
             u <- (1 - tau) u + tau z

Each reads the samples once. ``dual_step_and_mix`` fuses a step with the next mix, so
that an iteration reads the samples once.

Source: Nesterov, "Excessive Gap Technique in Nonsmooth Convex Minimization"; Zhang,
Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's Accelerated Gradient
Methods".
"""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm.csr_rows import add_row, dot
from smoothsp._kernels.vectors.simd import span

# Samples of a block: beta is computed for all before rows are added. The branch on
# beta_i != 0 then does not depend on a new product, so a misprediction costs little.
BLOCK = 256


@kernel
def mix_dual(
    first, last, indptr, indices, data, signs, bounds, alpha, scores, mu, tau, beta, out
):
    """Fill ``beta = (1 - tau) alpha + tau alpha_mu``, and ``sum_i beta_i y_i x_i``.

    ``alpha_mu`` are the dual variables of the smoothed objective at the scores.
    """
    rows = indptr, span(indices), span(data)
    out[:] = 0
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        for i in range(low, high):
            beta[i] = _mix_with_smoothed(
                alpha[i], signs[i], scores[i], mu, tau, bounds[i]
            )
        _add_weighted_rows(low, high, rows, beta, signs, span(out))


@kernel
def dual_step(
    first, last, indptr, indices, data, signs, bounds, weights, beta, scores, tau, L,
    alpha, mixed,
):  # fmt: skip
    """Fill alpha with a projected step of the dual from beta, and the mixed scores.

    ``mixed = (1 - tau) scores + tau X w``.
    """
    rows, w = (indptr, span(indices), span(data)), span(weights)
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        _fill_scores(low, high, rows, w, mixed)
        for i in range(low, high):
            score = mixed[i]
            alpha[i] = _projected_step(beta[i], signs[i], score, L, bounds[i])
            mixed[i] = (1 - tau) * scores[i] + tau * score


@kernel
def dual_step_and_mix(
    first, last, indptr, indices, data, signs, bounds, weights, beta, scores, tau, L,
    next_mu, next_tau, alpha, mixed, next_beta, out,
):  # fmt: skip
    """Fill alpha and mixed as ``dual_step``, then next_beta and out as ``mix_dual``.

    The mix uses the new alpha and scores, with ``next_mu`` and ``next_tau``.
    """
    rows, w = (indptr, span(indices), span(data)), span(weights)
    out[:] = 0
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        _fill_scores(low, high, rows, w, mixed)
        for i in range(low, high):
            score, sign, bound = mixed[i], signs[i], bounds[i]
            alpha[i] = _projected_step(beta[i], sign, score, L, bound)
            mixed[i] = (1 - tau) * scores[i] + tau * score
            next_beta[i] = _mix_with_smoothed(
                alpha[i], sign, mixed[i], next_mu, next_tau, bound
            )
        _add_weighted_rows(low, high, rows, next_beta, signs, span(out))


@subroutine
def _fill_scores(first, last, rows, w, out):
    """Fill ``out`` with the products of samples and w."""
    indptr, columns, values = rows
    for i in range(first, last):
        out[i] = dot(indptr[i], indptr[i + 1], columns, values, w, 0.0)


@subroutine
def _add_weighted_rows(first, last, rows, beta, signs, out):
    """Add ``beta_i y_i x_i`` of the samples to ``out``."""
    indptr, columns, values = rows
    for i in range(first, last):
        b = beta[i]
        if b != 0:
            add_row(indptr[i], indptr[i + 1], b * signs[i], columns, values, out)


@subroutine(forceinline=True)
def _projected_step(beta, sign, score, L, bound):
    stepped = beta + (1 - sign * score) / L
    return min(max(stepped, 0.0), bound)


@subroutine(forceinline=True)
def _mix_with_smoothed(alpha, sign, score, mu, tau, bound):
    smoothed = min(max((1 - sign * score) / mu, 0.0), bound)
    return (1 - tau) * alpha + tau * smoothed
