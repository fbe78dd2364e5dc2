"""A concave quadratic maximised over the simplex, by active sets."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Floats = NDArray[np.float64]

# of the mean diagonal: makes systems of dependent cuts solvable
_RIDGE = 1e-12
# of the largest number in the problem: what counts as rounding
_ROUNDING = 1e-13


def maximise(Q: Floats, b: Floats, start: Floats) -> Floats:
    r""":math:`\arg\max \langle b, a \rangle - \tfrac12 a^\top Q a`, a in the simplex.

    Parameters
    ----------
    Q
        ``(t, t)``, symmetric, positive semi-definite, singular or not.
    b
        ``(t,)``.
    start
        ``(t,)``, in the simplex. The closer it is to the solution, the fewer systems
        are solved.

    Notes
    -----
    Newton steps on the support, cut where a weight gets to 0; the index of steepest
    ascent joins when the support is solved. Each system costs O(s^3), for s indices of
    the support. Should rounding keep it from settling, pairwise Frank-Wolfe steps end
    it. What is returned is in the simplex in any case.
    """
    t = len(b)
    a = start.copy()
    scale = max(float(np.abs(b).max()), float(Q.diagonal().max()), 1e-300)
    support = a > 0
    for _ in range(5 * t + 50):
        at = np.flatnonzero(support)
        wanted = _on_support(Q[np.ix_(at, at)], b[at])
        if (wanted < 0).any():
            here = a[at]
            falls = wanted < here
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(falls, here / (here - wanted), np.inf)
            first = int(reach.argmin())
            step = min(1.0, float(reach[first]))
            moved = np.maximum(here + step * (wanted - here), 0.0)
            moved[first] = 0.0
            a[at] = moved / moved.sum()
            support[at[first]] = False
            support &= a > 0
            continue
        a[at] = wanted / wanted.sum()
        slopes = b - Q @ a
        level = float(slopes[at] @ a[at])
        outside = np.where(support, -np.inf, slopes)
        best = int(outside.argmax())
        if outside[best] <= level + _ROUNDING * scale:
            return a
        support[best] = True
    return pairwise(Q, b, a, scale)


def _on_support(Q: Floats, b: Floats) -> Floats:
    """The maximum where the weights sum to 1, of any sign."""
    s = len(b)
    ridge = _RIDGE * max(float(Q.trace()) / s, 1e-300)
    system = np.ones((s + 1, s + 1))
    system[:s, :s] = Q
    system[s, s] = 0.0
    right = np.append(b, 1.0)
    solvable = system.copy()
    solvable[np.arange(s), np.arange(s)] += ridge
    # the routines themselves, for most systems are of a few rows
    factors, rows, _ = lapack.dgetrf(solvable, overwrite_a=True)
    found, _ = lapack.dgetrs(factors, rows, right)
    # once more for what the ridge and rounding took
    again = found + lapack.dgetrs(factors, rows, right - system @ found)[0]
    return np.asarray(again[:s] if (again[:s] >= 0).all() else found[:s])


def pairwise(Q: Floats, b: Floats, a: Floats, scale: float) -> Floats:
    """Move weight from the worst index of the support to the best of all."""
    a = a.copy()
    slopes = b - Q @ a
    for _ in range(20 * len(b) + 200):
        into = int(slopes.argmax())
        out = int(np.where(a > 0, slopes, np.inf).argmin())
        ascent = float(slopes[into] - slopes[out])
        if ascent <= _ROUNDING * scale:
            break
        bend = float(Q[into, into] + Q[out, out] - 2 * Q[into, out])
        step = min(float(a[out]), ascent / bend) if bend > 0 else float(a[out])
        a[into] += step
        a[out] = a[out] - step if step < a[out] else 0.0
        slopes -= step * (Q[:, into] - Q[:, out])
    return np.asarray(a / a.sum())
