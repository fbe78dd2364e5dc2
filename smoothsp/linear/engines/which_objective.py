"""Which surface belongs to which problem."""

from typing import Any

from smoothsp.linear.engines.callback_objective import CallbackSurface
from smoothsp.linear.engines.compiled_objective import Loss, Surface
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.problems.callback import as_callbacks

AnySurface = Surface | CallbackSurface


def surface_for(problem: Any, loss: Loss, lam: float) -> AnySurface:
    """Compiled loops for chains, plain numpy for callbacks."""
    if isinstance(problem, ChainProblem):
        return Surface(problem, loss, lam)
    return CallbackSurface(as_callbacks(problem), loss, lam)
