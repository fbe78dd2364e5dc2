"""The solvers that ``conll_linear.py`` compares, with their settings.

Where nothing is said: as the authors of the paper published them.
"""

from dataclasses import dataclass
from typing import Any

from smoothsp.linear.solvers import BCFW, SGD, SVRG, CasimirSVRG

# F is evaluated outside the clock
NEVER = 10**9


@dataclass(frozen=True)
class Method:
    """A solver with settings."""

    solver: Any
    options: dict[str, Any]
    family: str
    setting: str = ""

    @property
    def name(self) -> str:
        return f"{self.family}, {self.setting}" if self.setting else self.family

    def settings(self, c: float) -> dict[str, Any]:
        """Options at this c."""
        return {
            name: value(c) if callable(value) else value
            for name, value in sorted(self.options.items())
        }

    def make(self, c: float, lam: float, seed: int) -> Any:
        """The solver, without certificates of its own."""
        evaluation_option = "refresh_every" if self.solver is BCFW else "evaluate_every"
        return self.solver(
            lam=lam,
            seed=seed,
            tol=0.0,
            **{evaluation_option: NEVER},
            **self.settings(c),
        )


def sgd_rate(c: float) -> float:
    return 0.02 if c >= 1 else 0.04


def adapt_rate(c: float) -> float:
    # none was published for more; 0.02 does not settle there
    return 0.02 if c <= 1 else 0.005


SMOOTH = {"mu": 1.0, "k": 5}
CONST = {
    **SMOOTH,
    "schedule": "const",
    "smoothness": 32.0,
    "warm_start": "prev-iterate",
}
ADAPT = {
    "schedule": "adapt",
    "rate": adapt_rate,
    "mu": 2.0,
    "k": 5,
    "warm_start": "extrapolation",
}
VARIANCE = {**SMOOTH, "rate": 0.02}


def const(setting: str = "", **options: Any) -> Method:
    return Method(CasimirSVRG, {**CONST, **options}, "Casimir-SVRG-const", setting)


def adapt(setting: str = "", **options: Any) -> Method:
    return Method(CasimirSVRG, {**ADAPT, **options}, "Casimir-SVRG-adapt", setting)


def svrg(setting: str = "", **options: Any) -> Method:
    return Method(SVRG, {**VARIANCE, **options}, "SVRG", setting)


def sgd(setting: str = "", **changes: Any) -> Method:
    # the published 150,000 steps are 10.7 passes
    options = {"rate": sgd_rate, "period": 10.7, **changes}
    averaged = options.get("averaging", "weighted") != "none"
    family = "SGD" if averaged else "SGD, last iterate"
    return Method(SGD, options, family, setting)


STUDIES = {
    "solvers": [
        Method(BCFW, {"sampling": "uniform", "averaging": True}, "BCFW"),
        sgd(),
        sgd(averaging="none"),
        svrg(),
        const(),
        adapt(),
    ],
    "rates": [
        *(sgd(f"rate {rate:g}", rate=rate) for rate in (0.02, 0.04, 0.08, 0.16, 0.32)),
        *(svrg(f"rate {rate:g}", rate=rate) for rate in (0.02, 0.04, 0.08, 0.16, 0.32)),
        *(const(f"L = {L:g}", smoothness=L) for L in (32.0, 16.0, 8.0, 4.0, 2.0)),
        *(
            adapt(f"rate {rate:g}", rate=rate)
            for rate in (0.01, 0.02, 0.04, 0.08, 0.16)
        ),
    ],
    "mu": [
        make(f"mu = {mu:g}", mu=mu)
        for make in (const, adapt)
        for mu in (1.0, 2.0, 8.0, 32.0)
    ],
    "smoothing": [
        make(f"mu = {mu:g}", mu=mu) for make in (const, svrg) for mu in (1.0, 0.0)
    ],
    "k": [make(f"K = {k}", k=k) for make in (const, adapt) for k in (2, 5, 10)],
    "warm-start": [
        make(start, warm_start=start, **options)
        for make, options in ((const, {"smoothness": 128.0}), (adapt, {"rate": 0.01}))
        for start in ("prox-center", "extrapolation", "prev-iterate")
    ],
}
