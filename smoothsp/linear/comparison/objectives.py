"""Common objective of compared solvers, evaluated by the problem."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LeastSquaresProblem
from smoothsp.linear.problems.callback import as_batch_linear_problem

Objective = Callable[[NDArray[np.float64]], float]
_HINT = "give objective=, a function of w"


class _Terms(NamedTuple):
    """Loss, regularisation and bounds that determine an objective."""

    loss: str
    lam: float
    l1: float
    bounds: str


def make_common_objective(problem: Any, solvers: Mapping[str, Any]) -> Objective:
    """Return ``lam / 2 |w|^2 + l1 |w|_1 + loss``; raise if solvers differ in terms."""
    terms: dict[_Terms, str] = {}
    for name, solver in solvers.items():
        # Weights on the simplex have another regulariser, the relative entropy.
        if getattr(solver, "domain", "space") != "space":
            raise ValueError(f"objective: expected a function for {name}, got None")
        solver_terms = _extract_terms(solver, isinstance(problem, LeastSquaresProblem))
        if solver_terms is not None:
            terms.setdefault(solver_terms, name)
    if not terms:
        raise ValueError(
            f"objective: expected a solver with an attribute lam, got none; {_HINT}"
        )
    (first, name), *other_terms = terms.items()
    if other_terms:
        other, second = other_terms[0]
        raise ValueError(
            f"solvers: expected one objective for all, got {tuple(first)} of {name!r}"
            f" and {tuple(other)} of {second!r} as loss, lam, l1 and bounds; {_HINT}"
        )
    risk = (
        problem.likelihood
        if first.loss == "likelihood"
        else as_batch_linear_problem(problem).risk
    )

    def objective(w: NDArray[np.float64]) -> float:
        l2_term = first.lam / 2 * float(w @ w)
        return l2_term + first.l1 * float(np.abs(w).sum()) + float(risk(w)[0])

    return objective


def _extract_terms(solver: Any, is_squared_loss: bool) -> _Terms | None:
    lam = getattr(solver, "lam", None)
    if lam is None:
        return None
    loss = getattr(solver, "loss", "hinge")
    loss = getattr(loss, "name", loss)
    loss_kind = "likelihood" if is_squared_loss or loss == "likelihood" else "hinge"
    settings = getattr(solver, "engine_settings", None)
    bounds = [getattr(settings, name, None) for name in ("lower", "upper")]
    bounds_text = "" if bounds[0] is bounds[1] is None else repr(bounds)
    return _Terms(loss_kind, float(lam), float(getattr(solver, "l1", 0.0)), bounds_text)


def as_number(name: str, value: Any) -> float:
    """Convert a number, or an array or tensor without axes, to float."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    return checks.as_number(name, value)


def evaluate_objective(objective: Objective, w: NDArray[np.float64]) -> float:
    """Evaluate the objective; infinite if weights or potentials overflow."""
    if not np.isfinite(w).all():
        return math.inf
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            value = as_number("objective", objective(w))
    except FloatingPointError:
        return math.inf
    # NaN is a divergence, too.
    return math.inf if math.isnan(value) else value
