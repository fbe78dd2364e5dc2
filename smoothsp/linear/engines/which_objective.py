"""Which surface belongs to which problem."""

from typing import Any

from smoothsp.linear.engines.callback_objective import CallbackSurface
from smoothsp.linear.engines.compiled_objective import Loss, Surface
from smoothsp.linear.problems import CallbackProblem, ChainProblem

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
