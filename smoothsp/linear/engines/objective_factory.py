"""Choice of the objective for a problem."""

from typing import Any

from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.engines.structure_objective import StructureObjective
from smoothsp.linear.problems.callback import as_batch_linear_problem

AnyObjective = ChainObjective | CallbackObjective


def make_objective(problem: Any, loss: Loss, lam: float) -> AnyObjective:
    """Compiled loops for chains, numpy for structures and for oracles in Python."""
    if hasattr(problem, "sequences"):
        return ChainObjective(problem, loss, lam)
    if hasattr(problem, "slopes"):
        return StructureObjective(problem, loss, lam)
    return CallbackObjective(as_batch_linear_problem(problem), loss, lam)
