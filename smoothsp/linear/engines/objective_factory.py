"""Factory of objectives: compiled, of structures, or with a Python oracle."""

from typing import Any

from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.engines.structure_objective import StructureObjective
from smoothsp.linear.problems.callback import as_batch_linear_problem

AnyObjective = ChainObjective | CallbackObjective


def make_objective(problem: Any, loss: Loss, lam: float) -> AnyObjective:
    """Return the compiled objective for chains, else one in numpy."""
    if hasattr(problem, "sequences"):
        return ChainObjective(problem, loss, lam)
    if hasattr(problem, "slopes"):
        return StructureObjective(problem, loss, lam)
    return CallbackObjective(as_batch_linear_problem(problem), loss, lam)
