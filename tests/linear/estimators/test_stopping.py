"""Every estimator, with every solver: it stops at a relative gap, or says that not."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from smoothsp.linear import (
    F1SVC,
    L1SVC,
    ROCSVC,
    ChainCRF,
    ChainGP,
    ChainSVM,
    CrammerSingerSVC,
    HingeSVC,
    LPBoostClassifier,
    StructuredSVM,
    WestonWatkinsSVC,
)
from smoothsp.linear.problems import Parts
from smoothsp.oracles import Chain

RNG = np.random.default_rng(0)
SEQUENCES = [RNG.normal(size=(k, 3)) for k in (4, 2, 5, 3, 4, 1, 6, 2)]
TAGS = [(x @ [1.0, -0.5, 0.2] > 0).astype(int) for x in SEQUENCES]
IRIS = tuple(load_iris(return_X_y=True))


def features(X):
    return {"scores": Parts.of_examples(X, states=2)}


def build(potentials, batch):
    zero = potentials["scores"].new_zeros(2, 2)
    return Chain(potentials["scores"], zero, lengths=batch.sizes["scores"])


def cases():
    """Name, estimator, and whether it labels sequences."""
    yield "ChainGP", ChainGP(), True
    for kind in (ChainSVM, ChainCRF):
        for solver in kind.SOLVERS:
            yield f"{kind.__name__} {solver}", kind(solver=solver), True
    for solver in ("bcfw", "sgd"):
        model = StructuredSVM(build, features, solver=solver)
        yield f"StructuredSVM {solver}", model, True
    for solver in ("lbfgs", "agm"):
        model = StructuredSVM(build, features, loss="likelihood", solver=solver)
        yield f"StructuredSVM likelihood {solver}", model, True
    for solver in CrammerSingerSVC.SOLVERS:
        yield f"CrammerSingerSVC {solver}", CrammerSingerSVC(solver=solver), False
    for kind in (HingeSVC, CrammerSingerSVC, WestonWatkinsSVC, F1SVC, ROCSVC, L1SVC):
        yield kind.__name__, kind(), False
    yield "LPBoostClassifier", LPBoostClassifier(lam=0.1), False


CASES = {name: (model, chains) for name, model, chains in cases()}


def data_for(name):
    """Samples, two classes of them where the estimator takes no more."""
    if CASES[name][1]:
        return SEQUENCES, TAGS
    X, y = IRIS
    X = scale(X)
    if name.startswith(("Crammer", "Weston", "Multiclass")):
        return X, y
    return X[y > 0], y[y > 0]


def of(name, tol, most=None):
    model = clone(CASES[name][0]).set_params(tol=tol)
    known = model.get_params()
    if "C" in known:
        model.set_params(C=0.5)
    budgets = {"max_passes", "max_epochs", "n_estimators"} & known.keys()
    return model if most is None else model.set_params(**{budgets.pop(): most})


@pytest.mark.parametrize("name", CASES)
def test_a_fit_ends_at_its_relative_tolerance_without_a_warning(name):
    X, y = data_for(name)
    fitted = of(name, 0.02).fit(X, y)
    last = fitted.history_[-1]
    if np.isnan(last.gap):
        assert "sgd" in name and "falls by less than tol" in str(
            getattr(fitted.status_, "value", fitted.status_)
        )
        least = min(record.primal for record in fitted.history_[:-2])
        assert last.primal >= (1 - 0.02) * least
    else:
        assert last.gap <= 0.02 * last.dual
        assert last.minimised - last.dual == pytest.approx(last.gap, abs=1e-9)
        assert fitted.gap_ == last.gap


@pytest.mark.parametrize("name", CASES)
def test_a_fit_that_ends_at_its_budget_warns_in_the_same_words(name):
    X, y = data_for(name)
    words = (
        rf"{name.split()[0]}: (max_passes|max_epochs|n_estimators).* used up; the gap"
        r" is (not known|[-+.e\d]+) of an objective of [-+.e\d]+ after 1"
        r" (passes|rounds)\. Raise (max_passes or tol, or scale the features|max_epochs"
        r" or tol, or scale the features|n_estimators, tol or lam)\."
    )
    with pytest.warns(ConvergenceWarning, match=words):
        of(name, 1e-9, most=1).fit(X, y)


@pytest.mark.parametrize("name", [*CASES][1::6])
def test_progress_is_shown_where_it_is_wanted(name, capsys):
    X, y = data_for(name)
    of(name, 0.9).fit(X, y)
    assert capsys.readouterr().err == ""
    of(name, 0.9).set_params(verbose=True).fit(X, y)
    assert re.search(r": .*objective [-+.e\d]+", capsys.readouterr().err)


@pytest.mark.parametrize("kind", [ChainSVM, ChainGP])
def test_c_and_l2_together_raise(kind):
    with pytest.raises(ValueError, match=r"C: expected None beside l2=0\.5, got"):
        kind(C=1.0, l2=0.5).fit(SEQUENCES, TAGS)
