r"""Where the path begins: one dual point for all large lambda.

All weight on the outputs of largest cost, ``y~_i = argmax_y L_i(y)``, gives with
``psi~ = (1/n) sum_i psi_i(y~_i)`` the weights ``psi~ / lambda``, whose gap is at most

    (||psi~||^2 + (1/n) sum_i theta_i) / lambda,    theta_i = max_y -<psi~, psi_i(y)>.
"""

import math
from typing import Any

import numpy as np

from smoothsp.linear.solvers.path.dual_point import DualPoint, StepSettings

# So large that scores are nothing beside costs: whole steps to the worst outputs.
_VAST = 2.0**100
# Times weights: costs are nothing beside scores.
_FAR = 2.0**60


def begin(
    problem: Any, step_settings: StepSettings, goal: float
) -> tuple[DualPoint, float, float]:
    """A dual point whose gap is at most ``goal`` here and above, lambda^inf, alone.

    If psi~ is 0, so is lambda^inf, and weights 0 are optimal everywhere. At the third
    each example would be fitted if it had no features in common with others.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps", section 4 and algorithm 6.
    """
    dual_point = DualPoint(problem, _VAST, step_settings)
    engine, n = dual_point.engine, dual_point.n
    engine.last_gap = 0.0
    engine.in_order(np.arange(n))
    psi, alone = _VAST * engine.w, _alone(dual_point)
    norm = float(np.dot(psi, psi))
    if not norm:
        dual_point.scale_weights(1 / _VAST)
        dual_point.measure()
        return dual_point, 0.0, alone
    theta = engine.problem.hinges(_FAR * psi) / _FAR
    dual_point.others += n
    infinity = (norm + float(theta.mean())) / goal
    dual_point.scale_weights(infinity / _VAST)
    dual_point.measure()
    return dual_point, infinity, alone


def _alone(dual_point: DualPoint) -> float:
    """The least ``|psi_i|^2 / (n L_i)`` for the outputs of largest cost."""
    n = dual_point.n
    costs, squares = dual_point.engine.costs_and_squares()
    some = (squares > 0) & (costs > 0)
    return float((squares[some] / (n * costs[some])).min(initial=math.inf))
