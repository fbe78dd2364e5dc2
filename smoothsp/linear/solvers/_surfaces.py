"""Which surface belongs to which problem."""

from typing import Any

from smoothsp.linear.problems import CallbackProblem, ChainProblem
from smoothsp.linear.solvers._callback_surface import CallbackSurface
from smoothsp.linear.solvers._surface import Loss, Surface

AnySurface = Surface | CallbackSurface


def surface_for(problem: Any, loss: Loss, lam: float) -> AnySurface:
    """Compiled loops for chains, plain numpy for callbacks."""
    if isinstance(problem, ChainProblem):
        return Surface(problem, loss, lam)
    if isinstance(problem, CallbackProblem):
        return CallbackSurface(problem, loss, lam)
    raise TypeError(
        "problem: expected a ChainProblem, MulticlassProblem or CallbackProblem, got"
        f" {type(problem).__name__}"
    )
