"""Every classifier of samples keeps scikit-learn's rules."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from smoothsp.linear import (
    F1SVC,
    L1SVC,
    ROCSVC,
    CrammerSingerSVC,
    HingeSVC,
    LPBoostClassifier,
    WestonWatkinsSVC,
)
from tests.sweeps import thinned

EXACT = {"stopping": "gap", "tol": 1e-14, "random_state": 0, "fit_intercept": True}
# weights of samples are equal to the default tolerance, not to seven digits
ROUGH = [f"check_sample_weight_equivalence_on_{x}_data" for x in ("dense", "sparse")]
# without an intercept no weight of a class moves a hyperplane off the origin
ORIGIN = "check_class_weight_classifiers"

# one of each family in plain runs
ESTIMATORS = [
    (CrammerSingerSVC(random_state=0), ROUGH),
    (CrammerSingerSVC(**EXACT), []),
    (WestonWatkinsSVC(**EXACT), []),
    (HingeSVC(), [*ROUGH, ORIGIN]),
    (CrammerSingerSVC(solver="bcfw", tol=1e-2, max_epochs=100), ROUGH),
    (ROCSVC(), ROUGH),
    (F1SVC(), []),
    (L1SVC(max_epochs=200), ROUGH),
    (LPBoostClassifier(n_estimators=3, lam=0.05), []),
    (WestonWatkinsSVC(kernel="precomputed", random_state=0), []),
]


@pytest.mark.parametrize(("estimator", "failing"), thinned(ESTIMATORS, 3), ids=repr)
def test_checks_of_scikit_learn_pass(estimator, failing):
    expected = dict.fromkeys(failing, "as the lists above say")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None, expected_failed_checks=expected)
