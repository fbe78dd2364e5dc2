"""Which objective belongs to which problem."""

from typing import Any

from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import Loss, Objective
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.problems.callback import as_callbacks

AnyObjective = Objective | CallbackObjective


def objective_for(problem: Any, loss: Loss, lam: float) -> AnyObjective:
    """Compiled loops for chains, plain numpy for callbacks."""
    if isinstance(problem, ChainProblem):
        return Objective(problem, loss, lam)
    return CallbackObjective(as_callbacks(problem), loss, lam)
