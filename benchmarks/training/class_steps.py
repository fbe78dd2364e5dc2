"""Which steps of BCFW for classes: CPU seconds to a gap, on six sets, at several C.

``MulticlassSVM`` takes by default what comes out here. Passes stand in the CSV.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sklearn import datasets
from sklearn.preprocessing import maxabs_scale

from smoothsp.linear import MulticlassSVM
from smoothsp.linear.problems import MulticlassProblem
from training import chain_steps
from training.chain_steps import METHODS, table
from training.drawn_measurements import drawn_measurements
from training.drawn_texts import drawn_texts
from training.races import Entry, Goal

__all__ = ["QUICK", "Plan", "goals", "measure", "table"]

# Scaled to numbers of at most 1.
OF_SCIKIT_LEARN = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    C: tuple[float, ...] = (0.1, 1.0, 10.0)
    methods: tuple[str, ...] = tuple(METHODS)
    sets: tuple[str, ...] = tuple(OF_SCIKIT_LEARN)
    drawn: int = 1500
    cap: float = 2.0  # CPU seconds of the first method
    patience: float = 4.0  # times these, if it ended before, of the others


QUICK = Plan(C=(1.0,), methods=("pairwise, cached", "fw"), sets=("iris",), drawn=40)


def measure(plan: Plan) -> Iterator[Entry]:
    """All methods, problem after problem."""
    return chain_steps.races(problems(plan), plan)


def problems(plan: Plan) -> Iterator[tuple[str, MulticlassProblem]]:
    """Those that scikit-learn brings, and drawn ones."""
    for name in plan.sets:
        X, y = OF_SCIKIT_LEARN[name](return_X_y=True)
        yield name, MulticlassProblem(maxabs_scale(X), y)
    yield "texts", MulticlassProblem(*drawn_texts(plan.drawn, 5 * plan.drawn, 20))
    yield "measurements", MulticlassProblem(*drawn_measurements(plan.drawn, 9, 7, True))


def goals(entries: list[Entry]) -> list[Goal]:
    """What ``MulticlassSVM`` takes by default is about the fastest."""
    return chain_steps.goals(entries, MulticlassSVM)
