"""Linear problems from Python functions: max, top-k and batch oracles."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as scipy_sparse

from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.sparse_matrices import validate_sparse
from smoothsp.linear.inputs.vectors import add, as_vector, dot
from smoothsp.linear.problems.batch import (
    ValueAndGradient,
    require_smoothing,
    smoothed_max,
)

Weights = NDArray[np.float64]
# (psi, loss, key) of an output, as user functions return it.
OracleResult = tuple[Any, float, Hashable]


class Corner(NamedTuple):
    """One output of one example, in the form that dual solvers use.

    Parameters
    ----------
    psi
        ``(num_weights,)``: features of the gold output minus those of this output. If
        the problem is ``sparse``, a scipy CSR matrix ``(1, num_weights)``.
    loss
        Cost of the output, at least 0, and 0 for the gold output.
    key
        Hashable identifier of the output; None if psi and loss identify it.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import Corner
    >>> Corner(psi=np.array([1.0, 0.0]), loss=1.0, key="wrong").loss
    1.0
    """

    psi: Any
    loss: float
    key: Hashable


@runtime_checkable
class LinearProblem(Protocol):
    """Interface of problems for solvers of single examples.

    Every solver accepts any object with these three members. With the method of
    :class:`TopKLinearProblem` the hinge can be smoothed. If ``sparse`` is true, corners
    are sparse, and the cost of a step is their number of entries.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import LinearProblem, MulticlassProblem
    >>> problem = MulticlassProblem(np.eye(3), [0, 1, 2])
    >>> isinstance(problem, LinearProblem), len(problem), problem.num_weights
    (True, 3, 9)
    """

    @property
    def num_weights(self) -> int:
        """Length of w."""

    def __len__(self) -> int: ...

    def worst(self, i: int, w: Weights) -> Corner:
        """Return an output of example i with the largest ``loss - <w, psi>``."""


@runtime_checkable
class TopKLinearProblem(LinearProblem, Protocol):
    """Interface of problems that also find the k worst outputs, for ``"hinge-l2"``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import CallbackProblem, TopKLinearProblem
    >>> def worst(i, w):
    ...     return np.ones(2), 1.0, "wrong"
    >>> def worst_few(i, w, k):
    ...     return [(np.ones(2), 1.0, "wrong"), (np.zeros(2), 0.0, "gold")][:k]
    >>> problem = CallbackProblem(1, 2, worst, worst_few)
    >>> isinstance(problem, TopKLinearProblem)
    True
    """

    def worst_few(self, i: int, w: Weights, k: int) -> Sequence[Corner]:
        """Return the k outputs of largest ``loss - <w, psi>``, or all if fewer."""


class CallbackProblem:
    r"""Linear structured SVM with a max oracle in Python.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2
        + \tfrac{1}{n} \sum_i \max_y L_i(y) - \langle w, \psi_i(y) \rangle

    Parameters
    ----------
    n
        Number of examples, at least 1.
    num_weights
        Length of w, at least 1.
    max_oracle
        ``max_oracle(i, w)`` returns ``(psi, loss, key)`` of an output of example i with
        the largest ``loss - <w, psi>``. This is its cost plus its score, less the score
        of the gold output. ``psi`` is an array ``(num_weights,)``.
    topk_oracle
        ``topk_oracle(i, w, k)`` returns a list of such triples: the k different outputs
        of largest ``loss - <w, psi>``, or all if there are fewer. The smoothed hinge of
        :class:`SGD`, :class:`SVRG`, :class:`CasimirSVRG` and :class:`LBFGS` needs it.
    batch_oracle
        ``batch_oracle(rows, w)`` returns a list with the result of ``max_oracle`` for
        each example in ``rows``, a list of ints. :class:`BCFW` with a ``batch_size``
        calls it. None: ``max_oracle`` is called for each example.
    sparse
        If True, psi is a scipy CSR matrix ``(1, num_weights)``. The cost of a step is
        then its number of entries.

    Examples
    --------
    >>> import numpy as np
    >>> def worst(i, w):
    ...     psi = np.array([1.0, 0.0])
    ...     return (psi, 1.0, 1) if 1 - w @ psi > 0 else (0 * psi, 0.0, 0)
    >>> problem = CallbackProblem(1, 2, worst)
    >>> float(problem.primal(np.zeros(2), lam=1.0))
    1.0
    """

    def __init__(
        self,
        n: int,
        num_weights: int,
        max_oracle: Callable[[int, Weights], OracleResult],
        topk_oracle: Callable[[int, Weights, int], Sequence[OracleResult]]
        | None = None,
        *,
        batch_oracle: Callable[[list[int], Weights], Sequence[OracleResult]]
        | None = None,
        sparse: bool = False,
    ) -> None:
        self._n = checks.as_positive_int("n", n)
        self.num_weights = checks.as_positive_int("num_weights", num_weights)
        if not callable(max_oracle):
            raise TypeError(f"max_oracle: expected a callable, got {max_oracle!r}")
        if topk_oracle is not None and not callable(topk_oracle):
            raise TypeError(
                f"topk_oracle: expected a callable or None, got {topk_oracle!r}"
            )
        if batch_oracle is not None and not callable(batch_oracle):
            raise TypeError(
                f"batch_oracle: expected a callable or None, got {batch_oracle!r}"
            )
        self.max_oracle, self.topk_oracle = max_oracle, topk_oracle
        self.batch_oracle = batch_oracle
        self.sparse = checks.as_bool("sparse", sparse)

    # default smoothing of AGM
    smoothing = "l2"
    # names of the two functions in messages
    called = "max_oracle", "topk_oracle"

    def __len__(self) -> int:
        """Number of examples."""
        return self._n

    def worst(self, i: int, w: Weights) -> Corner:
        """Call ``max_oracle`` for example i and validate its result."""
        return self._as_corner(self.called[0], i, self.max_oracle(i, w))

    def worst_many(self, rows: Sequence[int], w: Weights) -> list[Corner]:
        """Call ``batch_oracle`` for the examples ``rows`` and validate its results."""
        if self.batch_oracle is None:
            return [self.worst(i, w) for i in rows]
        results = self.batch_oracle(list(rows), w)
        if len(results) != len(rows):
            raise ValueError(
                f"batch_oracle: expected an output for each of {len(rows)} examples,"
                f" got {len(results)}"
            )
        return [
            self._as_corner("batch_oracle", i, result)
            for i, result in zip(rows, results, strict=True)
        ]

    def worst_few(self, i: int, w: Weights, k: int) -> list[Corner]:
        """Call ``topk_oracle`` for example i and validate its results."""
        if self.topk_oracle is None:
            raise TypeError(
                "topk_oracle: expected a function topk_oracle(i, w, k), got None"
            )
        results = self.topk_oracle(i, w, k)
        if not 1 <= len(results) <= k:
            raise ValueError(
                f"{self.called[1]}: expected 1 to {k} outputs at example {i}, got"
                f" {len(results)}"
            )
        return [self._as_corner(self.called[1], i, result) for result in results]

    def _as_corner(self, argument: str, i: int, result: OracleResult) -> Corner:
        """Validate psi and loss of example i and return them as a ``Corner``."""
        psi, loss, key = result
        if self.sparse:
            psi = _as_csr_row(argument, i, psi)
            shape = psi.shape if psi.shape[0] != 1 else psi.shape[1:]
        else:
            psi = np.asarray(psi, dtype=np.float64)
            shape = psi.shape
        if shape != (self.num_weights,):
            raise ValueError(
                f"{argument}: expected psi of ({self.num_weights},) at example {i}, "
                f"got {psi.shape}"
            )
        entries = psi.data if self.sparse else psi
        if not (np.isfinite(entries).all() and 0 <= loss < np.inf):
            raise ValueError(
                f"{argument}: expected finite psi and a loss of at least 0 at example "
                f"{i}, got loss {loss}"
            )
        return Corner(psi, float(loss), key)

    def hinges(self, w: Weights) -> NDArray[np.float64]:
        """``(n,)``: the structured hinge of each example, one oracle call each."""
        corners = [self.worst(i, w) for i in range(self._n)]
        return np.array(
            [
                max(corner.loss - dot(as_vector(corner.psi), w), 0.0)
                for corner in corners
            ]
        )

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        v, losses, hinges = np.zeros(self.num_weights), [], []
        for i in range(self._n):
            corner = self.worst(i, w)
            psi = as_vector(corner.psi)
            add(v, psi)
            losses.append(corner.loss)
            hinges.append(max(corner.loss - dot(psi, w), 0.0))
        return v * scale, float(np.mean(losses)), float(np.mean(hinges))

    def primal(self, w: Weights, lam: float) -> float:
        """Objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        return float(lam / 2 * np.dot(w, w) + self.hinges(w).mean())

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see ``BatchProblem``."""
        total, gradient = 0.0, np.zeros(self.num_weights)
        for i in range(self._n):
            worst = self.worst(i, w)
            psi = as_vector(worst.psi)
            total += worst.loss - dot(psi, w)
            add(gradient, -psi)
        return total / self._n, gradient / self._n

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "l2", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, over the k worst outputs: ``"l2"`` only."""
        require_smoothing(smoothing, mu, k)
        if smoothing == "entropy":
            self._raise_no_sums("smoothing")
        total, gradient = 0.0, np.zeros(self.num_weights)
        for i in range(self._n):
            corners = self.worst_few(i, w, k)
            psi = [as_vector(corner.psi) for corner in corners]
            z = np.array(
                [
                    corner.loss - dot(x, w)
                    for corner, x in zip(corners, psi, strict=True)
                ]
            )
            # kernels and ``smoothed_max`` expect the largest first
            order = np.argsort(-z, kind="stable")
            # sums over the top k outputs only: exact if all others have weight 0
            value, u = smoothed_max(z[order], mu)
            # smoothed_max smooths from above by mu / 2 at most: subtract it
            total += value - mu / 2
            for weight, j in zip(u, order, strict=True):
                add(gradient, psi[j] * -weight)
        return total / self._n, gradient / self._n

    def diameter(self, smoothing: str = "l2") -> float:
        """D of ``R - mu D <= R_mu <= R``: 1/2 for ``"l2"``."""
        require_smoothing(smoothing, 1.0, 1)
        if smoothing == "entropy":
            self._raise_no_sums("smoothing")
        return 0.5

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Raise a TypeError: an oracle does not sum over outputs."""
        self._raise_no_sums("likelihood")
        raise AssertionError

    def _raise_no_sums(self, argument: str) -> None:
        """Raise a TypeError: log-partitions need a structure."""
        raise TypeError(
            f"{argument}: expected 'l2' for a problem with a Python oracle, which"
            f" cannot "
            "sum over outputs; use StructureProblem with a structure that has "
            "log_partition"
        )


@runtime_checkable
class BatchLinearProblem(LinearProblem, Protocol):
    """Interface of linear problems that also evaluate all examples at once."""

    def hinges(self, w: Weights) -> Weights:
        """``(n,)``: the structured hinge of each example."""

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""

    def primal(self, w: Weights, lam: float) -> float:
        """Objective at w."""

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge, and a subgradient."""


def as_batch_linear_problem(problem: LinearProblem) -> Any:
    """Return a problem with the methods of ``BatchLinearProblem``."""
    if isinstance(problem, BatchLinearProblem):
        return problem
    if not isinstance(problem, LinearProblem):
        raise TypeError(
            "problem: expected a LinearProblem, which has num_weights, a length and"
            f" worst(i, w), got {type(problem).__name__}"
        )
    topk_oracle = getattr(problem, "worst_few", None)
    callback_problem = CallbackProblem(
        len(problem),
        problem.num_weights,
        problem.worst,
        topk_oracle,
        sparse=bool(getattr(problem, "sparse", False)),
    )
    callback_problem.called = "worst", "worst_few"
    return callback_problem


def _as_csr_row(argument: str, i: int, psi: Any) -> Any:
    """Return psi as a CSR matrix ``(1, num_weights)`` with ascending columns."""
    if not scipy_sparse.issparse(psi) or psi.format != "csr" or psi.ndim != 2:
        raise TypeError(
            f"{argument}: expected a scipy CSR matrix as psi at example {i}, since "
            f"sparse=True, got {type(psi).__name__}"
        )
    return validate_sparse(psi, f"{argument}[{i}]").astype(np.float64, copy=False)
