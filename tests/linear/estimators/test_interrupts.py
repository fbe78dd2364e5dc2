"""Ctrl-C at every moment: a fit ends with weights and their own certificate, or not.

One rule for all estimators: it does not raise while the solver runs, and warns.
"""

import sys
from functools import partial

import numpy as np
import pytest

from smoothsp.linear import (
    CrammerSingerSVC,
    HingeSVC,
)
from smoothsp.linear.descent import coordinate_descent
from smoothsp.linear.descent.coordinate_descent import Status
from tests import sweeps
from tests.truth.svm_objectives import MODELS, all_rows, data_for, primal

LOOP = ("coordinate_descent", "duals", "binary_dual", "certificates", "progress")
CALM = "ignore::sklearn.exceptions.ConvergenceWarning"


class PressAt:
    """Ctrl-C before the n-th line that is run in some files."""

    def __init__(self, files, n):
        self.files = tuple(f"{name}.py" for name in files)
        self.left = n

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.endswith(self.files):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted(files, n, call):
    """Whether the press came; a KeyboardInterrupt that leaves the call is passed on."""
    press = PressAt(files, n)
    before = sys.gettrace()
    sys.settrace(press)
    try:
        call()
    finally:
        sys.settrace(before)
    return press.left <= 0


def true_gap(model, X, y, C):
    """Primal minus dual of the weights and dual variables, from the definitions."""
    table = np.zeros((len(y), len(model.dual_coef_)))
    table[model.support_] = model.dual_coef_.T
    W = table.T @ X
    if isinstance(model, HingeSVC):
        linear = (table[:, 0] * np.where(y == 1, 1, -1)).sum()
    else:
        linear = table[np.arange(len(y)), y].sum()
    assert (table[np.arange(len(y)), y if table.shape[1] > 1 else 0] != 0).any()
    return primal(type(model), W, X, y, C) - (linear - (W**2).sum() / 2)


@pytest.mark.parametrize("every", [1, 2, "auto"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.filterwarnings(CALM)
def test_the_certificate_is_that_of_the_weights_whenever_it_comes(model, every):
    X, y = data_for(model)
    options = {"random_state": 0, "tol": 0, "store_dual": True, "max_epochs": 4}
    options |= {"certify_every": every, "fit_intercept": False}
    whole = model(**options).fit(X, y)
    n = came = 0
    apart = 7 if sweeps.long else 17
    while n < 2000:
        n += apart
        fitted = model(**options)
        before = dict(vars(fitted))
        try:
            if not interrupted(LOOP, n, lambda fitted=fitted: fitted.fit(X, y)):
                break
        except KeyboardInterrupt:
            # not while the solver ran: as after an error
            assert vars(fitted) == before
            continue
        came += fitted.status_ is Status.INTERRUPTED
        last = fitted.history_[-1]
        assert fitted.gap_ == last.gap and fitted.n_epochs_ == last.epoch
        assert last.primal == pytest.approx(primal(model, all_rows(fitted), X, y, 1.0))
        if fitted.coef_.any():
            assert last.gap == pytest.approx(true_gap(fitted, X, y, 1.0), rel=1e-9)
        epochs = [one.epoch for one in fitted.history_]
        assert epochs == sorted(set(epochs))
    assert came > 140 / apart
    np.testing.assert_array_equal(fitted.coef_, whole.coef_)


@pytest.mark.parametrize("model", MODELS)
def test_a_second_press_raises_and_changes_nothing(model, monkeypatch):
    X, y = data_for(model)
    fitted = model(random_state=0).fit(X, y)
    before = dict(vars(fitted))

    def press(*_):
        raise KeyboardInterrupt

    fitted.callback = press
    monkeypatch.setattr(
        coordinate_descent._DescentLoop, "recompute_last_certificate", press
    )
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert vars(fitted) == before | {"callback": press}


@pytest.mark.parametrize("model", [*MODELS, partial(CrammerSingerSVC, solver="bcfw")])
def test_an_error_changes_nothing(model):
    X, y = data_for(model)
    fitted = model().fit(X, y)
    before = dict(vars(fitted))

    def fail(_):
        raise RuntimeError("no more disk")

    fitted.callback = fail
    with pytest.raises(RuntimeError, match="no more disk"):
        fitted.fit(X[:, :2], y)
    assert vars(fitted) == before | {"callback": fail}
