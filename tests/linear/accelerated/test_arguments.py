"""Accelerated methods name the settings and data that they do not take."""

import numpy as np
import pytest

from smoothsp.linear.problems import (
    LeastSquaresProblem,
    LPBoostProblem,
)
from smoothsp.linear.solvers import AGM, ElasticNet, minimise_composite


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": 0.0}, "lam: expected a positive number"),
        ({"lam": 0.0, "l1": 1.0, "scheme": "dual"}, "lam: expected a positive"),
        ({"lam": 1.0, "scheme": "best"}, "scheme: expected one of"),
        ({"lam": 1.0, "l1": 1.0, "domain": "simplex"}, "l1: expected 0"),
        ({"lam": 1.0, "cap": 0.5}, "cap: expected inf"),
        ({"lam": 1.0, "tol": 0.0}, "mu: expected a number, or anneal=True"),
        ({"lam": 1.0, "prox": "data", "smoothing": "entropy"}, "prox: expected"),
        (
            {"lam": 1.0, "l1": 1.0, "scheme": "decreasing"},
            "scheme: expected a scheme other",
        ),
        ({"lam": 1.0, "scheme": "dual", "loss": "likelihood"}, "scheme: expected"),
        ({"lam": 1.0, "scheme": "dual", "anneal": True}, "anneal: expected False"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        AGM(**settings)


def test_wrong_data_are_named():
    with pytest.raises(ValueError, match=r"y: expected \(2,\) numbers"):
        LeastSquaresProblem(np.eye(2), [1.0])
    with pytest.raises(ValueError, match="y: expected finite numbers, got nan at 1"):
        LeastSquaresProblem(np.eye(2), [1.0, np.nan])
    with pytest.raises(ValueError, match="U: expected finite numbers"):
        LPBoostProblem([[np.inf]])
    with pytest.raises(ValueError, match="cap: expected at least 1 / 3"):
        AGM(lam=1.0, domain="simplex", cap=0.2).solve(LPBoostProblem(np.eye(3)))
    with pytest.raises(ValueError, match="expected a gradient of"):
        minimise_composite(lambda x: (0.0, np.zeros(1)), ElasticNet(), np.zeros(2))
    with pytest.raises(ValueError, match="expected finite numbers"):
        minimise_composite(lambda x: (np.nan, x), ElasticNet(), np.zeros(2))
