"""Solutions and certificates of solvers."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks, states

State = states.State


class Bounds(NamedTuple):
    """Values of a certificate, as ``Solver.certify`` returns them.

    The fields are those of :class:`Certificate`.
    """

    primal: float
    dual: float = math.nan
    gap: float = math.nan
    smoothed_primal: float = math.nan


class Resumable:
    """Base of records for callbacks; ``state`` is readable during the callback."""

    @property
    def state(self) -> State:
        """Copies of the arrays of the run, by name; only during the callback.

        ``solve(problem, resume=state)`` or ``fit(X, y, resume=state)`` continues the
        run. The results are bit for bit those of an uninterrupted run.
        """
        get_state = self.__dict__.get("_take")
        if get_state is None:
            raise ValueError(
                "state: expected access within the callback of a solver that can "
                "resume; store record.state there"
            )
        return states.add_checksums(get_state())

    @contextmanager
    def with_state(
        self,
        take: Callable[[], State],
        weights: Callable[[], NDArray[Any]] | None = None,
    ) -> Iterator[None]:
        """Make ``state`` and ``w`` available during a callback."""
        # Plain attributes, not dataclass fields: records compare by their numbers.
        accessors = {"_take": take, "_weights": weights}
        for name, function in accessors.items():
            object.__setattr__(self, name, function)
        try:
            yield
        finally:
            for name in accessors:
                object.__delattr__(self, name)


@dataclass(frozen=True)
class Certificate(Resumable):
    """Certificate of a solver: the minimum lies between dual and primal.

    In a callback it has the ``state`` of the run, from which a new run can resume.

    Parameters
    ----------
    passes
        Passes over the examples, including an interrupted pass.
    oracle_calls
        Maxima and sums over outputs computed so far. The maximum, the k best outputs,
        or the forward-backward sums of one example are one call. Calls for certificates
        and line searches are counted; calls replaced by a cache are not. A loss without
        outputs, such as the squared loss, is one call per example.
    seconds
        Wall time since the beginning, including earlier runs, certificates and
        callbacks, without compiling kernels or loading them from disk.
    primal
        The objective with the hinge or the likelihood, not smoothed.
    dual, gap
        Lower bound of the minimum of the minimised objective, and the objective minus
        this bound, at least 0. The minimised objective is ``smoothed_primal`` if it is
        a number, else ``primal``. NaN if the solver has no bound.
    smoothed_primal
        The objective with the smoothed loss, if the solver stops at its minimum:
        :class:`~smoothsp.linear.solvers.SGD`, ``SVRG``, ``CasimirSVRG`` and ``LBFGS``
        with a smoothed hinge. NaN if nothing is smoothed, and for solvers that smooth
        on the way to the minimum of ``primal``: ``AGM``, ``Pragam``, and
        ``CasimirSVRG`` with ``schedule="adapt"``.

    Examples
    --------
    A checkpoint at each certificate:

    >>> def save(certificate):
    ...     np.savez("run.npz", **certificate.state)
    """

    passes: int
    oracle_calls: int
    seconds: float
    primal: float
    dual: float
    gap: float
    smoothed_primal: float = math.nan

    @property
    def minimised(self) -> float:
        """The minimised objective, to which ``dual`` and ``gap`` belong."""
        smoothed = self.smoothed_primal
        return self.primal if math.isnan(smoothed) else smoothed

    @property
    def bounds(self) -> Bounds:
        """Primal, dual, gap and smoothed primal."""
        return Bounds(self.primal, self.dual, self.gap, self.smoothed_primal)

    @property
    def w(self) -> NDArray[Any]:
        """Copy of the weights at the certificate; only during the callback.

        ``(num_weights,)``, float64, as in a :class:`~smoothsp.linear.solvers.Solution`.
        For ``HingeSVC``, ``WestonWatkinsSVC`` and ``CrammerSingerSVC``
        ``(features, classes)`` in the dtype of X, with the constant feature last.
        """
        get_weights = self.__dict__.get("_weights")
        if get_weights is None:
            raise ValueError(
                "w: expected access within the callback of a solver that has weights;"
                " store record.w there"
            )
        return np.array(get_weights())

    @property
    def epoch(self) -> int:
        """Alias of ``passes``, for estimators with ``max_epochs``."""
        return self.passes


# Called with each certificate; a true return value stops the solver.
Callback = Callable[[Certificate], Any]


@dataclass(frozen=True)
class Solution:
    """Weights with their certificate.

    Parameters
    ----------
    w
        ``(num_weights,)``, float64.
    primal, dual, gap, smoothed_primal
        At ``w``, as in :class:`Certificate`. NaN if an interrupt prevented their
        computation.
    passes, oracle_calls, seconds
        As in :class:`Certificate`, at the end.
    status
        Reason why the solver stopped, as a sentence.
    converged
        Whether the gap is at most the tolerance.
    history
        Records at the certificates.
    state
        Arrays by name; ``solve(problem, resume=state)`` continues the run.
        ``numpy.savez`` stores them without pickle. The weights are ``state["w"]``.
    interrupted
        True if Ctrl-C ended the run.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW
    >>> solution = BCFW(lam=0.1).solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> solution.w.shape, solution.converged
    ((4,), True)
    """

    w: NDArray[np.float64]
    primal: float
    dual: float
    gap: float
    passes: int
    oracle_calls: int
    seconds: float
    status: str
    converged: bool
    history: list[Certificate] = field(repr=False)
    state: State = field(repr=False)
    interrupted: bool = False
    smoothed_primal: float = math.nan


def check_start_weights(start: object, size: int) -> NDArray[np.float64]:
    """Validate start weights, an array or an object with ``w``; return a copy."""
    try:
        w = checks.as_real_float64(np.array(getattr(start, "w", start)))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"start: expected a Solution or weights, got {checks.short_repr(start)}"
        ) from error
    if w.shape != (size,):
        raise ValueError(f"start: expected ({size},) weights, got {w.shape}")
    if not np.isfinite(w).all():
        raise ValueError("start: expected finite weights")
    return w
