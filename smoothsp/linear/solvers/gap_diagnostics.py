"""Diagnostics of the estimated gaps used by gap sampling."""

import math

import numpy as np
from numpy.typing import ArrayLike

from smoothsp.linear.engines.solution import Certificate


def staleness(record: Certificate) -> float:
    r"""Ratio of the gap to its estimate; above 1, estimates were too small.

    .. math:: \frac{\sum_i g_i}{\sum_i \hat g_i}

    The estimate :math:`\hat g_i` is the gap of example i at its last oracle call. The
    exact gap :math:`g_i` is that of the certificate. If the ratio is far from 1, gap
    sampling prefers the wrong examples: choose a smaller ``refresh_every``.

    Parameters
    ----------
    record
        Record of a callback of :class:`BCFW`, used within the callback. Not with
        ``averaging``, whose gap refers to other weights.

    Returns
    -------
    float
        At least 0; NaN where an example had no oracle call yet, or no gap is left.

    Raises
    ------
    ValueError
        If the record is not of BCFW.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", section 3.1, figure 1b.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW
    >>> problem, ratios = MulticlassProblem(np.eye(3), [0, 1, 2]), []
    >>> def store(record):
    ...     ratios.append(staleness(record))
    >>> _ = BCFW(lam=0.1, refresh_every=2, max_passes=4, callback=store).solve(problem)
    >>> len(ratios)
    2
    """
    state = record.state
    if "estimated_gap" not in state:
        raise ValueError(
            "record: expected a record of BCFW, got a record of another solver"
        )
    estimated = float(state["estimated_gap"])
    is_defined = 0 < estimated < math.inf
    return record.gap / estimated if is_defined else math.nan


def nonuniformity(numbers: ArrayLike) -> float:
    r"""Nonuniformity chi of the terms of a sum, from 1 to :math:`\sqrt n`.

    .. math:: \chi(x) = \sqrt{n} \, \frac{\|x\|_2}{\|x\|_1}

    1 if all terms are equal, :math:`\sqrt n` if a single term is not 0. With exact gaps
    g and curvatures C of the examples, the rate bound of gap sampling is
    :math:`\chi(g)^3 / \chi(C)` times as good as that of uniform sampling.

    Parameters
    ----------
    numbers
        ``(n,)``, >= 0 and not all 0. Gaps of examples are ``record.state["estimates"]``
        in a callback of :class:`BCFW`. Curvatures are at most
        :math:`4 R_i^2 / (\lambda n^2)` with :math:`R_i = \max_y \|\psi_i(y)\|`, the
        largest norm of the gold features minus those of an output.

    Raises
    ------
    ValueError
        For numbers outside these ranges.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", lemma 6 and theorem 2, figure 1c.

    Examples
    --------
    >>> nonuniformity([1, 1, 1, 1]), nonuniformity([0, 0, 5, 0])
    (1.0, 2.0)
    """
    x = np.asarray(numbers, dtype=np.float64)
    if x.ndim != 1 or not len(x):
        raise ValueError(f"numbers: expected shape (n,) with n > 0, got {x.shape}")
    is_invalid = ~((x >= 0) & (x < np.inf))
    if is_invalid.any():
        i = int(is_invalid.argmax())
        raise ValueError(f"numbers: expected finite numbers >= 0, got {x[i]} at {i}")
    largest = float(x.max())
    if not largest:
        raise ValueError("numbers: expected at least one above 0, got only zeros")
    # chi does not depend on the scale; squares of large numbers would overflow.
    x = x / largest
    return float(math.sqrt(len(x)) * np.sqrt(np.dot(x, x)) / x.sum())
