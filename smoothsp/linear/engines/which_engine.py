"""Choice of the engine for a problem, and starts from a solution."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.budget import require_same
from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.engines.compiled_dual import ChainEngine
from smoothsp.linear.engines.settings import EngineSettings
from smoothsp.linear.engines.solution import Solution
from smoothsp.linear.problems.callback import whole

Floats = NDArray[np.float64]


class Engine(Protocol):
    """A dual point, its weights, and steps from there."""

    n: int
    problem: Any
    measured: int
    compiled: bool
    hinges: Floats

    @property
    def estimates(self) -> Floats:
        """Gaps of the examples at their last oracle calls."""

    @property
    def oracle_calls(self) -> int:
        """Calls so far, those of certificates included."""

    @property
    def w(self) -> Floats:
        """Weights: of the average, if there is one."""

    def in_order(self, order: NDArray[np.int64]) -> None:
        """A step on each of ``order``."""

    def by_gap(self, uniforms: Floats, floor: float) -> int:
        """Steps drawn by estimated gaps until these sum to ``floor``."""

    def measure(self) -> tuple[float, float, float]:
        """Primal, dual and gap, with the exact gap of each example."""

    def expected_hinges(self) -> Floats:
        """``ell_i - lambda <w_i, w>`` of each example, without a call of the oracle."""

    def costs_and_squares(self) -> tuple[Floats, Floats]:
        """Expected cost of each example, and ``|psi_i|^2``, each times n, or below."""

    def rebuild(self) -> None:
        """Weights anew from the dual variables."""

    def mix_with_gold(self, rho: float) -> None:
        """``alpha <- rho alpha``, the rest on the gold outputs."""

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""

    def take_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Start from the dual variables and weights of a state."""

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, as arrays."""

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""


def engine_for(problem: Any, plan: EngineSettings) -> Engine:
    """Compiled loops for chains, plain numpy for callbacks."""
    if hasattr(problem, "sentences"):
        if plan.batch > 1:
            raise ValueError(
                "batch_size: expected 1 for a problem of chains in compiled loops, got"
                f" {plan.batch}; StructureProblem and CallbackProblem take it"
            )
        problem.require_all_pairs("BCFW")
        problem.require_range(plan.lam)
        return ChainEngine(problem, plan)
    return CallbackEngine(whole(problem), plan)


def start_engine(engine: Engine, start: Solution, lam: float, keep: str) -> None:
    """Take over a solution at another lambda.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps", proposition 1 and section 5.2.
    """
    if not isinstance(start, Solution) or "ell" not in start.state:
        raise TypeError(
            "start: expected a Solution of a solver with dual variables, got "
            f"{type(start).__name__}"
        )
    require_same("start", engine.problem, start.state)
    engine.take_duals(start.state)
    rho = lam / float(start.state["lam"])
    if rho < 1 and keep == "primal":
        engine.mix_with_gold(rho)
    elif rho != 1:
        # a larger lambda would ask for more than all the weight there is
        engine.scale_weights(1 / rho)


def one_pass(
    engine: Engine, stream: np.random.Generator, sampling: str, enough: float
) -> None:
    """One step for each example, or fewer where the gaps that are known vanish.

    ``enough`` is the sum of estimated gaps at which draws by gap end.
    """
    n = engine.n
    if sampling == "uniform":
        engine.in_order(stream.integers(n, size=n))
    elif sampling == "permutation" or np.isinf(engine.estimates).any():
        # a gap that is not known comes before any that is
        engine.in_order(stream.permutation(n))
    else:
        engine.by_gap(stream.random(n), enough)
